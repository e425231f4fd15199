"""The fix of one graph break: advice in the user's names, before and after, and the change that can be tried without an edit."""

from __future__ import annotations

import ast
import builtins
import re

from fxscope.diagnosis.ahead import advice_ahead, ahead, function_around
from fxscope.diagnosis.branching import leaves_loop
from fxscope.diagnosis.causes import BreakCause, in_library
from fxscope.diagnosis.registry import advice
from fxscope.diagnosis.rewrites import rewrite
from fxscope.diagnosis.rewrites_data import gather, indexed_by_tensor, is_for_people
from fxscope.diagnosis.statement import Statement, code_at, source_tree, statement_at
from fxscope.recording.records import GraphBreak
from fxscope.recording.userline import is_torch_file
from fxscope.source import package_of

# What a change of settings can do without an edit, by advice key.
_CHANGES = {
    "scalar": "config:capture_scalar_outputs=True",
    "output-shape": "config:capture_dynamic_output_shape_ops=True",
    "rnn": "config:allow_rnn=True",
    "class-setting": "config:enable_trace_load_build_class=True",
    "checkpoint-effect": "config:skip_fwd_side_effects_in_bwd_under_checkpoint=True",
    "autograd-grad": "config:trace_autograd_ops=True",
    "numpy-config": "config:trace_numpy=True",
}
_SETTINGS = {
    "scalar": "capture_scalar_outputs",
    "tolist-float": "capture_scalar_outputs",
    "output-shape": "capture_dynamic_output_shape_ops",
}
_BAR = re.compile(r"\btqdm|\btrange|progress|alive|\btrack\b", re.IGNORECASE)
_NAMED = frozenset({"unsupported", "skipped-function", "c-function", "builtin", "c-slot", "no-proxy", "user-object"})
_SPLITS = re.compile(r"\b(split|tensor_split|unbind|repeat_interleave|as_strided|zip)\b|\brange\(|\.tolist\(")


def place_of(found: GraphBreak) -> tuple[str, int, str]:
    """File, line and code of the line that the user can change."""
    if found.user_line:
        return found.user_file, found.user_line, found.user_code or found.code
    return found.file, found.line, found.code


def fix_of(found: GraphBreak, cause: BreakCause) -> str:
    """The advice for one break, in the user's names, with before and after where the line can be rewritten.

    It does not repeat where the break lies: whoever prints it has said so.
    """
    file, line, code = place_of(found)
    method = cause.callee.name.rpartition(".")[2] if cause.advice == "logging" else ""
    detail = " ".join(found.explanation.split())[:300]
    statement = None if in_library(found) else statement_at(file, line, code)
    key = _key_of(found, cause, statement)
    name = cause.callee.name if key == "logging-root" else name_of(found, cause)
    parts = [advice(key, name=name, code=code, method=method, detail=detail)]
    if key in ("scalar", "output-shape", "tolist-float") and host_split(statement):
        parts = [_SPLIT_ADVICE if statement is None or "bincount" in statement.text else _ragged(statement)]
    elif key in ("scalar", "tolist-float") and statement is not None and (values := _looped_over(statement)):
        told = (
            f"The loop takes the values of {values} to the host one by one, and unrolls for every number of them. Index with the whole tensor instead: "
            f"x[{values}] (or torch.index_select, torch.gather) gives all rows at once, and what the body does to one row, torch operations do to all of them "
            "(torch.vmap where it is a function of its own). Torch's hint (capture_scalar_outputs) does not help: the number of rounds stays unknown."
        )
        parts = [told]
    elif (
        key == "scalar"
        and statement is not None
        and indexed_by_tensor(statement)
        and ahead(file, line, statement) is None
    ):
        changed = gather(statement)
        parts = [_ONE_ROW, changed.text() if changed is not None else ""]
    elif not in_library(found):
        changed = rewrite(key, statement)
        if changed is not None:
            parts.append(changed.text())
        if key in ("scalar", "output-shape", "tolist-float"):
            trouble = ahead(file, line, statement)
            if trouble is not None and statement is not None:
                told = advice_ahead(file, statement, trouble, _SETTINGS[key])
                parts = [*parts, told] if trouble.kind == "here" else [told]
            else:
                parts.append(_about_the_hint(key, code or code_at(file, line)))
    if "context-manager" in cause.ids[1:]:
        parts.append(advice("context-break"))
    elif statement is not None and leaves_loop(statement.node):
        parts.append(advice("loop-exit"))
    elif "frame-skipped" in cause.ids and "in a for/while loop" in found.reason:
        parts.append(advice("loop-break"))
    if in_library(found) and not is_torch_file(found.file):
        package = package_of(found.file)
        # A setting can be made from outside; an edit is for whoever works on the package.
        told = "\n".join(part for part in parts if part)
        setting = f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{method})" if method else ""
        parts = [f"{not_yours(package, change_of(found, cause), setting)} {told}"]
    return "\n".join(part for part in parts if part)


