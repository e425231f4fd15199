"""Estimated floating-point operations and bytes of each node, from the shapes in the log; no torch, nothing is run.

Conventions: a multiply-add counts 2, any other scalar function 1 (a tanh too, so pointwise figures are lower bounds). Bytes are
what the operator reads and writes if nothing is fused or cached; views cost nothing. Matrix, convolution and attention formulas
are those of torch/utils/flop_counter.py. A node whose formula or shapes are unknown is counted as unknown, never as zero.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from fxscope.graph.records import Graph, Node
from fxscope.graph.shapes import Shapes, Unknown
from fxscope.graph.symbols import Number, metas, symbol_values

_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolution", "_convolution", "cudnn_convolution"}
_TRANSPOSED = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
# By bare name: views and what moves nothing; copies (no arithmetic); one operation per output element; one per input element;
# pools (the window per output element); and operators with their scalar operations per element of the first argument.
_CLASSES: dict[str, Any] = json.loads(resources.files(__package__).joinpath("cost_classes.json").read_text("utf-8"))
_FREE = {*_CLASSES["views"], *_CLASSES["free"]}
_PER_ELEMENT: dict[str, int] = _CLASSES["per_element"]


def classes() -> dict[str, str]:
    """Bare operator name to what it is: ``view``, ``copy``, ``pointwise``, ``reduction`` or ``matmul``; others are absent."""
    return _KINDS


class NodeCost(msgspec.Struct, frozen=True, kw_only=True):
    """Estimate for one node.

    Attributes:
        flops: Scalar operations, a multiply-add being 2; None where no formula or shape is known.
        read: Bytes of the tensors it reads; None where a size is unknown.
        written: Bytes it writes; None where its output's size is unknown.
    """

    flops: int | None
    read: int | None
    written: int | None

    @property
    def bytes(self) -> int | None:
        """Bytes read and written."""
        return None if self.read is None or self.written is None else self.read + self.written

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None where either is unknown, or nothing is moved."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


class GraphCost(msgspec.Struct, kw_only=True):
    """Sum over a graph.

    Attributes:
        nodes: Cost by node name.
        unknown: Targets whose operations are unknown, with the number of such nodes; they are in no sum.
        symbols: The values that symbolic sizes were given.
    """

    flops: int = 0
    bytes: int = 0
    nodes: dict[str, NodeCost] = msgspec.field(default_factory=dict)
    unknown: dict[str, int] = msgspec.field(default_factory=dict)
    symbols: dict[str, Any] = msgspec.field(default_factory=dict)


def graph_cost(graph: Graph, symbols: Mapping[str, int] | None = None) -> GraphCost:
    """Cost of every node, the sums, and what could not be estimated.

    Args:
        graph: The graph.
        symbols: Values of symbolic sizes; by default those of ``symbol_values``.
    """
    values = symbol_values(graph, symbols)
    by_name = graph.by_name()
    result = GraphCost(symbols=dict(values))
    unknown: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        cost = node_cost(node, by_name, values)
        result.nodes[node.name] = cost
        result.flops += cost.flops or 0
        result.bytes += cost.bytes or 0
        if cost.flops is None or cost.bytes is None:
            unknown[f".{node.target}" if node.op == "call_method" else node.target] += 1
    result.unknown = dict(unknown.most_common())
    return result


def node_cost(node: Node, by_name: Mapping[str, Node], values: Mapping[str, Number] | None = None) -> NodeCost:
    """Cost of one node.

    Args:
        node: The node.
        by_name: All nodes of its graph; their descriptions give the shapes of the arguments.
        values: Values of symbols.
    """
    short = short_name(node)
    shapes = Shapes(node, by_name, values or {})
    if short in _FREE:
        return NodeCost(flops=0, read=0, written=0)
    flops = read = written = None
    # What is unknown stays None, and graph_cost names it.
    with contextlib.suppress(Unknown, IndexError):
        flops = _flops(short, node, shapes)
    with contextlib.suppress(Unknown):
        written = shapes.output_bytes()
        # A lookup reads the rows it returns, not its whole table; what makes a tensor from numbers reads none.
        read = shapes.input_bytes() if short not in ("embedding", "gather", "index", "index_select") else written
    return NodeCost(flops=flops, read=read, written=written)


def short_name(node: Node) -> str:
    """The operator's bare name: ``add`` for ``torch.ops.aten.add.Tensor``, ``operator.add`` and ``.add``."""
    parts = node.target.split(".")
    return parts[3] if node.target.startswith("torch.ops.") and len(parts) > 3 else parts[-1]


def _flops(short: str, node: Node, shapes: Shapes) -> int:
    if node.symbol is not None:
        return 0
    for names, formula in _FORMULAS:
        if short in names:
            return formula(short, node, shapes)
    raise Unknown(short)


def _matmul(short: str, node: Node, shapes: Shapes) -> int:
    """2·M·N·K per product; the shared dimension is the last one of the left factor."""
    start = {"addmm": 1, "baddbmm": 1, "addmv": 1}.get(short, 0)
    left = shapes.arg(start, "mat1" if start else "input")
    return 2 * math.prod(shapes.output()) * left[-1]


