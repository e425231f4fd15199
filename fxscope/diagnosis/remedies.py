"""What to do about a recompile: one remedy per cause, in the user's names and values, and the change that tries it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from fxscope.diagnosis import remedies_size
from fxscope.diagnosis.frames import Change, Frame
from fxscope.diagnosis.owner import grown_at, is_plain_object
from fxscope.diagnosis.remedies_size import Remedy
from fxscope.diagnosis.statement import source_text


def listed(values: list[str], most: int = 4) -> str:
    """``0, 1, 2, ... (8 values)``."""
    if len(values) <= most:
        return ", ".join(values)
    return f"{', '.join(values[:most])}, ... ({len(values)} values)"


def remedy(id_: str, frame: Frame, change: Change) -> Remedy:
    """The remedy of one cause.

    Args:
        id_: The finding id of the cause.
        frame: The frame's whole story.
        change: One recompile with that cause.
    """
    return _REMEDIES.get(id_, _other)(frame, change)


def _literal(text: str | None) -> object:
    try:
        return ast.literal_eval(text or "")
    except (ValueError, SyntaxError):
        return text


def _short(value: object) -> str:
    """A number as somebody would write it: 0.09000000000000001 -> 0.09."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _first_setting(frame: Frame, key: str) -> str:
    """What the program's text gives an optimizer's setting at first, "" where that is not one number."""
    text = source_text(frame.place[0])
    found = set(re.findall(rf"\b{re.escape(key)}\s*=\s*([0-9][0-9.eE+-]*)\b", text))
    return found.pop() if len(found) == 1 else ""


def _changing_attribute(frame: Frame, change: Change) -> Remedy:
    name = change.name
    value = _literal(change.guard.expected)
    values = frame.values.get(name, [])
    owner, _, attribute = name.rpartition(".")
    if isinstance(value, bool) or value is None:
        return Remedy(
            fix=f"{name} is a flag: two values are two graphs, which is the least. Set it once, or make two modules if it flips in a loop."
        )
    if isinstance(value, (int, float)):
        if owner == "self" and is_plain_object(frame):
            return Remedy(
                fix=(
                    f"Keep {name} as a tensor: before:\n    {name} = {value}\nafter:\n    {name} = torch.tensor({value})\n"
                    "then its value is data, not a constant. As a plain number on an object that is no nn.Module it costs one recompile, after which it is dynamic."
                )
            )
        if owner == "self" or owner.startswith("self."):
            make = f"{owner}.register_buffer({attribute!r}, torch.tensor({value}))"
            return Remedy(
                fix=(
                    f"before:\n    {name} = {value}\nafter (in __init__):\n    {make}\n"
                    f"then {name} is data and `{name} += 1` is part of the graph; what Python decides by it (if, min(), range) must become torch operations "
                    "(torch.where, torch.clamp). Or change it outside of forward. Without an edit: "
                    "torch._dynamo.config.allow_unspec_int_on_nn_module = True (ints become dynamic after one recompile)."
                ),
                change="config:allow_unspec_int_on_nn_module=True",
            )
        return Remedy(
            fix=f"Pass {name} as an argument, as a tensor: torch.tensor({name}). A plain int or float argument becomes dynamic after one recompile; an attribute of a module does not."
        )
    return Remedy(
        fix=(
            f"{name} takes the values {listed(values)}; strings and other objects never become dynamic, so each is a graph. "
            f"Do the choice outside of the compiled function: copy what {name} selects into one fixed set of tensors (hot swap), or compile one "
            f"function per value. If the values are few and fixed, raise torch._dynamo.config.recompile_limit above their number."
        ),
        change=f"limit:{max(16, 2 * len(values))}",
    )


def _changing_number(frame: Frame, change: Change) -> Remedy:
    name = change.name or "the value"
    value = _literal(change.guard.expected)
    if ".param_groups" in (change.guard.source or ""):
        key = name.rpartition("['")[2].rstrip("']") or "lr"
        return Remedy(
            fix=f"Give the optimizer a tensor: {key}=torch.tensor({_first_setting(frame, key) or _short(value)}); a scheduler then changes its value, not the guard."
        )
    if isinstance(value, bool):
        return Remedy(
            fix=f"{name} is a flag: two values are two graphs, which is the least. If it changes every call, use torch.where on a tensor flag."
        )
    if isinstance(value, (int, float)):
        return Remedy(
            fix=(
                f"Pass {name} as a tensor from the first call: {name} = torch.tensor({change.guard.expected}). "
                "As a plain number it costs one recompile, after which it is dynamic."
            )
        )
    values = frame.values.get(name, [])
    return Remedy(
        fix=(
            f"{name} takes the values {listed(values)}; strings and other constants never become dynamic, so each is a graph. Decide by {name} outside of the compiled "
            f"function (compile one function per value), or, if the values are few and fixed, raise torch._dynamo.config.recompile_limit above their number."
        ),
        change=f"limit:{max(16, 2 * len(values))}" if frame.limited else "",
    )


def _changing_global(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=f"Pass {change.name} to the function as an argument (a tensor: torch.tensor({change.name}), or a plain number, which becomes dynamic after one recompile); module-level variables are constants in a graph."
    )


