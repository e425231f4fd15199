"""The executors that others are measured against: eager PyTorch and Inductor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxscope.errors import CheckFailed, described
from fxscope.targets.provenance import kernel_nodes, lines_to_nodes
from fxscope.targets.target import Clause, Cost, Kind, Listing

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


class ReferenceExecutable:
    """An island that runs as a Python callable.

    Attributes:
        launches: Kernels one call starts: compute nodes for eager; for Inductor, kernels and library calls of its code.
    """

    kind: Kind = "measured"

    def __init__(self, call: Callable[..., Any], launches: int, sources: Sequence[Listing]) -> None:
        self._call = call
        self.launches = launches
        self._sources = tuple(sources)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once."""
        result = self._call(*inputs)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    def listings(self) -> Sequence[Listing]:
        """The FX code, or Inductor's."""
        return self._sources

    def modelled_seconds(self) -> float | None:
        """None: reference executors are measured."""
        return None


class Eager:
    """PyTorch without a compiler: every node is one call."""

    name = "eager"
    kind: Kind = "measured"

    def unavailable(self) -> str | None:
        """None: eager is always there."""
        return None

    def supports(self, node: Node) -> tuple[Clause, ...]:
        """Everything."""
        return ()

    def compile(self, island: GraphModule, example_inputs: Sequence[Any]) -> ReferenceExecutable:
        """Run the graph as it is."""
        from fxscope.passes.no_ops import is_no_op
        from fxscope.passes.order import is_compute

        launches = sum(is_compute(node) and not is_no_op(node) for node in island.graph.nodes)
        return ReferenceExecutable(island, launches, [Listing(title="FX graph", language="python", text=island.code)])

    def cost(self, island: GraphModule) -> Cost | None:
        """None: what eager costs is measured."""
        return None


class Inductor:
    """``torch.compile``'s own compiler, with its caches off so that a run never times a lookup."""

    name = "inductor"
    kind: Kind = "measured"

    def unavailable(self) -> str | None:
        """What Inductor lacks here: a C++ compiler on a CPU."""
        import shutil

        import torch

        if torch.cuda.is_available() or any(map(shutil.which, ("g++", "clang++", "cl"))):
            return None
        return "Inductor needs a C++ compiler: apt-get install g++"

    def supports(self, node: Node) -> tuple[Clause, ...]:
        """Everything that it compiles or leaves to eager."""
        return ()

    def compile(self, island: GraphModule, example_inputs: Sequence[Any]) -> ReferenceExecutable:
        """Compile one graph; gradients are not needed.

        Raises:
            CheckFailed: Inductor raised; its first line is in the message.
        """
        import torch

        from fxscope.passes.private import private

        run_and_get_code = private("torch._inductor.utils.run_and_get_code", "the executor inductor")
        # A copy: torch.compile marks what it compiles. Fresh Dynamo state, so that earlier graphs leave no guards behind.
        compiled = torch.compile(_plain(island), backend="inductor", dynamic=False, fullgraph=False)
        try:
            with torch.no_grad(), kernel_nodes() as nodes_of:
                _, codes = run_and_get_code(compiled, *[_clone(value) for value in example_inputs])
        except Exception as error:
            raise CheckFailed(f"Inductor: {described(error)}") from error

        def call(*inputs: Any) -> Any:
            with torch.no_grad():
                return compiled(*inputs)

        listings = [
            Listing(
                title=f"Inductor output {at}",
                language="python",
                text=code,
                lines_to_nodes=lines_to_nodes(code, nodes_of),
            )
            for at, code in enumerate(codes)
        ]
        return ReferenceExecutable(call, sum(map(count_launches, codes)), listings)

    def cost(self, island: GraphModule) -> Cost | None:
        """None: Inductor is measured."""
        return None


_CALLS = ("extern_kernels.", "torch.ops.aten.", "aten.", "torch.ops.mkldnn.", "torch.ops.mkl.", "cpp_", "triton_")


def count_launches(code: str) -> int:
    """Kernels that Inductor's generated wrapper starts: its own, and library calls (``extern_kernels``, ``aten``)."""
    start = code.find("def call(")
    body = code[start:] if start >= 0 else code
    end = body.find("\ndef ")
    body = body[:end] if end > 0 else body
    count = 0
    for line in body.splitlines():
        text = line.strip()
        text = text.split(" = ", 1)[1] if " = " in text.split("(", 1)[0] else text
        head = text.split("(", 1)[0]
        if head.startswith(_CALLS) or (".run" in head and "triton" in head):
            count += 1
    return count


def _plain(island: GraphModule) -> Any:
    import copy

    return copy.copy(island)


def _clone(value: Any) -> Any:
    import torch

    if isinstance(value, torch._subclasses.FakeTensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return value.clone() if isinstance(value, torch.Tensor) else value


def eager() -> Eager:
    """The eager executor (entry point ``fxscope.targets``)."""
    return Eager()


def inductor() -> Inductor:
    """The Inductor executor (entry point ``fxscope.targets``)."""
    return Inductor()
