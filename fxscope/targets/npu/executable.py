"""A compiled island that runs on real tensors through the executor, and says what the cycle model expects."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from fxscope.targets.npu.access import View
from fxscope.targets.npu.assembly import line
from fxscope.targets.npu.check import verify
from fxscope.targets.npu.compile import Compiled
from fxscope.targets.npu.execute import TORCH, Executor, Memories
from fxscope.targets.npu.modes import real_tensors
from fxscope.targets.npu.plan import Plan, tensor
from fxscope.targets.npu.simulate import Timing, simulate
from fxscope.targets.target import Kind, Listing

if TYPE_CHECKING:
    from torch.fx import GraphModule

Mode = Literal["plan", "instructions"]


_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Held:
    """What an input region holds at present, so that a weight of another layout is not rearranged for every call."""

    def __init__(self, view: View, target: torch.Tensor) -> None:
        self.target = target
        self.keeps = view.buffer.kind == "weight"
        self._last: torch.Tensor | None = None

    def put(self, tensor: torch.Tensor) -> None:
        """Copy the tensor in, unless it is a weight that lies there unchanged.

        Bits are compared, because a write through ``.data`` leaves the version as it was; where the layout is the same, copying
        is cheaper than comparing.
        """
        tensor = tensor.detach()
        if self.keeps and tensor.stride() != self.target.stride() and type(tensor) is torch.Tensor:
            bits = tensor.view(_BITS[tensor.element_size()])
            if self._last is not None and torch.equal(self._last, bits):
                return
            self._last = bits.clone()
        self.target.copy_(tensor)


class NpuExecutable:
    """Runs one program, proven legal. Memories are its own; calls from several threads run one after the other.

    Attributes:
        compiled: Program, tile factors and memory plan.
        mode: ``plan`` runs each tile loop nest as one batched computation; ``instructions`` runs the program instruction by
            instruction. Same results but for the order of sums.

    Raises:
        CheckFailed: The compiler made an illegal program; nothing of it runs.
    """

    kind: Kind = "modelled"
    launches = 1

    def __init__(self, compiled: Compiled, island: GraphModule, *, mode: Mode = "plan") -> None:
        self.compiled = compiled
        self.mode = mode
        self._lock = threading.Lock()
        self._timing: Timing | None = None
        self._executor: Executor | None = None
        with real_tensors():
            self._memories = Memories(compiled.machine, compiled.program.regions)
            self._bind(compiled, island)

    def _bind(self, compiled: Compiled, island: GraphModule) -> None:
        memories = self._memories
        if not compiled.proven:
            verify(compiled.program, compiled.machine)
            compiled.proven = True
        if self.mode == "instructions":
            self._executor = Executor(compiled.program.instructions, compiled.machine, memories)
            self._run = self._executor.run
        else:
            self._run = Plan(compiled.groups, memories).run
        self._held = [_Held(view, tensor(memories, view)) if view is not None else None for view in compiled.inputs]
        for view, number in compiled.constants:
            memories.strided(view.buffer.region, "f32", (1,), (1,), view.buffer.offset).fill_(number)
        results = next(iter(island.graph.find_nodes(op="output"))).args[0]
        results = results if isinstance(results, list | tuple) else (results,)
        self._outputs: list[tuple[torch.Tensor, torch.dtype, tuple[int, ...], torch.device] | Any] = []
        for node, output in zip(results, compiled.outputs, strict=True):
            if isinstance(output, View):
                meta = node.meta["val"]
                self._outputs.append((tensor(memories, output), meta.dtype, tuple(meta.stride()), meta.device))
            else:
                self._outputs.append(output)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once: inputs into memory, the program, outputs out of memory."""
        with self._lock, torch.no_grad():
            for held, value in zip(self._held, inputs, strict=True):
                if held is not None:
                    held.put(value)
            self._run()
            return tuple(self._result(output) for output in self._outputs)

    def _result(self, output: Any) -> Any:
        if not isinstance(output, tuple):
            return output
        view, dtype, strides, device = output
        result = torch.empty_strided(view.shape, strides, dtype=dtype, device=device)
        if dtype == torch.bool:
            result.copy_(view != 0)
        else:
            result.copy_(view)
        return result

    @property
    def timing(self) -> Timing:
        """The event model's result, made when first asked for."""
        if self._timing is None:
            self._timing = simulate(self.compiled.program.instructions, self.compiled.machine)
        return self._timing

    @property
    def boundary_bytes(self) -> int:
        """Bytes that enter and leave the island at every call; weights stay."""
        return boundary_bytes(self.compiled)

    def modelled_seconds(self) -> float:
        """The program and what moving its inputs and outputs costs."""
        machine = self.compiled.machine
        host = self.boundary_bytes / machine.host.bytes_per_cycle + machine.host.launch_cycles
        return machine.seconds(self.timing.total + host)

    def listings(self) -> Sequence[Listing]:
        """The disassembly, each line with the node it came from."""
        program = self.compiled.program
        lines: list[str] = []
        nodes: dict[int, tuple[str, ...]] = {}
        comments = program.comments()
        for number, instruction in enumerate(program.instructions, 1):
            lines.append(line(instruction, comments.get(instruction.dbg, "")))
            entry = program.entry(instruction.dbg)
            if entry.node:
                nodes[number] = (entry.node,)
        return [
            Listing(
                title=f"NPU program for {program.machine}", language="npu", text="\n".join(lines), lines_to_nodes=nodes
            )
        ]


def boundary_bytes(compiled: Compiled) -> int:
    """Bytes of inputs that are no weights, and of outputs."""
    moved = [view for view in compiled.inputs if view is not None and view.buffer.kind != "weight"]
    outputs = [view for view in compiled.outputs if isinstance(view, View)]
    return sum(view.numel * TORCH[view.dtype].itemsize for view in (*moved, *outputs))
