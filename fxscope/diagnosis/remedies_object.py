"""Remedies for recompiles by an object: containers, modules that share code, things made anew for each call."""

from __future__ import annotations

import re
from typing import Literal

from fxscope.diagnosis.ahead import function_named
from fxscope.diagnosis.classes import kind_of
from fxscope.diagnosis.owner import grown_at, set_at
from fxscope.diagnosis.remedies_size import Remedy
from fxscope.diagnosis.remedies_value import listed
from fxscope.diagnosis.statement import source_tree
from fxscope.diagnosis.story import Change, Frame
from fxscope.source import short_path


def container_size(frame: Frame, change: Change) -> Remedy:
    """Length or keys of a container."""
    name = change.name
    if name.startswith("self.state[") and re.search(r"[\\/]torch[\\/]optim[\\/]", frame.file):
        return Remedy(fix="The optimizer makes its state in the first step, which is one recompile and no more.")
    kind = _variadic(frame, name)
    if frame.inner and kind == "keywords":
        return Remedy(
            fix=(
                f"{frame.name} in {short_path(frame.file)} is called by other library code with two sets of keywords (in generate: prefill and decode). "
                "A graph for each is as it should be."
            )
        )
    if kind == "keywords":
        return Remedy(
            fix=f"Always pass the same keywords (give the absent one a neutral value), so that {name or 'the keyword dict'} keeps its keys."
        )
    if kind == "positions" and not frame.inner:
        return Remedy(
            fix=(
                f"The number of arguments in *{name} ({listed(frame.values.get(name, []))}) changes, and every number of them is a graph. "
                "Always pass the same number, or one tensor instead of them (torch.stack), whose first size then becomes dynamic."
            )
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
    if re.search(r"\bG\[", change.guard.source or ""):
        return Remedy(
            fix=(
                f"{name} is a container of the module, its length ({listed(frame.values.get(name, []))}) is a constant in the graph, and the program changes it between calls. "
                f"Fill {name} before the first compiled call, or compute what the function needs of it outside and pass that as an argument."
            )
        )
    return Remedy(
        fix=(
            f"Every length of {name} ({listed(frame.values.get(name, []))}) unrolls another graph. Pass one tensor instead of the container: "
            f"torch.stack(list({name}.values())) for a dict or torch.stack({name}) for a list; its first size then becomes dynamic. Or pad to a fixed length."
        )
    )


def _variadic(frame: Frame, name: str) -> Literal["keywords", "positions", ""]:
    """What a container of arguments is: that of a ``**`` or a ``*`` parameter, by the function's text, else by the habits of names."""
    if not name:
        return "keywords"
    function = function_named(source_tree(frame.file), frame.name.rpartition(".")[2], frame.line)
    if function is not None:
        kwarg, vararg = function.args.kwarg, function.args.vararg
        if kwarg is not None and kwarg.arg == name:
            return "keywords"
        return "positions" if vararg is not None and vararg.arg == name else ""
    return "keywords" if re.fullmatch(r"\w*(kwargs|kwds|kw)", name) else ""


def none_or_tensor(frame: Frame, change: Change) -> Remedy:
    """None in some calls."""
    name = change.name or "the argument"
    made = set_at(frame, change) if "." in name else None
    if made is not None:
        buffer = " (register_buffer for a tensor)" if kind_of(frame, name.rpartition(".")[0]) == "module" else ""
        return Remedy(
            fix=(
                f"{name} is None until the compiled code makes it ({made[0].site}: {made[0].code}), so the first call is a graph of its own. Make it in __init__{buffer}, "
                "or call once without torch.compile before; then there is one graph."
            )
        )
    return Remedy(
        fix=f"{name} is None in some calls: pass a neutral tensor instead (a mask of ones, zeros to add), or accept two graphs."
    )


def new_compile(frame: Frame, change: Change) -> Remedy:
    """torch.compile again and again."""
    return Remedy(
        fix=(
            f"before (in the loop):\n    torch.compile({frame.name}, backend=...)(x)\nafter:\n    compiled = torch.compile({frame.name}, backend=...)  # once, outside\n    compiled(x)\n"
            "and hand the same backend object to every torch.compile of this function."
        )
    )


def shared_code(frame: Frame, change: Change) -> Remedy:
    """One code object for many modules."""
    if "Guard failed on a parameter" in change.guard.guard:
        return Remedy(
            fix=(
                f"{change.name or 'The argument'} is an nn.Parameter, and sizes of parameters never become dynamic, so every shape is a graph. "
                "torch._dynamo.config.force_parameter_static_shapes = False lets them; or hand in what is no parameter "
                f"({change.name if change.name.isidentifier() else 'p'}.detach(), where no gradient is needed); or raise torch._dynamo.config.recompile_limit above the number of shapes."
            ),
            change="config:force_parameter_static_shapes=False",
        )
    differs = (
        f" They differ in {change.name}, which is a constant in each graph."
        if "changing-attribute" in change.ids
        else ""
    )
    return Remedy(
        fix=(
            f"{frame.function} ({frame.file.rsplit('/', 1)[-1]}:{frame.line}) is one code object for several objects, and they share one limit.{differs} Compile what contains them "
            "(the whole model, or the loop over the layers) once instead of each apart; or raise torch._dynamo.config.recompile_limit above their number. "
            "Where they live one after the other (a search over models), torch._dynamo.reset() between them forgets the entries of the last."
        ),
        change="limit:64",
    )


def object_identity(frame: Frame, change: Change) -> Remedy:
    """Another object in each call."""
    if change.guard.kind == "type":
        found = re.search(r"type=<class '(?:[\w.]*\.)?(\w+)'>", change.guard.guard)
        return Remedy(
            fix=f"{change.name or 'An argument'} is {f'of the class {found[1]}' if found else 'of one class'} in one call and of another class in others: a graph per class, which is the least. Pass one class, or accept them."
        )
    return Remedy(
        fix=f"{change.name or 'An argument'} is another object in each call: make it once, outside of the loop, and pass the same one (functions, lambdas, partials, classes and generators are guarded by identity)."
    )


def aliasing(frame: Frame, change: Change) -> Remedy:
    """The same tensor twice."""
    pair = change.guard.guard.split("  #")[0].strip()
    names = f" ({pair})" if re.fullmatch(r"\S+ is (not )?\S+", pair) else ""
    return Remedy(
        fix=f"Two arguments are the same tensor in some calls only{names}: pass a clone (x.clone()), or call always in the same way, or accept two graphs."
    )


def thread_race(frame: Frame, change: Change) -> Remedy:
    """Several threads at the first call."""
    return Remedy(
        fix=f"Call {frame.name} once in one thread (a warm-up with the arguments of each kind) before the others start; then they find it compiled."
    )
