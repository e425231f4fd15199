"""Do two graphs compute the same? The largest difference on probe inputs, and whether it is more than rounding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.graph.execute import restored
from fxscope.passes.buffers import unchanged_buffers
from fxscope.passes.module import clone

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

# Largest difference, relative to the largest magnitude of the output, that counts as rounding.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


class Difference(msgspec.Struct, kw_only=True):
    """Outputs of one graph against those of another.

    Attributes:
        max_abs: Largest absolute difference over all outputs.
        max_rel: Largest, over the outputs, of their largest difference divided by the output's largest magnitude.
        tolerance: What ``max_rel`` may be for the dtype of the worst output.
        within: Whether every output is within its tolerance, with the same shapes, dtypes and non-finite elements.
        text: What is wrong where it is not a number (shape, dtype, NaN), or how a fp64 reference judged.
    """

    max_abs: float
    max_rel: float
    tolerance: float
    within: bool
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run of a graph leaves behind.

    Attributes:
        outputs: What it returns, flat.
        inputs: Inputs that it wrote to, by position, as they are afterwards.
        buffers: Buffers that it wrote to, by name.
    """

    outputs: list[Any]
    inputs: dict[int, Any]
    buffers: dict[str, Any]

    def flat(self) -> list[Any]:
        """Outputs, then the inputs, then the buffers."""
        return [*self.outputs, *self.inputs.values(), *self.buffers.values()]


def run(gm: GraphModule, inputs: Sequence[Any], seed: int = 0) -> list[Any]:
    """Everything that a run leaves behind, flat (``outcome``)."""
    return outcome(gm, inputs, seed).flat()


