"""What to do about a recompile: one remedy per cause, in the user's names and values, and the change that tries it."""

from __future__ import annotations

from collections.abc import Callable

from fxscope.diagnosis import remedies_object, remedies_size, remedies_value
from fxscope.diagnosis.guards import changed_keys
from fxscope.diagnosis.owner import is_left_behind
from fxscope.diagnosis.remedies_size import Remedy, argument_of
from fxscope.diagnosis.story import Change, Frame


def remedy(id_: str, frame: Frame, change: Change) -> Remedy:
    """The remedy of one cause.

    Args:
        id_: The finding id of the cause.
        frame: The frame's whole story.
        change: One recompile with that cause.
    """
    return _REMEDIES.get(id_, _other)(frame, change)


def _grad_mode(frame: Frame, change: Change) -> Remedy:
    if change.guard.kind == "requires_grad" and "Guard failed on a parameter" in change.guard.guard:
        phases = len({each.name for each in frame.changes}) + 1
        return Remedy(
            fix=(
                f"{change.name} is a parameter that was frozen or unfrozen (requires_grad_) after compiling; every set of trained parameters has a backward of its own, so each is a graph. "
                "Do it before the first compiled call. Where training goes in phases, call torch._dynamo.reset() at the beginning of each, "
                "or raise torch._dynamo.config.recompile_limit above the number of phases."
            ),
            change=f"limit:{max(16, 2 * phases)}" if frame.limited else "",
        )
    if change.guard.kind == "dispatch_key":
        return Remedy(
            fix=(
                f"{change.name or 'An argument'} was made under torch.inference_mode in some calls and under no_grad (or with gradients) in others: such tensors are of two kinds, "
                "and each is a graph. Run the warm-up in the mode that counts, and make the inputs in the mode in which they are used."
            )
        )
    if change.guard.kind == "requires_grad" and is_left_behind(frame, change):
        return Remedy(
            fix=(
                f"{change.name} is state that a call leaves behind: with a history of gradients after a call that has them, without one before. That is one graph more and no "
                f"more than that. To have one only, call once without torch.compile first (the state then has its shape), and detach it before each call, which also "
                f"cuts the history between steps: {change.name} = {change.name}.detach()."
            )
        )
    if change.guard.kind == "requires_grad" and frame.inner:
        return Remedy(
            fix=f"{change.name} of {frame.name} requires gradients in some calls of other library code only: two graphs, and no more than that."
        )
    if change.guard.kind == "requires_grad":
        argument = argument_of(change.name or "x")
        return Remedy(
            fix=f"{change.name} requires gradients in some calls only: two graphs. Call {argument}.detach() or {argument}.requires_grad_() the same way every time, or accept both graphs."
        )
    also = (
        " Autocast is on in one of them and off in the other: put evaluation under the same torch.autocast as training, or it computes in float32."
        if any("autocast" in each.ids for each in frame.changes)
        else ""
    )
    if not frame.limited:
        return Remedy(
            fix=f"Nothing is to be done where this is training and evaluation: one graph with gradients and one without, each compiled once.{also}"
        )
    return Remedy(
        fix=f"One graph with gradients and one without are as it should be; they count against the limit together with the other causes, which are what to mend.{also}"
    )


def _autocast(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Use the same autocast state in all calls (wrap evaluation in the same torch.autocast block, or put the block inside of the compiled function), or accept one graph per state."
    )


def _global_state(frame: Frame, change: Change) -> Remedy:
    return Remedy(fix=f"Set {change.name or 'torch settings'} once before the first call, not between calls.")


def _function_mode(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Enter `with torch.device(...)`, torch.set_default_device or the TorchFunctionMode the same way around every call, or leave it out: pass device= to the factory functions instead."
    )


def _tensor_type(frame: Frame, change: Change) -> Remedy:
    name = change.name or "An argument"
    if "___check_metadata_" in change.guard.guard:
        return Remedy(
            fix=(
                "A tensor subclass (a quantised weight, a DTensor) came with other metadata than before (its scheme, block sizes, layout, mesh), which is a constant in the graph. "
                "Another model, or another scheme, is a graph of its own, as it should be; where the same model does this in every call, its metadata holds something that changes."
            )
        )
    if change.guard.kind == "dispatch_key" and any("FuncTorch" in key for key in changed_keys(change.guard)):
        return Remedy(
            fix=(
                f"{name} is wrapped by a functorch transform (torch.vmap, torch.func.grad) in some calls. Put the transform inside: torch.compile(torch.vmap(f)), "
                "and call the plain function elsewhere, or accept one graph each."
            )
        )
    if change.guard.kind == "number":
        return Remedy(
            fix=(
                f"{name} is the Python number {change.guard.expected} in the first call and a tensor in later ones: begin with a tensor, "
                f"{name} = torch.tensor({change.guard.expected}) (on the device of the others)."
            )
        )
    found = (change.guard.actual or "").strip("<>").replace("class ", "").strip("'")
    return Remedy(
        fix=f"{change.name or 'An argument'} is sometimes {found or 'another type'}: pass one type always (torch.as_tensor for numbers, p.detach() for a Parameter or subclass)."
    )


