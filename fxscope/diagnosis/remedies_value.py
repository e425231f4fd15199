"""Remedies for recompiles by a Python value: numbers, flags, strings and attributes that a graph holds as constants."""

from __future__ import annotations

import ast
import re

from fxscope.diagnosis.classes import kind_of
from fxscope.diagnosis.owner import begun_at, is_kept_by, set_at
from fxscope.diagnosis.remedies_size import Remedy
from fxscope.diagnosis.statement import source_text
from fxscope.diagnosis.story import Change, Frame
from fxscope.recording.userline import is_torch_file, is_user_file
from fxscope.source import package_of

_UNSPECIFIC = "Without an edit: torch._dynamo.config.allow_unspec_int_on_nn_module = True (ints become dynamic after one recompile)."
_LIMIT = "if the values are few and fixed, raise torch._dynamo.config.recompile_limit above their number"


def listed(values: list[str], most: int = 4) -> str:
    """``0, 1, 2, ... (8 values)``."""
    if len(values) <= most:
        return ", ".join(values)
    return f"{', '.join(values[:most])}, ... ({len(values)} values)"


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


def changing_attribute(frame: Frame, change: Change) -> Remedy:
    """An attribute of a module or of another object."""
    name = change.name
    if change.guard.kind == "attribute":
        return Remedy(
            fix=f"{name} is there in some calls and not in others. Make it before the first compiled call (in __init__), with the type that it will have; then it is never asked for."
        )
    value = _literal(change.guard.expected)
    values = frame.values.get(name, [])
    if isinstance(value, bool) or value is None:
        return _attribute_flag(frame, change)
    if isinstance(value, (int, float)):
        return _attribute_number(frame, change, value)
    return Remedy(
        fix=(
            f"{name} takes the values {listed(values)}; strings and other objects never become dynamic, so each is a graph. "
            f"Do the choice outside of the compiled function: copy what {name} selects into one fixed set of tensors (hot swap), or compile one "
            f"function per value. Or, {_LIMIT}."
        ),
        change=f"limit:{max(16, 2 * len(values))}",
    )


def _attribute_flag(frame: Frame, change: Change) -> Remedy:
    made = set_at(frame, change)
    if made is not None:
        return Remedy(
            fix=f"The compiled code itself sets {change.name} ({made[0].site}: {made[0].code}). Do that in __init__, or before the first compiled call; then it stays what it is."
        )
    return Remedy(
        fix=f"{change.name} is a flag: two values are two graphs, which is the least. Set it once, or make two modules if it flips in a loop."
    )


def _attribute_number(frame: Frame, change: Change, value: float) -> Remedy:
    name = change.name
    owner = name.rpartition(".")[0]
    asked = change.guard.asked_file or ""
    theirs = is_user_file(frame.file) and not is_user_file(asked) and not is_torch_file(asked)
    if asked and theirs and is_kept_by(asked, frame, change):
        return Remedy(
            fix=(
                f"{name} is kept by {package_of(asked)}, whose own code changes it, and is a constant in each graph. Call what changes it "
                f"outside of the compiled function, on what that returns. {_UNSPECIFIC if isinstance(value, int) else ''}"
            ).rstrip(),
            change="config:allow_unspec_int_on_nn_module=True" if isinstance(value, int) else "",
        )
    kind, several = kind_of(frame, owner), len(frame.values.get(name, [])) > 2
    of_self = owner == "self" or owner.startswith("self.")
    if kind != "plain" and (of_self or several):
        return _number_of_module(frame, change, value, known=kind == "module")
    once = (
        ""
        if several  # it did not become dynamic: Python decides by it
        else " As a plain number on an object that is no nn.Module it costs one recompile, after which it is dynamic; "
        "torch.compile(..., dynamic=True) saves that one."
    )
    return Remedy(
        fix=(
            f"Keep {name} as a tensor.\nbefore:\n    {name} = {value}\nafter:\n    {name} = torch.tensor({value})\n"
            "then its value is data, not a constant; what Python decides by it (if, min(), range) must become torch operations "
            f"(torch.where, torch.clamp).{once}"
        ),
        change="" if several else "dynamic",
    )


