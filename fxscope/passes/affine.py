"""Chains of per-channel arithmetic after a convolution: a batch norm that was taken apart, or plain scaling."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from fxscope.passes.application import Context
from fxscope.passes.convolution import Convolution, Refusal, read_convolution
from fxscope.passes.module import Emitter, value
from fxscope.passes.order import erase_dead
from fxscope.passes.scaling import cast, compute_dtype, fold

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


@dataclass
class Link:
    """One op of a chain.

    Attributes:
        kind: ``add``, ``sub``, ``mul``, ``div`` or ``cast``.
        other: The operand that is not the chain: a per-channel node or a number.
        alpha: Factor of ``other`` in add and sub.
    """

    node: Node
    kind: str
    other: Any = None
    alpha: Any = 1


@dataclass
class Chain:
    """What follows a convolution, one user at a time.

    Attributes:
        links: As far as every link commutes with the convolution and the dtype comes back to the convolution's.
        stop: Why the chain ends there, where something of its shape goes on.
    """

    conv: Convolution
    links: list[Link] = field(default_factory=list)
    stop: Refusal | None = None


def fold_affine(gm: GraphModule, context: Context) -> GraphModule:
    """Fold multiplications and additions of per-channel constants into the convolution before them.

    ``conv(x) * a + b`` is a convolution with W' = W * a and b' = bias * a + b, if a and b are numbers or tensors with one
    value per output channel that come from parameters. ``alpha`` is honoured; ``const - conv`` and ``const / conv`` are left
    alone. Needs ATen ops.
    """
    for node in list(gm.graph.nodes):
        conv = read_convolution(node)
        if not isinstance(conv, Convolution):
            continue
        chain = read_chain(conv)
        if not chain.links:
            if chain.stop is not None:
                context.skip([node], chain.stop.reason, chain.stop.text)
            continue
        _apply(chain, context, f"{len(chain.links)} operations")
    if context.applied:
        erase_dead(gm.graph)
        gm.recompile()
    return gm


def fold_decomposed_norms(gm: GraphModule, context: Context, *, duplicate: bool = False) -> None:
    """The part of ``conv-bn-fold`` for graphs in which no batch norm node is left.

    Args:
        gm: The graph, changed in place.
        context: As for a pass.
        duplicate: Compute a convolution twice whose output is used elsewhere too.
    """
    import torch

    aten = torch.ops.aten
    if not any(node.target in (aten.sub.Tensor, aten.var_mean.correction) for node in gm.graph.nodes):
        return
    todo = list(reversed(gm.graph.nodes))
    while todo:
        node = todo.pop()
        conv = read_convolution(node)
        if conv is None:
            continue
        statistics = [user for user in node.users if user.target is aten.var_mean.correction]
        if statistics:
            context.skip([node, statistics[0]], "training", "normalised with the statistics of the batch (var_mean)")
            continue
        first = [user for user in node.users if _is_norm_start(user)]
        if isinstance(conv, Refusal):
            if first:
                context.skip([node, first[0]], conv.reason, conv.text)
            continue
        if first and len(node.users) > 1 and not duplicate:
            others = [user.name for user in node.users if user is not first[0]]
            context.skip([node, first[0]], "users", f"{node.name} is also used by {', '.join(others)}")
            continue
        chain = read_chain(conv, first[0] if first else None)
        length = _norm_length(chain.links)
        if length:
            chain.links = chain.links[:length]
            folded = _apply(chain, context, "batch norm taken apart")
            todo += [folded] if folded is not None else []  # another batch norm may follow
        elif first:
            reason = chain.stop or Refusal("dtype")
            context.skip([node, first[0]], reason.reason, reason.text)


def _apply(chain: Chain, context: Context, what: str) -> Node | None:
    """Fold a chain; the new convolution, or None where it stays."""
    conv = chain.conv
    out, after = value(conv.node).dtype, value(chain.links[-1].node).dtype
    if out != after:
        context.skip([conv.node, *(link.node for link in chain.links)], "dtype", f"{out} in, {after} out")
        return None
    operands = [value(link.other) for link in chain.links if hasattr(link.other, "op")]
    dtype = compute_dtype(conv.weight_value, *operands)
    text = f"{conv.kind}: {what}, weight axis {conv.axis}, groups {conv.groups}, computed in {str(dtype)[6:]}"
    if not context.apply([conv.node, *(link.node for link in chain.links)], text):
        return None
    last = chain.links[-1].node
    emit = Emitter(last)
    scale, shift = _totals(emit, chain, dtype)
    folded = fold(emit, conv, scale, shift, dtype)
    folded.meta["val"] = value(last)
    last.replace_all_uses_with(folded)
    context.compare(last.name, folded.name)
    for link in reversed(chain.links):
        last.graph.erase_node(link.node)
    if not conv.node.users:
        last.graph.erase_node(conv.node)
    return folded


def _totals(emit: Emitter, chain: Chain, dtype: Any) -> tuple[Node | None, Node | None]:
    """The chain as one factor and one summand, each ``(channels,)``."""
    import torch

    aten = torch.ops.aten
    scale: Node | None = None
    shift: Node | None = None
    for link in chain.links:
        if link.kind == "cast":
            continue
        other = _vector(emit, link.other, chain.conv.channels, dtype)
        if link.kind in ("mul", "div"):
            op = aten.mul.Tensor if link.kind == "mul" else aten.div.Tensor
            if scale is None:
                scale = other if link.kind == "mul" else emit.call(aten.reciprocal.default, other)
            else:
                scale = emit.call(op, scale, other)
            shift = None if shift is None else emit.call(op, shift, other)
            continue
        if link.alpha != 1:
            other = emit.call(aten.mul.Tensor, other, link.alpha)
        if link.kind == "sub":
            shift = emit.call(aten.neg.default, other) if shift is None else emit.call(aten.sub.Tensor, shift, other)
        else:
            shift = other if shift is None else emit.call(aten.add.Tensor, shift, other)
    return scale, shift


def _vector(emit: Emitter, other: Any, channels: int, dtype: Any) -> Node:
    import torch

    aten = torch.ops.aten
    if not hasattr(other, "op"):
        device = value(emit.before).device
        return emit.call(aten.full.default, [channels], other, dtype=dtype, device=device, pin_memory=False)
    flat = emit.call(aten.reshape.default, other, [-1]) if value(other).dim() != 1 else other
    flat = cast(emit, flat, dtype)
    return flat if value(other).numel() == channels else emit.call(aten.expand.default, flat, [channels])


def read_chain(conv: Convolution, start: Node | None = None) -> Chain:
    """Follow a convolution's single users, the first of which may be given, as long as each is per-channel arithmetic with a constant."""
    chain = Chain(conv)
    links: list[Link] = []
    node = conv.node
    out = value(node)
    if out is None:
        chain.stop = Refusal("no-meta")
        return chain
    if out.dim() != (2 if conv.kind == "linear" else conv.weight_value.dim()):
        chain.stop = Refusal("unbatched" if conv.kind != "linear" else "linear-rank")
        return chain
    while len(node.users) == 1 or (start is not None and node is conv.node):
        user = start if start is not None and node is conv.node else next(iter(node.users))
        link = _link(user, node, conv.channels)
        if not isinstance(link, Link):
            chain.stop = link
            break
        links.append(link)
        node = user
        known = value(node)
        if known is not None and known.dtype == out.dtype:
            chain.links = list(links)
    return chain