def _dtype_or_device(frame: Frame, change: Change) -> Remedy:
    name = change.name or "A tensor"
    if change.guard.actual is None:  # compared with a constant: the argument is a dtype or a device itself
        return Remedy(
            fix=(
                f"{name} is a dtype or device that takes the values {remedies_value.listed(frame.values.get(name, []))}, and is a constant in the graph: one graph per value, "
                "which is the least. Convert outside of the compiled function, or accept them."
            )
        )
    return Remedy(
        fix=f"{name} is {change.guard.expected} in one call and {change.guard.actual} in another; convert before the call ({argument_of(name)}.to(...)), or accept one graph per kind."
    )


def _layout(frame: Frame, change: Change) -> Remedy:
    name = change.name or "x"
    return Remedy(
        fix=f"{name} comes with other strides (dimension {change.dim}: {change.guard.expected} -> {change.guard.actual}): call with {argument_of(name)}.contiguous() (or always in the same memory_format)."
    )


def _tensor_rank(frame: Frame, change: Change) -> Remedy:
    if is_left_behind(frame, change):
        return Remedy(
            fix=(
                f"{change.name} is state that had another rank ({change.guard.expected} -> {change.guard.actual}) before the first call gave it its shape: one graph more and no more "
                "than that. Make it with its final shape, or call once without torch.compile first."
            )
        )
    return Remedy(
        fix=f"{change.name} has {change.guard.expected} dimensions in one call and {change.guard.actual} in another; ranks never become dynamic. Reshape before the call ({argument_of(change.name)}.flatten(0, -2), unsqueeze), or accept one graph per rank."
    )


def _train_eval(frame: Frame, change: Change) -> Remedy:
    return Remedy(fix="Nothing to fix: training and evaluation are one graph each.")


def _break_value(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Remove the graph break before it: keep the value a tensor (no .item(), int(), tolist()), then nothing crosses and nothing is guarded."
    )


def _compiled_autograd(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=(
            f"The backward that compiled autograd captured changes ({change.guard.guard[:120]}): keep the sizes of the forward fixed or mark them dynamic "
            "before the first step, and the set of hooks and parameters that need gradients the same in every step."
        )
    )


def _thread_config(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Set torch._dynamo.config in the thread that calls the compiled function; its values do not carry over from the main thread."
    )


def _other(frame: Frame, change: Change) -> Remedy:
    if change.guard.guard.startswith("Unexpected recompilation"):
        return Remedy(
            fix=(
                "Dynamo compiled although every guard it checked afterwards held: what failed changed in the meantime (another thread, a hook, a property that differs at "
                "each reading). Warm the function up before other threads use it."
            )
        )
    return Remedy(fix=f"The guard `{change.guard.guard[:160]}` failed: keep what it checks the same between calls.")


_REMEDIES: dict[str, Callable[[Frame, Change], Remedy]] = {
    "changing-attribute": remedies_value.changing_attribute,
    "changing-number": remedies_value.changing_number,
    "changing-global": remedies_value.changing_global,
    "container-size": remedies_object.container_size,
    "dynamic-size": remedies_size.dynamic_size,
    "dynamic-disabled": remedies_size.dynamic_disabled,
    "size-zero-one": remedies_size.size_zero_one,
    "shape-expression": remedies_size.shape_expression,
    "unrolled-loop": remedies_size.unrolled_loop,
    "grad-mode": _grad_mode,
    "autocast": _autocast,
    "global-state": _global_state,
    "function-mode": _function_mode,
    "tensor-type": _tensor_type,
    "dtype-or-device": _dtype_or_device,
    "layout": _layout,
    "tensor-rank": _tensor_rank,
    "none-or-tensor": remedies_object.none_or_tensor,
    "train-eval": _train_eval,
    "new-compile-each-call": remedies_object.new_compile,
    "shared-code": remedies_object.shared_code,
    "per-thread-config": _thread_config,
    "break-value": _break_value,
    "object-identity": remedies_object.object_identity,
    "tensor-aliasing": remedies_object.aliasing,
    "thread-race": remedies_object.thread_race,
    "compiled-autograd": _compiled_autograd,
}