def _number_of_module(frame: Frame, change: Change, value: float, *, known: bool) -> Remedy:
    """A number of an ``nn.Module``, or of an object that may be one: only where its class is known to be one is a buffer all that is told."""
    name = change.name
    owner, _, attribute = name.rpartition(".")
    made = set_at(frame, change)
    unspecific = _UNSPECIFIC if isinstance(value, int) else ""
    setting = "config:allow_unspec_int_on_nn_module=True" if unspecific else ""
    if unspecific and not known:
        unspecific = unspecific.replace("Without", f"If {owner} is an nn.Module, without")
    if made is not None and made[1]:
        return Remedy(
            fix=(
                f"The compiled code sets {name} itself, whenever `{made[1]}` ({made[0].site}: {made[0].code}), and each value is a graph. Fill what it stands for once, "
                f"in __init__, for the largest case; then the condition is never true again and {name} never changes. {unspecific}"
            ).rstrip(),
            change=setting,
        )
    begun = begun_at(frame, change)
    if begun is not None and not _makes_number(*begun):
        begun = None
    numbers = [each for each in frame.values.get(name, []) if isinstance(_literal(each), (int, float))]
    first = begun[1] if begun else (numbers or [str(value)])[0]
    holder = "self" if begun else owner
    make, plain = (
        f"{holder}.register_buffer({attribute!r}, torch.tensor({first}))",
        f"{holder}.{attribute} = torch.tensor({first})",
    )
    then = (
        f"then `{made[0].code}` is part of the graph"
        if made is not None
        else f"then a new value ({name} += 1, {name}.fill_(value)) recompiles nothing"
    )
    if begun and known:
        told = f"Make {name} a buffer, which is data and no constant.\nbefore (in __init__):\n    {begun[0]}\nafter:\n    {make}\n"
    elif begun:
        told = (
            f"Make {name} a tensor, which is data and no constant.\nbefore (in __init__):\n    {begun[0]}\n"
            f"after (where the class is an nn.Module):\n    {make}\nafter (in any other class):\n    {plain}\n"
        )
    elif known:
        told = f"Where {name} is set first, make it a buffer: {make};\n"
    else:
        told = f"Where {name} is set first, make it a tensor: {make} where {owner} is an nn.Module, else {plain};\n"
    return Remedy(
        fix=told
        + (
            f"{then}; what Python decides by it (if, min(), range) must become torch operations "
            f"(torch.where, torch.clamp). Or change it outside of forward. {unspecific}"
        ).rstrip(),
        change=setting,
    )


def _makes_number(statement: str, value: str) -> bool:
    """The statement sets one attribute, to a number or to what is computed; not ``self.a = self.b = 0`` or ``self.a = None``."""
    constant = _literal(value)
    is_number = constant == value or (isinstance(constant, (int, float)) and not isinstance(constant, bool))
    return is_number and " = " not in statement.removesuffix(f" = {value}")


def changing_number(frame: Frame, change: Change) -> Remedy:
    """A number, flag, string or other constant that is an argument, an item of one, or closed over."""
    name = change.name or "the value"
    value = _literal(change.guard.expected)
    values = frame.values.get(name, [])
    if ".param_groups" in (change.guard.source or ""):
        return _optimizer_setting(frame, name, value)
    if re.match(r".* (!=|<|<=|>|>=) ", change.guard.guard) and change.guard.kind in ("number", "value"):
        return Remedy(
            fix=(
                f"The code asks whether {change.guard.guard.split('  #')[0].strip()}, and each answer is a graph: two, and no more. Decide outside of the compiled function, "
                "or compute both sides and choose with torch.where on a tensor."
            )
        )
    if isinstance(value, bool):
        if len(frame.changes) > 2:
            return Remedy(
                fix=(
                    f"{name} is one of several flags, and each combination of them is a graph. Pass them as one tensor (flags = torch.tensor(flags)) and choose with torch.where(flags[i], a, b), "
                    f"or decide by them outside of the compiled function. Or, {_LIMIT}."
                )
            )
        return Remedy(
            fix=f"{name} is a flag: two values are two graphs, which is the least. If it changes every call, use torch.where on a tensor flag."
        )
    if isinstance(value, (int, float)):
        return _plain_number(frame, change, name, value)
    what = f"takes the values {listed(values)}" if values and change.guard.kind != "identity" else "is another member"
    return Remedy(
        fix=(
            f"{name} {what}; strings, members of an Enum and other constants never become dynamic, so each is a graph. Decide by {name} outside of the compiled "
            f"function (compile one function per value), or, {_LIMIT}."
        ),
        change=f"limit:{max(16, 2 * len(values))}" if frame.limited else "",
    )


