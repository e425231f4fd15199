"""Is an executor right? Its outputs, and what it writes into inputs and buffers, against the graph run eagerly in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxscope.errors import first_line
from fxscope.passes import numeric
from fxscope.passes.buffers import Buffers, unchanged_buffers
from fxscope.passes.numeric import Difference, Outcome

if TYPE_CHECKING:
    from torch.fx import GraphModule


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What executors are compared with.

    Attributes:
        outcome: Outputs, and the inputs and buffers written to.
        text: Where it comes from: ``eager in float64``, or eager in the graph's own dtypes and why.
        tolerances: By dtype, over ``numeric.TOLERANCES``. Where eager itself is off by more than usual (a deep network in fp32),
            others may be off by four times as much.
    """

    outcome: Outcome
    text: str
    tolerances: dict[str, float]


def reference(gm: GraphModule, inputs: Sequence[Any]) -> Reference:
    """Results in fp64, or in the graph's own dtypes where it has no fp64 form."""
    own = numeric.outcome(gm, inputs)
    try:
        exact = numeric.outcome(*numeric.in_double(gm, inputs))
    except Exception as error:  # noqa: BLE001 - the reference says what stood in the way
        return Reference(
            outcome=own, text=f"eager in its own dtypes (no float64 form: {first_line(error)})", tolerances={}
        )
    found = numeric.difference(own.flat(), exact.flat())
    if found.text or found.max_rel > 0.1:
        why = "its float64 form gives other values: dtypes decide what it computes"
        return Reference(outcome=own, text=f"eager in its own dtypes ({why})", tolerances={})
    tolerances = {dtype: max(usual, 4 * found.max_rel) for dtype, usual in numeric.TOLERANCES.items()}
    return Reference(outcome=exact, text="eager in float64", tolerances=tolerances)


def check(call: Callable[..., Any], gm: GraphModule, inputs: Sequence[Any], expected: Reference) -> Difference:
    """Run a callable twice in the graph's place and compare; buffers are as before afterwards.

    Compared are the outputs, every input that the reference or the callable wrote to, and every buffer likewise.
    """
    with unchanged_buffers(gm, expected.outcome.buffers) as buffers:
        got, given = run_poisoned(call, inputs, buffers)
        return numeric.difference(*_side_by_side(got, given, buffers, inputs, expected), expected.tolerances)


def _side_by_side(
    got: list[Any], given: list[Any], buffers: Buffers, inputs: Sequence[Any], expected: Reference
) -> tuple[list[Any], list[Any], list[str]]:
    """Values of the callable, of the reference, and what each is called."""
    want = expected.outcome
    ours, theirs = list(got), list(want.outputs)
    if len(ours) != len(theirs):
        return ours, theirs, []
    names = [f"output {at}" for at in range(len(ours))]
    for at, (before, after) in enumerate(zip(inputs, given, strict=True)):
        if at in want.inputs or numeric.changed(after, before):
            ours.append(after)
            theirs.append(want.inputs.get(at, before))
            names.append(f"input {at}, which is written in place,")
    for name, before in buffers.kept.items():
        now = buffers.tensors[name]
        if name in want.buffers or numeric.changed(now, before):
            ours.append(now)
            theirs.append(want.buffers.get(name, before))
            names.append(f"buffer {name}")
    return ours, theirs, names


def run_poisoned(
    call: Callable[..., Any], inputs: Sequence[Any], buffers: Buffers | None = None
) -> tuple[list[Any], list[Any]]:
    """The results of a second run, and its inputs after it, when the memory of the first one's results was filled with NaN.

    A kernel that leaves part of its output unwritten would else show the right values of the run before.
    """
    import torch

    for attempt in (0, 1):
        given = [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in inputs]
        held = {item.untyped_storage().data_ptr() for item in given if isinstance(item, torch.Tensor)}
        held |= {item.untyped_storage().data_ptr() for item in (buffers.tensors if buffers else {}).values()}
        if buffers is not None:
            buffers.restore()
        with torch.no_grad():
            results = list(torch.utils._pytree.tree_leaves(call(*given)))
        if attempt:
            return results, given
        with torch.no_grad():
            for item in results:
                if isinstance(item, torch.Tensor) and item.is_floating_point() and _ours(item, held):
                    item.fill_(float("nan"))
        del results, given
    raise AssertionError


def _ours(item: Any, held: set[int]) -> bool:
    """Whether a result owns its memory: neither an input's nor spread over itself."""
    if item.untyped_storage().data_ptr() in held or item.requires_grad:
        return False
    return not any(stride == 0 and size > 1 for size, stride in zip(item.shape, item.stride(), strict=True))
