"""What a target is: a table of supported ops, a compiler for an island, a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

Kind = Literal["measured", "modelled", "interpreted"]


class Clause(msgspec.Struct, frozen=True):
    """One reason why a node is not supported.

    Attributes:
        code: Stable id: ``op``, ``dtype``, ``rank``, ``attribute``, ``layout``, ``dynamic-shape``, ``device``, ``mutation``,
            ``side-effect``, ``no-meta`` or one of the target's own, documented with its table.
        text: One sentence with the actual and the allowed value.
    """

    code: str
    text: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Source that an executable runs: generated Triton, Inductor's code, an NPU program.

    Attributes:
        language: Pygments lexer name: ``python``, ``ptx``, ``npu``...
        lines_to_nodes: Line number (1-based) to the names of the FX nodes it came from.
    """

    title: str
    language: str
    text: str
    lines_to_nodes: dict[int, tuple[str, ...]] = {}


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a target expects of an island, modelled.

    Attributes:
        seconds: Time of one run, boundary transfers included.
        bytes: Bytes moved to and from main memory.
        flops: Floating-point operations (a multiply-add is 2).
        assumptions: One line each; printed wherever the figure is.
    """

    seconds: float
    bytes: int
    flops: int
    assumptions: tuple[str, ...] = ()


@runtime_checkable
class Executable(Protocol):
    """A compiled island. Calling it takes the island's inputs in placeholder order and returns a tuple of outputs."""

    kind: Kind
    launches: int  # kernels or programs that one call starts

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once."""
        ...

    def listings(self) -> Sequence[Listing]:
        """Sources to show beside the FX nodes."""
        ...

    def modelled_seconds(self) -> float | None:
        """Modelled time of one call; None for a measured kind."""
        ...


@runtime_checkable
class Target(Protocol):
    """A machine that islands can be compiled for. Entry-point group ``fxscope.targets``: a Target or a function that makes one.

    Nodes and islands are ``torch.fx``: functional ATen ops (``torch.ops.aten.*.overload``) with ``meta["val"]`` fake tensors.
    """

    name: str
    kind: Kind

    def unavailable(self) -> str | None:
        """None where islands can run here; else what is missing and the command that mends it."""
        ...

    def supports(self, node: Any) -> tuple[Clause, ...]:
        """Every failing clause of one ``torch.fx.Node``; empty where it is supported."""
        ...

    def compile(self, island: Any, example_inputs: Sequence[Any]) -> Executable:
        """Compile one island (a ``torch.fx.GraphModule``; inputs are tensors or numbers).

        Raises:
            fxscope.errors.MissingError: Something this needs is absent.
            fxscope.errors.UsageError: The island holds a node that ``supports`` refuses, named.
        """
        ...

    def cost(self, island: Any) -> Cost | None:
        """Modelled cost of one island, None where the target has no model. Used to keep islands by benefit."""
        ...