def _optimizer_setting(frame: Frame, name: str, value: object) -> Remedy:
    found = re.search(r"\['(\w+)'\](?:\[(\d+)\])?$", name)
    key, item = (found[1], found[2]) if found else ("lr", None)
    if item is not None:
        return Remedy(
            fix=(
                f"A scheduler changes {key} (OneCycleLR and CyclicLR do, with cycle_momentum=True). Give the optimizer tensors: {key}=(torch.tensor({_short(value)}), torch.tensor(...)); "
                "or cycle_momentum=False. As plain numbers they cost one recompile, after which they are dynamic."
            )
        )
    return Remedy(
        fix=f"Give the optimizer a tensor: {key}=torch.tensor({_first_setting(frame, key) or _short(value)}); a scheduler then changes its value, not the guard."
    )


def _plain_number(frame: Frame, change: Change, name: str, value: float) -> Remedy:
    if len(frame.values.get(name, [])) > 2:
        return _fixed_number(change, name)
    handed = (
        f"Pass {name} to the function as an argument instead of closing over it"
        if (change.guard.source or "").endswith(".cell_contents")
        else f"Where {name} only enters arithmetic, pass it as a tensor from the first call"
    )
    return Remedy(
        fix=(
            f"As a plain number {name} costs one recompile, after which it is dynamic: nothing more will come. torch.compile(..., dynamic=True) saves that one as well. "
            f"{handed}: {name} = torch.tensor({_short(value)})."
        ),
        change="dynamic",
    )


def _fixed_number(change: Change, name: str) -> Remedy:
    """A number that was a constant again and again: something in the code wants it as a Python number."""
    code = change.line.code.strip() if change.line is not None else ""
    where = f"{change.line.site}: {code}" if change.line is not None else ""
    if not where and change.guard.asked_line:
        where = f"line {change.guard.asked_line}"
    begin = f"{name} does not become dynamic, because the code needs it as a Python number{f' ({where})' if where else ''}, and each value is a graph. "
    if re.search(r"\bmath\.|\bint\(|\bround\(|\bfloat\(", code):
        return Remedy(
            fix=begin
            + f"Pass it as a tensor, {name} = torch.tensor(...), and compute with torch there (torch.exp for math.exp, torch.sqrt for math.sqrt); or do that computation outside and pass its result."
        )
    item = re.search(rf"(\w[\w.]*)\[{re.escape(name)}\]", code)
    if item is not None:
        return Remedy(
            fix=begin
            + (
                f"If {item[1]} holds modules: stack their weights once, W = torch.stack([m.weight for m in {item[1]}]), and choose by a tensor of one element, "
                f"W.index_select(0, index)[0] with index = torch.tensor([{name}]); or choose outside and compile what is chosen: compiled({item[1]}[{name}], x). "
                f"If they are few and fixed, raise torch._dynamo.config.recompile_limit above their number."
            )
        )
    return Remedy(
        fix=begin
        + f"Use a tensor there, {name} = torch.tensor(...), with torch operations instead of Python ones; or do what depends on it outside of the compiled function. Or, {_LIMIT}."
    )


def changing_global(frame: Frame, change: Change) -> Remedy:
    """A variable of the module."""
    return Remedy(
        fix=f"Pass {change.name} to the function as an argument (a tensor: torch.tensor({change.name}), or a plain number, which becomes dynamic after one recompile); module-level variables are constants in a graph."
    )