def _link(user: Node, node: Node, channels: int) -> Link | Refusal | None:
    import torch

    kind = _kinds().get(user.target)
    if kind is None:
        return None
    if kind == "cast":
        extra = {key for key, item in user.kwargs.items() if item is not None} - {"dtype"}
        floating = value(user) is not None and value(user).is_floating_point()
        return Link(user, "cast") if floating and not extra else Refusal("dtype", f"{user.name} is no plain cast")
    left, right = user.args[0], user.args[1]
    other = right if left is node else left
    if left is node and right is node:
        return Refusal("not-constant", f"{user.name} combines {node.name} with itself")
    alpha = user.kwargs.get("alpha", 1)
    if user.kwargs.keys() - {"alpha"}:
        return Refusal("alpha", f"{user.name} has {', '.join(sorted(user.kwargs))}")
    if right is node and kind in ("sub", "div"):
        return Refusal("alpha", f"{user.name} has the convolution as its second operand")
    if right is node and alpha != 1:
        return Refusal("alpha", f"{user.name} scales the convolution by alpha={alpha}")
    if not hasattr(other, "op"):
        plain = isinstance(other, int | float) and not isinstance(other, bool)
        return Link(user, kind, other, alpha) if plain else Refusal("not-constant", f"{user.name} takes {other!r}")
    known = value(other)
    if not isinstance(known, torch.Tensor) or not known.is_floating_point():
        return Refusal("not-constant", f"{other.name} is no floating-point tensor")
    if not _per_channel(known.shape, value(node).dim(), channels):
        return Refusal("not-constant", f"{other.name} of shape {tuple(known.shape)} is not one value per channel")
    if not _from_parameters(other):
        return Refusal("not-constant", f"{other.name} depends on an input")
    return Link(user, kind, other, alpha)