def outcome(gm: GraphModule, inputs: Sequence[Any], seed: int = 0) -> Outcome:
    """Run a graph once.

    Inputs are cloned, buffers are put back, and random draws are fixed values (dropout keeps everything): two graphs that
    draw in another order, or through other ops, can still be compared.
    """
    import torch

    from fxscope.passes.draws import fixed_draws

    given = [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    with unchanged_buffers(gm) as buffers:
        with restored(seed), torch.no_grad(), fixed_draws(gm):
            results = list(torch.utils._pytree.tree_leaves(gm(*given)))
        return Outcome(
            outputs=[item.clone() if isinstance(item, torch.Tensor) else item for item in results],
            inputs={
                at: item for at, (item, before) in enumerate(zip(given, inputs, strict=True)) if changed(item, before)
            },
            buffers={name: item.clone() for name, item in buffers.tensors.items() if changed(item, buffers.kept[name])},
        )


def values_at(gm: GraphModule, inputs: Sequence[Any], names: Collection[str], seed: int = 0) -> dict[str, Any]:
    """What nodes of these names compute in a run like ``outcome``; those that the graph does not have are missing."""
    import torch

    from fxscope.passes.draws import fixed_draws

    found: dict[str, Any] = {}

    class Watch(torch.fx.Interpreter):
        def run_node(self, node: Node) -> Any:
            result = super().run_node(node)
            if node.name in names:
                found[node.name] = result.clone() if isinstance(result, torch.Tensor) else result
            return result

    given = [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    with unchanged_buffers(gm), restored(seed), torch.no_grad(), fixed_draws(gm):
        Watch(gm).run(*given)
    return found


def difference(
    got: Sequence[Any],
    want: Sequence[Any],
    names: Sequence[str] = (),
    tolerances: dict[str, float] | None = None,
) -> Difference:
    """Compare values one by one; integers and other values must be equal.

    Args:
        got: Of the graph in question.
        want: Of the other one.
        names: What each is called in a text; ``output 0`` and so on by default.
        tolerances: Over TOLERANCES.
    """
    import torch

    tolerances = {**TOLERANCES, **(tolerances or {})}
    if len(got) != len(want):
        return Difference(
            max_abs=float("inf"),
            max_rel=float("inf"),
            tolerance=0.0,
            within=False,
            text=f"{len(got)} outputs instead of {len(want)}",
        )
    each = []
    for at, (a, b) in enumerate(zip(got, want, strict=True)):
        name = names[at] if at < len(names) else f"output {at}"
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            each.append(_exact(a is b or bool(a == b), f"{name} is {a!r} instead of {b!r}"))
        elif a.shape != b.shape:
            each.append(_exact(False, f"{name} has shape {tuple(a.shape)} instead of {tuple(b.shape)}"))
        else:
            each.append(_tensors(name, a, b, tolerances))
    if not each:
        return Difference(max_abs=0.0, max_rel=0.0, tolerance=0.0, within=True)
    worst = max(each, key=lambda one: (not one.within, one.max_rel / (one.tolerance or 1.0)))
    return Difference(
        max_abs=max(one.max_abs for one in each),
        max_rel=max(one.max_rel for one in each),
        tolerance=worst.tolerance,
        within=worst.within,
        text=worst.text,
    )


def _tensors(name: str, a: Any, b: Any, tolerances: dict[str, float]) -> Difference:
    import torch

    dtype = str(b.dtype).removeprefix("torch.")
    if a.dtype != b.dtype and not (a.is_floating_point() and b.dtype == torch.float64):
        return _exact(False, f"{name} is {a.dtype} instead of {b.dtype}")
    if not b.is_floating_point() and not b.is_complex():
        return _exact(bool(torch.equal(a, b)), f"{name} ({dtype}) has {int((a != b).sum())} different elements")
    dtype = str(a.dtype).removeprefix("torch.")
    tolerance = tolerances.get(dtype, 1e-5)
    if not a.numel():
        return Difference(max_abs=0.0, max_rel=0.0, tolerance=tolerance, within=True)
    a, b = a.detach().to(torch.complex128 if a.is_complex() else torch.float64), b.detach()
    b = b.to(a.dtype)
    finite = torch.isfinite(b)
    strange = ~finite & ~((a == b) | (torch.isnan(a) & torch.isnan(b)))
    if bool(strange.any()) or bool((~torch.isfinite(a) & finite).any()):
        count = int(strange.sum() + (~torch.isfinite(a) & finite).sum())
        return _exact(False, f"{name} has {count} elements that are finite in one graph only")
    gap = torch.where(finite, (a - b).abs(), torch.zeros((), dtype=torch.float64))
    top = float(gap.max())
    scale = float(torch.where(finite, b.abs(), torch.zeros((), dtype=torch.float64)).max())
    relative = top / scale if scale else (0.0 if top == 0 else float("inf"))
    return Difference(max_abs=top, max_rel=relative, tolerance=tolerance, within=relative <= tolerance)


def _exact(same: bool, text: str) -> Difference:
    gap = 0.0 if same else float("inf")
    return Difference(max_abs=gap, max_rel=gap, tolerance=0.0, within=same, text="" if same else text)


def changed(now: Any, before: Any) -> bool:
    """Whether a tensor holds other values than before; of other values, never."""
    import torch

    if not isinstance(now, torch.Tensor):
        return False
    if now.shape != before.shape:
        return True
    return not torch.equal(now, before) and not bool(((now == before) | (torch.isnan(now) & torch.isnan(before))).all())


def in_double(gm: GraphModule, inputs: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """The same graph and inputs in fp64: parameters, buffers, constants and casts to narrower floating-point types.

    What a graph computes in fp64 is the fair judge between two orders of rounding.
    """
    import copy

    import torch

    narrow = (torch.float32, torch.float16, torch.bfloat16)

    def widen(item: Any) -> Any:
        if isinstance(item, torch.dtype):
            return torch.float64 if item in narrow else item
        return item

    made = clone(gm)
    for node in made.graph.nodes:
        node.args = torch.fx.node.map_aggregate(node.args, widen)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, widen)
        if node.op == "call_method" and node.target in ("float", "half", "bfloat16"):
            node.target = "double"
    made.recompile()
    wide = copy.deepcopy(made).double()
    given = [
        item.detach().double() if isinstance(item, torch.Tensor) and item.dtype in narrow else item for item in inputs
    ]
    return wide, given