def _key_of(found: GraphBreak, cause: BreakCause, statement: Statement | None) -> str:
    """Key of the advice: the cause's, unless the statement says what it is for."""
    if cause.advice in ("scalar", "tolist-float") and statement is not None and is_for_people(statement):
        return "print"
    if cause.advice == "print" and _BAR.search(cause.callee.name):
        return "progress"
    if cause.advice == "autograd-function" and "mark_dirty" in found.code:
        return "mark-dirty"
    if cause.advice == "rnn" and "pack_padded_sequence" in _function_text(found):
        return "rnn-packed"
    if cause.advice == "rnn" and cause.callee.name == "LSTM":
        return "rnn-lstm"
    return cause.advice


def _function_text(found: GraphBreak) -> str:
    """Text of the function that holds the line, "" where its file is not there."""
    file, line, _ = place_of(found)
    scope = function_around(source_tree(file), line)
    return ast.unparse(scope) if scope is not None else ""


def name_of(found: GraphBreak, cause: BreakCause) -> str:
    """What was called, in backticks: the user's own call where what it runs into lies in the standard library or in an object's slot."""
    name = f"`{cause.callee.name}`" if cause.callee.name else ""
    file, line, code = place_of(found)
    if (found.file, found.line) == (file, line) or in_library(found) or cause.advice not in _NAMED:
        return name
    statement = statement_at(file, line, code)
    calls = (
        [ast.unparse(node.func) for node in ast.walk(statement.node) if isinstance(node, ast.Call)] if statement else []
    )
    own = next((call for call in calls if not hasattr(builtins, call)), "")
    return f"`{own}` (it runs into {name})" if own and name else f"`{own}`" if own else name


_EACH_LINE = re.MULTILINE | re.DOTALL


def not_yours(package: str, change: str, setting: str = "") -> str:
    """What can be done about a package's own line, and the words that lead over to what the package could do.

    Args:
        package: Its name.
        change: What ``fxscope try --what`` can try, "" for nothing.
        setting: What else can be set from outside.
    """
    kind, _, value = change.partition(":")
    setting = f"torch._dynamo.config.{value.replace('=', ' = ')}" if kind == "config" else setting
    setting = "torch.compile(..., dynamic=True)" if kind == "dynamic" else setting
    return advice("not-yours-set" if setting else "not-yours", name=package, setting=setting) + f"\n{_itself(package)}"


def _itself(package: str) -> str:
    return f"In {package} itself:"


def told_to_package(fix: str, package: str) -> list[str]:
    """What a finding's fix says that the package could do; more than one where several causes lie at one line."""
    return [
        text.strip() for text in re.findall(rf"^{re.escape(_itself(package))} (.+?)(?=^Then, at|\Z)", fix, _EACH_LINE)
    ]


# Tried with 2.13: with torch's hint the index is still asked for its number, and the graph ends there all the same.
_ONE_ROW = (
    "An index that is a tensor of one element is asked for its number. Torch's hint (capture_scalar_outputs) does not help here. Take the row with the tensor itself: "
    "x.index_select(0, i.reshape(1)).squeeze(0) instead of x[i]; many rows at once with x[index]."
)
# Tried on the pattern counts = bincount(e).tolist(); split(x, counts): the first setting of torch's hints moves the break to
# the conversion, both together raise GuardOnDataDependentSymNode.
_SPLIT_ADVICE = """The counts go to the host to cut a tensor into pieces. Torch's hints (capture_dynamic_output_shape_ops, capture_scalar_outputs) do not \
help here: the first moves the break on, both together fail with GuardOnDataDependentSymNode. Keep the work dense, over all rows at once:
before:
    counts = torch.bincount(index, minlength=E).tolist()
    parts = torch.split(x, counts)
    y = torch.cat([part @ w for part, w in zip(parts, weights)])
after:
    choice = torch.nn.functional.one_hot(index, E).to(x.dtype)
    y = torch.einsum("td,edf,te->tf", x, weights, choice)
(the rows stay in their order; it computes every row for every group, which for few groups is cheaper than the break)"""