def _per_channel(shape: Any, rank: int, channels: int) -> bool:
    """Whether a shape broadcasts along axis 1 only."""
    if len(shape) > rank:
        return False
    full = [1] * (rank - len(shape)) + list(shape)
    return full[1] in (1, channels) and all(size == 1 for axis, size in enumerate(full) if axis != 1)


def _from_parameters(node: Node) -> bool:
    """Whether a value comes from attributes, constants and parameter inputs only.

    An input of at most one dimension whose role nobody knows counts as a parameter: what is folded stays an expression over it.
    """
    todo, seen = [node], set()
    while todo:
        item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        if item.op == "placeholder":
            known = value(item)
            role = getattr(item.meta.get("fxscope"), "role", None)
            named = "_parameters_" in item.name or "_buffers_" in item.name
            if role not in ("parameter", "buffer") and not named and (known is None or known.dim() > 1):
                return False
        todo += item.all_input_nodes
    return True


def _is_norm_start(node: Node) -> bool:
    """Whether a node begins a batch norm that was taken apart: minus mean, then times an inverse root."""
    user = node
    while _kinds().get(user.target) == "cast" and len(user.users) == 1:
        user = next(iter(user.users))
    return _kinds().get(user.target) == "sub" and any(
        _kinds().get(after.target) == "mul" and any(_is_inverse_root(item) for item in after.all_input_nodes)
        for after in user.users
    )


def _norm_length(links: list[Link]) -> int:
    """How many of the links are a batch norm: casts, sub, mul by an inverse root, then mul and add where affine."""
    wanted = ["sub", "mul", "mul", "add"]
    done, end = 0, 0
    for at, link in enumerate(links):
        if link.kind == "cast":
            if done >= 2:
                end = at + 1  # the cast back to the convolution's dtype belongs to it
                break
            continue
        if done == len(wanted) or link.kind != wanted[done] or (done == 1 and not _is_inverse_root(link.other)):
            break
        done += 1
        end = at + 1
    return end if done >= 2 else 0


def _is_inverse_root(node: Any) -> bool:
    """Whether a value is reshaped ``rsqrt(...)`` or ``1 / sqrt(...)``."""
    import torch

    aten = torch.ops.aten
    while hasattr(node, "op") and node.op == "call_function" and node.args:
        if node.target is aten.rsqrt.default:
            return True
        if node.target is aten.reciprocal.default:
            return getattr(node.args[0], "target", None) is aten.sqrt.default
        if (
            (_kinds().get(node.target) == "mul" and node.args[1] == 1)
            or node.target in (aten.unsqueeze.default, aten.view.default, aten.reshape.default)
            or (_kinds().get(node.target) == "cast")
        ):
            node = node.args[0]
        else:
            return False
    return False


@cache
def _kinds() -> dict[Any, str]:
    import torch

    aten, prims = torch.ops.aten, torch.ops.prims
    found = {aten._to_copy.default: "cast", prims.convert_element_type.default: "cast"}
    for kind in ("add", "sub", "mul", "div"):
        packet = getattr(aten, kind)
        found[packet.Tensor] = kind
        if hasattr(packet, "Scalar"):
            found[packet.Scalar] = kind
    return found
