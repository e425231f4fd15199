"""An FX graph as plain records, made without torch."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fxscope.source import SourceLine

Op = Literal["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"]
Role = Literal["parameter", "buffer", "input", "tangent", "symbol", "saved", "constant"]


class TensorMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of one tensor.

    Attributes:
        dtype: Short name as torch prints it: f32, bf16, i64, b8.
        shape: Sizes; a symbolic size is its text, e.g. ``s0``.
        stride: Strides in elements, None where not printed.
        device: e.g. ``cuda:0``, None where not printed.
    """

    dtype: str
    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...] | None = None
    device: str | None = None


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """An argument that is another node's value."""

    node: str


class Symbolic(msgspec.Struct, frozen=True, tag="symbolic"):
    """An argument that is neither a node nor a plain Python literal: ``torch.float32``, ``device(type='cuda')``, ``inf``.

    Attributes:
        refs: Nodes that the text names, e.g. in ``s0 + 1`` where a node is called s0.
    """

    text: str
    refs: tuple[str, ...] = ()


# An argument: None, bool, int, float, str, Ref, Symbolic, or tuples, lists, dicts and slices of these.
Arg = Any


class Node(msgspec.Struct, kw_only=True):
    """One node.

    Attributes:
        target: What is called, as printed: ``torch.relu``, ``torch.ops.aten.relu.default``, a method or attribute name.
        meta: Shape and dtype; a tuple for several outputs; None where the log does not say.
        users: Names of the nodes that use this one, in order of use, each once.
        source: The user's line this node came from.
        module: Qualified path of the nn.Module it ran in, e.g. ``layers.0.mlp``, None where unknown.
        role: For placeholders and get_attr nodes.
        original: For a parameter or input: the name in the user's program (``L['self'].weight``), where known.
        subgraphs: Names of nested graphs a higher-order op calls.
        symbol: For a node whose value is a symbolic number: its expression, e.g. ``s0 + 1``.
        description: What AOTAutograd says of an input, e.g. ``PlainAOTInput(idx=0)``, "" where it says nothing.
    """

    name: str
    op: Op
    target: str
    args: tuple[Arg, ...] = ()
    kwargs: dict[str, Arg] = msgspec.field(default_factory=dict)
    users: list[str] = msgspec.field(default_factory=list)
    meta: TensorMeta | tuple[TensorMeta | None, ...] | None = None
    source: SourceLine | None = None
    module: str | None = None
    role: Role | None = None
    original: str | None = None
    subgraphs: list[str] = msgspec.field(default_factory=list)
    symbol: str | None = None
    description: str = ""
    index: int = 0  # position in the graph


class Graph(msgspec.Struct, kw_only=True):
    """A parsed graph: nodes in execution order. ``by_name`` finds one.

    Attributes:
        stage: Where in the stack it was printed (recording.records.STAGES), "" where unknown.
        subgraphs: Nested graphs of higher-order ops, by attribute name.
        problems: What could not be parsed, one line each; empty for a whole graph.
        text: The printed text, kept only where it could not be parsed whole.
    """

    name: str = ""
    stage: str = ""
    nodes: list[Node] = msgspec.field(default_factory=list)
    subgraphs: dict[str, Graph] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    text: str = ""

    def by_name(self) -> dict[str, Node]:
        """A new dict from node name to node."""
        return {node.name: node for node in self.nodes}