def _ragged(statement: Statement) -> str:
    """Pieces of given lengths: a reduction over them is an index_add. Tried with lengths that vary from call to call."""
    call = next(
        (
            node
            for node in ast.walk(statement.node)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.split" and len(node.args) >= 2
        ),
        None,
    )
    x = ast.unparse(call.args[0]) if call is not None else "x"
    lengths = re.sub(r"\.tolist\(\)$", "", ast.unparse(call.args[1])) if call is not None else "lengths"
    return f"""The lengths go to the host to cut a tensor into pieces, and each set of lengths would be another graph. Torch's hint (capture_scalar_outputs) only moves the \
trouble on: shapes known from data alone, and GuardOnDataDependentSymNode where they decide. Keep the rows together and say which piece each belongs to:
before:
    parts = torch.split({x}, {lengths}.tolist())
    y = torch.stack([part.mean(0) for part in parts])
after:
    piece = torch.repeat_interleave({lengths}, output_size={x}.shape[0])  # 0 0 0 1 1 2 ...
    y = {x}.new_zeros({lengths}.shape[0], *{x}.shape[1:]).index_add(0, piece, {x})
    y = y / {lengths}.clamp(min=1).reshape(-1, *[1] * ({x}.dim() - 1))
(a sum needs no division, a maximum is scatter_reduce with "amax"; or split outside of the compiled function)"""


def _looped_over(statement: Statement) -> str:
    """What a ``for`` over ``x.tolist()`` takes its values from, "" for any other statement."""
    if not isinstance(statement.node, (ast.For, ast.AsyncFor)):
        return ""
    values = re.search(r"([\w.\[\]]+)\.tolist\(\)", ast.unparse(statement.node.iter))
    return values[1] if values else ""


def host_split(statement: Statement | None) -> bool:
    """The statement brings counts to the host by which the next one cuts a tensor."""
    if statement is None:
        return False
    here, then = statement.text, ast.unparse(statement.after) if statement.after is not None else ""
    return bool(
        re.search(r"\.(tolist|item)\(", here) and re.search(r"\b(split|tensor_split|split_with_sizes)\(", then + here)
    )


def _about_the_hint(key: str, code: str) -> str:
    """What torch's own hint (a setting) does on this kind of line."""
    if key == "output-shape":
        if ".tolist" in code or ".item" in code:
            return "Torch's hint alone is not enough here: with capture_dynamic_output_shape_ops the break moves on to the conversion to Python numbers."
        return "With the setting, code that decides by the unknown size (if, reshape, split) can fail with GuardOnDataDependentSymNode; try it with the command below."
    if key == "scalar" and _SPLITS.search(code):
        return (
            "Torch's hint (capture_scalar_outputs) helps only while the numbers are not used as shapes: torch.split, range or "
            "reshape by them can end in GuardOnDataDependentSymNode. Prefer a mask or a one-hot product over all rows; add torch._check(n >= 0) where it stays."
        )
    return ""


def change_of(found: GraphBreak, cause: BreakCause, *, training: bool = False) -> str:
    """What can be tried without an edit; "" where it was tried on this pattern and does not help.

    Args:
        found: The break.
        cause: Its cause.
        training: Some graph of the run has a backward.
    """
    # In a package the line itself tells, where its source is here: whether a setting helps there does not depend on whose it is.
    file, line, code = (found.file, found.line, found.code) if in_library(found) else place_of(found)
    statement = statement_at(file, line, code)
    if statement is not None and (
        is_for_people(statement)
        or host_split(statement)
        or _looped_over(statement)
        or (
            cause.advice in _SETTINGS
            and (seen := ahead(file, line, statement)) is not None
            and seen.kind not in ("size", "number")
        )
        or (cause.advice == "scalar" and indexed_by_tensor(statement))
    ):
        return ""
    if cause.advice == "rnn" and (
        _key_of(found, cause, statement) == "rnn-packed" or (training and cause.callee.name == "LSTM")
    ):
        return ""
    return _CHANGES.get(cause.advice, "")