def _convolution(short: str, node: Node, shapes: Shapes) -> int:
    """2 · output elements · (input channels per group · kernel): the weight without its first dimension."""
    weight = shapes.arg(1, "weight")
    transposed = short in _TRANSPOSED or (
        short in ("convolution", "_convolution") and len(node.args) > 6 and node.args[6] is True
    )
    spatial = math.prod(shapes.arg(0, "input")) if transposed else math.prod(shapes.output())
    return 2 * spatial * math.prod(weight[1:])


def _convolution_backward(short: str, node: Node, shapes: Shapes) -> int:
    """Each wanted gradient of input and weight costs what forward did; that of the bias a sum."""
    gradient, weight = shapes.arg(0), shapes.arg(2)
    wanted = node.args[10] if len(node.args) > 10 else [True, True, False]
    if not isinstance(wanted, (list, tuple)):
        raise Unknown("output mask")
    transposed = node.args[7] is True
    spatial = math.prod(shapes.arg(1)) if transposed else math.prod(gradient)
    forward = 2 * spatial * math.prod(weight[1:])
    return forward * sum(map(bool, wanted[:2])) + (math.prod(gradient) if wanted[2] else 0)


def _attention(short: str, node: Node, shapes: Shapes) -> int:
    """Two products (scores, values) of 2·B·H·S·T·D each; five in the backward, which computes the scores again."""
    offset = 1 if short.endswith("_backward") else 0
    query, key, value = (shapes.arg(offset + position) for position in range(3))
    pairs = math.prod(query[:-1]) * key[-2]
    if offset:
        return 2 * pairs * (3 * query[-1] + 2 * value[-1])
    return 2 * pairs * (query[-1] + value[-1])


def _einsum(short: str, node: Node, shapes: Shapes) -> int:
    """2 · the product of all different subscripts' sizes (what contracting in one step costs)."""
    equation = node.args[0]
    operands = node.args[1:]
    if not isinstance(equation, str) or "." in equation:
        raise Unknown("einsum equation")
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    sizes: dict[str, int] = {}
    for subscript, operand in zip(equation.split("->")[0].replace(" ", "").split(","), operands, strict=False):
        sizes.update(zip(subscript, shapes.of(operand), strict=False))
    return 2 * math.prod(sizes.values())


def _pointwise(short: str, node: Node, shapes: Shapes) -> int:
    each = {"addcmul": 3, "addcdiv": 3, "fma": 2, "lerp": 3}.get(short, 1)
    return each * shapes.output_or_first()


def _reduction(short: str, node: Node, shapes: Shapes) -> int:
    return shapes.largest()


def _per_element(short: str, node: Node, shapes: Shapes) -> int:
    return _PER_ELEMENT[short] * math.prod(shapes.arg(0, "input"))


def _pool(short: str, node: Node, shapes: Shapes) -> int:
    kernel = node.args[1] if len(node.args) > 1 else node.kwargs.get("kernel_size")
    window = kernel if isinstance(kernel, (list, tuple)) else (kernel, kernel) if "2d" in short else (kernel,)
    if not all(isinstance(size, int) for size in window):
        raise Unknown("kernel size")
    users = [shapes.by_name[name] for name in node.users if name in shapes.by_name]
    outputs = list(metas(node)) or [meta for user in users if user.target == "operator.getitem" for meta in metas(user)]
    if not outputs:
        raise Unknown("output shape is not printed")
    return math.prod(shapes.sizes(outputs[0])) * math.prod(window)


def _adaptive_pool(short: str, node: Node, shapes: Shapes) -> int:
    return math.prod(shapes.arg(0, "input"))


def _nothing(short: str, node: Node, shapes: Shapes) -> int:
    return 0


_PRODUCTS = (_matmul, _convolution, _convolution_backward, _attention, _einsum)
_FORMULAS: tuple[tuple[Any, Any], ...] = (
    (
        {
            *("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "mv", "addmv", "dot", "_int_mm"),
            *("imatmul", "__matmul__"),
        },
        _matmul,
    ),
    (_CONVOLUTIONS | _TRANSPOSED, _convolution),
    ({"convolution_backward"}, _convolution_backward),
    (
        {
            "scaled_dot_product_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "flex_attention",
        },
        _attention,
    ),
    ({"einsum"}, _einsum),
    (frozenset(_CLASSES["pointwise"]), _pointwise),
    (frozenset(_CLASSES["reductions"]), _reduction),
    (frozenset(_PER_ELEMENT), _per_element),
    (frozenset(_CLASSES["pools"]), _pool),
    ({"adaptive_avg_pool2d", "_adaptive_avg_pool2d", "max_pool2d_with_indices_backward"}, _adaptive_pool),
    (frozenset(_CLASSES["copies"]), _nothing),
)

_KINDS: dict[str, str] = {
    **dict.fromkeys(_CLASSES["views"], "view"),
    **dict.fromkeys(_CLASSES["copies"], "copy"),
    **dict.fromkeys(_CLASSES["pointwise"], "pointwise"),
    **dict.fromkeys([*_CLASSES["reductions"], *_CLASSES["pools"], *_PER_ELEMENT], "reduction"),
    **{name: "matmul" for names, formula in _FORMULAS if formula in _PRODUCTS for name in names},
}
