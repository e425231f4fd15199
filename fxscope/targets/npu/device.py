"""The NPU as the rest of fxscope sees it: what it supports, its compiler, its cost model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.targets.npu.machine import DEFAULT, Machine, load
from fxscope.targets.op_table import OpTable
from fxscope.targets.target import Clause, Cost, Executable, Kind

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from fxscope.targets.npu.executable import Mode

ENV_MACHINE = "FXSCOPE_NPU"
TABLE = Path(__file__).with_name("ops.toml")
# Softmax stays on the host with these refused; see NpuTarget(softmax="host").
_SOFTMAX = ("aten._softmax.default", "aten._log_softmax.default", "aten.exp.default")


class NpuTarget:
    """Islands on one machine.

    Args:
        machine: A preset name, a TOML file or a Machine; None takes FXSCOPE_NPU, else the default preset.
        softmax: ``decompose`` runs softmax as exp, sum and div on the vector unit; ``host`` leaves it (and exp) outside,
            as a machine without those functions must.
        mode: See NpuExecutable.
        tried: Tile factors per shape that the event model compares.
    """

    name = "npu"
    kind: Kind = "modelled"

    def __init__(
        self,
        machine: str | Path | Machine | None = None,
        *,
        softmax: str = "decompose",
        mode: Mode = "plan",
        tried: int | None = None,
    ) -> None:
        if softmax not in ("decompose", "host"):
            raise UsageError(f"softmax={softmax!r}: one of decompose, host")
        if mode not in ("plan", "instructions"):
            raise UsageError(f"mode={mode!r}: one of plan, instructions")
        wanted = machine if machine is not None else os.environ.get(ENV_MACHINE) or DEFAULT
        self.machine = wanted if isinstance(wanted, Machine) else load(wanted)
        self.softmax, self.mode, self.tried = softmax, mode, tried
        self.table = OpTable.load(TABLE)

    def unavailable(self) -> str | None:
        """Never: the executor runs on the host."""
        return None

    def supports(self, node: Node) -> tuple[Clause, ...]:
        """Every failing clause: those of ops.toml, and what a table cannot say."""
        clauses = self.table.clauses(node)
        if self.softmax == "host" and str(node.target) in _SOFTMAX:
            clauses += (Clause("op", f"{node.target} stays on the host (softmax=host)"),)
        return clauses or tuple(_extra(node))

    def compile(self, island: GraphModule, example_inputs: Sequence[Any]) -> Executable:
        """Compile one island; see Target."""
        from fxscope.targets.npu.compile import TRIED, compile_island
        from fxscope.targets.npu.executable import NpuExecutable

        compiled = compile_island(island, self.machine, tried=self.tried or TRIED)
        return NpuExecutable(compiled, island, mode=self.mode)

    def cost(self, island: GraphModule) -> Cost:
        """Modelled cost: the event model over the compiled island, boundary transfers included."""
        from fxscope.targets.npu.report import cost_of

        return cost_of(island, self.machine)


def _extra(node: Node) -> list[Clause]:
    """Limits that relate several things: users, sizes."""
    import torch

    found = []
    name = str(node.target)
    outputs = node.meta["val"] if isinstance(node.meta.get("val"), tuple | list) else (node.meta.get("val"),)
    used = [value.meta.get("val") for value in node.all_input_nodes]
    if "batch_norm" not in name and any(
        isinstance(value, torch.Tensor) and value.numel() == 0 for value in (*outputs, *used)
    ):
        found.append(Clause("attribute", f"{node.name} has a tensor without elements"))
    if name in ("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default"):
        taken = [user for user in node.users if user.args[1:] == (1,) and user.users]
        if taken:
            found.append(Clause("attribute", f"{taken[0].name} uses the indices; only the values are made"))
    if name in ("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default"):
        rank = len(node.args[1])
        shape, out = used[0].shape[-rank:], outputs[0].shape[-rank:]
        if any(have % want for have, want in zip(shape, out, strict=True)):
            found.append(Clause("attribute", f"output {tuple(out)} does not divide the input {tuple(shape)}"))
    if name in ("aten._to_copy.default", "aten.clone.default") and node.kwargs.get("device") is not None:
        wanted, have = torch.device(str(node.kwargs["device"])), used[0].device
        if wanted.type != have.type:
            found.append(Clause("device", f"{node.name} moves a tensor from {have} to {wanted}"))
    return found