def _container_size(frame: Frame, change: Change) -> Remedy:
    name = change.name
    if name.startswith("self.state[") and re.search(r"[\\/]torch[\\/]optim[\\/]", frame.file):
        return Remedy(fix="The optimizer makes its state in the first step, which is one recompile and no more.")
    if not name or "kw" in name:
        return Remedy(
            fix=f"Always pass the same keywords (give the absent one a neutral value), so that {name or 'the keyword dict'} keeps its keys."
        )
    if name in frame.strings:
        return Remedy(
            fix=(
                f"{name} holds strings, and every set of them ({listed(frame.values.get(name, []))} items) is a graph: strings are constants. Turn them into numbers outside of the "
                f"compiled function (a tensor of ids or lengths), or loop over {name} outside and compile what is done for one."
            )
        )
    grown = grown_at(frame, change)
    if grown is not None:
        return Remedy(
            fix=(
                f"The compiled code itself changes {name} ({grown.site}: {grown.code}), so the next call meets another length and recompiles. Return the value and do "
                f"this after the call, outside of the compiled function; or write into a tensor of fixed size made once (buffer[step] = value); "
                "or fill the container before the first compiled call, where its length then stays."
            )
        )
    return Remedy(
        fix=(
            f"Every length of {name} ({listed(frame.values.get(name, []))}) unrolls another graph. Pass one tensor instead of the container: "
            f"torch.stack(list({name}.values())) for a dict or torch.stack({name}) for a list; its first size then becomes dynamic. Or pad to a fixed length."
        )
    )


def _grad_mode(frame: Frame, change: Change) -> Remedy:
    if change.guard.kind == "requires_grad":
        return Remedy(
            fix=f"{change.name} requires gradients in some calls only: two graphs. Call x.detach() or requires_grad_() the same way every time, or accept both graphs."
        )
    return Remedy(
        fix="The function runs with gradients and without (torch.no_grad, inference_mode, eval loop): one graph each, as it should be. Run the warm-up in the mode that counts, or use the same mode everywhere."
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
    found = (change.guard.actual or "").strip("<>").replace("class ", "").strip("'")
    return Remedy(
        fix=f"{change.name or 'An argument'} is sometimes {found or 'another type'}: pass one type always (torch.as_tensor for numbers, p.detach() for a Parameter or subclass)."
    )


def _dtype_or_device(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=f"{change.name or 'A tensor'} is {change.guard.expected} in one call and {change.guard.actual} in another; convert before the call ({change.name or 'x'}.to(...)), or accept one graph per kind."
    )


def _layout(frame: Frame, change: Change) -> Remedy:
    name = change.name or "x"
    return Remedy(
        fix=f"{name} comes with other strides (dimension {change.dim}: {change.guard.expected} -> {change.guard.actual}): call with {name}.contiguous() (or always in the same memory_format)."
    )


def _tensor_rank(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=f"{change.name} has {change.guard.expected} dimensions in one call and {change.guard.actual} in another; ranks never become dynamic. Reshape before the call ({change.name}.flatten(0, -2), unsqueeze), or accept one graph per rank."
    )


def _none_or_tensor(frame: Frame, change: Change) -> Remedy:
    name = change.name or "the argument"
    return Remedy(
        fix=f"{name} is None in some calls: pass a neutral tensor instead (a mask of ones, zeros to add), or accept two graphs."
    )


def _train_eval(frame: Frame, change: Change) -> Remedy:
    return Remedy(fix="Nothing to fix: training and evaluation are one graph each.")


def _new_compile(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=(
            f"before (in the loop):\n    torch.compile({frame.name}, backend=...)(x)\nafter:\n    compiled = torch.compile({frame.name}, backend=...)  # once, outside\n    compiled(x)\n"
            "and hand the same backend object to every torch.compile of this function."
        )
    )


def _shared_code(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=(
            f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}:{frame.line}) is one code object for several objects, and they share one limit. Compile what contains them "
            "(the whole model, or the loop over the layers) once instead of each apart; or raise torch._dynamo.config.recompile_limit above their number."
        ),
        change="limit:64",
    )


def _break_value(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Remove the graph break before it: keep the value a tensor (no .item(), int(), tolist()), then nothing crosses and nothing is guarded."
    )


def _object_identity(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=f"{change.name or 'An argument'} is another object in each call: make it once, outside of the loop, and pass the same one (functions, lambdas, partials, classes and generators are guarded by identity)."
    )


def _compiled_autograd(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix=(
            f"The backward that compiled autograd captured changes ({change.guard.guard[:120]}): keep the sizes of the forward fixed or mark them dynamic "
            "before the first step, and the set of hooks and parameters that need gradients the same in every step."
        )
    )


def _aliasing(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Two arguments are the same tensor in some calls only; pass a clone, or call always in the same way."
    )


def _thread_config(frame: Frame, change: Change) -> Remedy:
    return Remedy(
        fix="Set torch._dynamo.config in the thread that calls the compiled function; its values do not carry over from the main thread."
    )


def _other(frame: Frame, change: Change) -> Remedy:
    return Remedy(fix=f"The guard `{change.guard.guard[:160]}` failed: keep what it checks the same between calls.")


_REMEDIES: dict[str, Callable[[Frame, Change], Remedy]] = {
    "changing-attribute": _changing_attribute,
    "changing-number": _changing_number,
    "changing-global": _changing_global,
    "container-size": _container_size,
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
    "none-or-tensor": _none_or_tensor,
    "train-eval": _train_eval,
    "new-compile-each-call": _new_compile,
    "shared-code": _shared_code,
    "per-thread-config": _thread_config,
    "break-value": _break_value,
    "object-identity": _object_identity,
    "tensor-aliasing": _aliasing,
    "compiled-autograd": _compiled_autograd,
}
