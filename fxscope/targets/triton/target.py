"""The Triton target: what it supports, how it compiles an island, and what it expects of it."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fxscope.errors import MissingError, UsageError
from fxscope.targets.op_table import OpTable
from fxscope.targets.target import Clause, Cost, Executable, Kind
from fxscope.targets.triton import module

PEAK_BYTES = {"H200": 4.25e12, "H100": 3.0e12, "A100": 1.75e12}  # measured (H200) or typical copy rates
LAUNCH_SECONDS = 4e-6


@functools.cache
def op_table() -> OpTable:
    """The supported ops, from ops.toml."""
    return OpTable.load(Path(__file__).with_name("ops.toml"))


class TritonTarget:
    """Generated Triton kernels: on CUDA devices, or interpreted on the CPU (correct, and slow)."""

    name = "triton"

    def __init__(self) -> None:
        self.kind: Kind = "interpreted" if module.interpreting() else "measured"
        if self.kind == "measured" and module.missing() is None:
            module.hash_early()

    def unavailable(self) -> str | None:
        """None where islands can run; else what is missing."""
        return module.missing()

    def supports(self, node: Any) -> tuple[Clause, ...]:
        """Every failing clause of a node."""
        clauses = list(op_table().clauses(node))
        if not clauses:
            clauses += _own_clauses(node)
        return tuple(clauses)

    def compile(self, island: Any, example_inputs: Sequence[Any]) -> Executable:
        """Compile one island.

        Raises:
            MissingError: Triton is absent, or the inputs lie on a GPU that it does not serve.
            UsageError: The island holds a node that is not supported, named.
        """
        module.require()
        for node in island.graph.nodes:
            if node.op == "call_function" and node.target is not operator.getitem:
                clauses = self.supports(node)
                if clauses:
                    raise UsageError(f"target triton: {node.name} ({node.target}): {clauses[0].text}")
        device = next((x.device for x in example_inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
        interpreted = module.interpreting()
        if not interpreted and device.type != "cuda":
            raise MissingError(
                f"target triton: the inputs are on {device.type}: move them to cuda, or set TRITON_INTERPRET=1 before Python starts"
            )
        from fxscope.targets.triton.executable import TritonExecutable, first_candidate, tuned

        tune = not interpreted and os.environ.get("FXSCOPE_TRITON_AUTOTUNE", "1") != "0"
        return TritonExecutable(island, example_inputs, tuned(device) if tune else first_candidate, device, interpreted)

    def cost(self, island: Any) -> Cost | None:
        """Bytes in and out once, at the device's copy rate, plus one launch."""
        total = 0
        for node in island.graph.nodes:
            if node.op == "placeholder":
                total += _bytes(node.meta.get("val"))
            elif node.op == "output":
                total += sum(_bytes(arg.meta.get("val")) for arg in node.all_input_nodes)
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "H200"
        rate = next((peak for key, peak in PEAK_BYTES.items() if key in name), 1e12)
        flops = sum(_elements(node.meta.get("val")) for node in island.graph.nodes if node.op == "call_function")
        return Cost(
            seconds=total / rate + LAUNCH_SECONDS,
            bytes=total,
            flops=flops,
            assumptions=(
                f"every input read once, every output written once, at {rate / 1e12:.2f} TB/s",
                f"one kernel, {LAUNCH_SECONDS * 1e6:.0f} us to launch",
                "one operation per element and node",
            ),
        )


def _own_clauses(node: Any) -> list[Clause]:
    """What the table cannot say."""
    from fxscope.targets.triton.nodes import arguments, packet

    name = packet(node)
    out = []
    args = arguments(node)
    results = [user for user in node.users if user.target is operator.getitem] or [node]
    for seen in (*node.all_input_nodes, *results):
        value = seen.meta.get("val")
        if isinstance(value, torch.Tensor) and any(isinstance(size, int) and size == 0 for size in value.shape):
            out.append(Clause("shape", f"{seen.name} of shape {tuple(value.shape)} has no elements"))
    if name == "aten.gather":
        index = args[2].meta["val"]
        if index.shape[args[1]] != 1 if index.dim() else False:
            out.append(Clause("shape", f"gather of {index.shape[args[1]]} elements per row; allowed: 1"))
        elif any(
            a != b
            for d, (a, b) in enumerate(zip(index.shape, args[0].meta["val"].shape, strict=True))
            if d != args[1] % index.dim()
        ):
            out.append(Clause("shape", "gather whose index has other rows than the tensor"))
    if name == "aten._to_copy" and node.meta["val"].device != node.args[0].meta["val"].device:
        out.append(Clause("device", f"copy from {node.args[0].meta['val'].device} to {node.meta['val'].device}"))
    if name in ("aten.arange", "prims.iota") and any(isinstance(a, float) for a in args[:3]):
        out.append(Clause("attribute", "arange with a fractional step"))
    return out


def _bytes(value: Any) -> int:
    if not isinstance(value, torch.Tensor):
        return 0
    return _elements(value) * value.element_size()


def _elements(value: Any) -> int:
    if not isinstance(value, torch.Tensor):
        return 0
    return math.prod(int(size) if isinstance(size, int) else 1 for size in value.shape)
