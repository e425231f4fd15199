"""Findings from compiles that raised: the first cause, not the last exception."""

from __future__ import annotations

import re
from collections import defaultdict

from fxscope.diagnosis.caught import explain_caught, is_traced
from fxscope.diagnosis.causes import cause_of
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Evidence, Finding, Severity
from fxscope.diagnosis.forbidden import is_forbidden
from fxscope.diagnosis.operators import explain_operator, operator_of, place_of_operator
from fxscope.diagnosis.program import create_graph_call, files_of, only_backward
from fxscope.diagnosis.registry import advice, lookup
from fxscope.diagnosis.rewrites import rewrite
from fxscope.diagnosis.statement import code_at, statement_at
from fxscope.recording.records import Failure, GraphBreak
from fxscope.recording.userline import is_user_file
from fxscope.source import short_path

_NO_FAKE = re.compile(
    r"no fake impl registered|register_fake|no meta (?:kernel|function)|Meta' backend|MetaTensor|UnsupportedFakeTensor|"
    r"There was no (?:fake|abstract) impl|UnsupportedOperatorException|operator .* has no kernel for the meta|DynamicOutputShapeException",
    re.IGNORECASE,
)
_ACROSS = re.compile(
    r"backward through the graph a second time|saved tensors after they have already been freed|donated buffer|external grad_fn|"
    r"already consumed grad_fn|does not require grad and does not have a grad_fn|tensors used in the graph (?:may|appears to) not|"
    r"view was created inside a custom Function|does not currently support double backward|grad_fn linkage|torch\.autograd\.grad\(\) consumes|output that requires grad",
    re.IGNORECASE,
)
# Raised while AOTAutograd traces the joint graph: forward is fine, what some backward returns is not.
_IN_BACKWARD = re.compile(
    r"Function \w*Backward\w* returned an invalid gradient|returned an incorrect number of gradients|"
    r"derivative for '?\S+ is not implemented"
)
_TWICE = (
    "Keep what is differentiated twice outside of the compiled function, or take both gradients inside of one compiled function with "
    'torch.func.grad, or use backend="eager" there.'
)
_ACROSS_FIXES = {
    "double backward": _TWICE,
    "a second time": (
        "The first backward freed the graph; eager mode refuses this as well. Cut the history between steps (state = state.detach()), add the losses up and "
        "call backward() once, or pass retain_graph=True to all but the last call."
    ),
    "modified by an inplace operation": (
        "Something that backward needs was overwritten after the forward. Write out of place (x = x + 1), or clone before; with CUDA graphs "
        '(mode="reduce-overhead") also clone outputs that are kept for the next step, and call torch.compiler.cudagraph_mark_step_begin() before each.'
    ),
    "created inside a custom Function": (
        "What a compiled graph (to autograd a custom Function) returned is, or shares memory with, what it was given, and is written to in place. Return a copy, "
        "return x.clone(), from the compiled function, or write out of place; eager autograd follows such writes, across this border it cannot."
    ),
    "does not require grad": (
        "What backward() starts from has no history: the loss was computed under no_grad or inference_mode, detached, or turned into a number (.item()) "
        "and back inside of the compiled function. Return the loss as a tensor, computed with gradients on."
    ),
}
_OPERATOR = re.compile(
    r"<CustomOpDef\(([\w:.]+)\)>|call_function ([\w.]+?\.[\w.]+)\(|operator '?([\w]+::[\w.]+)|torch\.ops\.([\w.]+)|([a-z_]\w*::\w+)"
)
_MARKED = re.compile(
    r"You marked (L\[.+?\](?:\.\w+)*)\.size\(\)\[(\d+)\] as dynamic but your code specialized it to be a constant \((\d+)\)"
)


def findings(context: Context) -> list[Finding]:
    """One finding per place and kind of failure."""
    groups: dict[tuple[str, str, int], list[tuple[int, Failure]]] = defaultdict(list)
    for index, failure in enumerate(context.recording.failures):
        if is_forbidden(failure):
            continue  # told with the recompiles that led to it
        groups[failure.type, failure.file, failure.line].append((index, failure))
    found = [_finding(context, members) for members in groups.values()]
    return found or _double_backward(context)


def _double_backward(context: Context) -> list[Finding]:
    """A program that failed behind compiled code and takes gradients of gradients: by its text, where no log has the error."""
    recording = context.recording
    traced = next((each for each in recording.compiles if "joint" in each.stages or "backward" in each.stages), None)
    if recording.session.exit_code in (0, None) or traced is None:
        return []
    for file in files_of(context):
        place = create_graph_call(file)
        if place is not None:
            return [
                Finding(
                    ids=["grad-across-boundary"],
                    category="failure",
                    severity="medium",
                    title="The program failed, and takes gradients of gradients through a compiled function",
                    file=file,
                    line=place.line,
                    code=code_at(file, place.line),
                    cause="AOTAutograd compiles one backward; differentiating through it again (create_graph=True) is not supported (read from the program's text: the log has no error).",
                    fix=_TWICE,
                    gain="the program runs",
                    verify=context.try_command("backend:eager"),
                    evidence=[
                        Evidence(
                            kind="compile",
                            text=f"{traced.id} {traced.function} has a backward graph",
                            compile_key=traced.key,
                        )
                    ],
                    cost=100.0,
                    change="backend:eager",
                )
            ]
    return []


def _finding(context: Context, members: list[tuple[int, Failure]]) -> Finding:
    _, failure = members[0]
    ids, cause, fix = _explain(context, failure)
    file, line = place_of_failure(context, failure)
    compile_ = context.by_key.get(failure.compile_key)
    went_on = context.recording.session.exit_code == 0 or bool(context.dynamo_config(compile_).get("suppress_errors"))
    if went_on and failure.phase in ("backend", "dynamo") and "frame-skipped" not in ids:
        ids.append("frame-skipped")
        cause += " The error is suppressed, so that function runs eager without a word."
    severity: Severity = "high"
    change = "backend:eager" if "double backward" in failure.message else ""
    return Finding(
        ids=ids,
        category="failure",
        severity=severity,
        title=f"{failure.type}: {headline(failure.message)}".removesuffix(": "),
        file=file,
        line=line,
        function=compile_.function if compile_ else "",
        code=code_at(file, line)
        or next((each.code.strip() for each in failure.stack if (each.file, each.line) == (file, line)), ""),
        cause=cause,
        fix=fix,
        gain="the function runs compiled" if went_on else "the program runs",
        verify=context.try_command(change) if change else context.diff_command(),
        change=change,
        evidence=[
            Evidence(
                kind="failure",
                text=f"{each.id} {each.phase}: {each.type}".strip(),
                compile_key=each.compile_key,
                index=index,
            )
            for index, each in members
        ],
        cost=1000.0 + len(members),
    )


def place_of_failure(context: Context, failure: Failure) -> tuple[str, int]:
    """File and line that made a compile fail: the user's own wherever one is known."""
    if failure.phase == "constraint":
        for event in context.shapes.get(failure.compile_key, []):
            if event.kind == "specialization" and event.line is not None and is_user_file(event.line.file):
                return event.line.file, event.line.line
    operator = operator_of(failure)
    if operator and (called := place_of_operator(context, failure, operator)) is not None:
        return called
    for each in reversed(failure.stack):
        if is_user_file(each.file):
            return each.file, each.line
    compile_ = context.by_key.get(failure.compile_key)
    if _IN_BACKWARD.search(failure.message) and compile_ is not None and (own := only_backward(compile_.file)):
        return own.file, own.line
    if is_user_file(failure.file):
        return failure.file, failure.line
    if compile_ is not None and compile_.user_line:
        return compile_.user_file, compile_.user_line
    return (compile_.file, compile_.line) if compile_ is not None else (failure.file, failure.line)


def _explain(context: Context, failure: Failure) -> tuple[list[str], str, str]:
    message = failure.message
    if failure.phase == "constraint" or failure.type == "ConstraintViolationError":
        return _constraint(failure)
    if _NO_FAKE.search(message):
        return _no_fake(failure)
    if (explained := explain_operator(failure)) is not None:
        return explained.ids, explained.cause, explained.fix
    if _ACROSS.search(message):
        return (
            ["grad-across-boundary"],
            f"Gradients cross the border of the compiled region: {_first_line(message)}",
            next((fix for words, fix in _ACROSS_FIXES.items() if words in message), advice("grad-across")),
        )
    if failure.phase == "backward" or _IN_BACKWARD.search(message):
        return (
            ["backward-failed"],
            f"The backward graph failed: {_reason(message)}",
            (
                "The backward of the custom autograd.Function returns something else than one gradient per input, each in the shape of that input: mend that "
                "(eager mode fails there as well)."
                if _IN_BACKWARD.search(message)
                else "Find the operation with the backend aot_eager (fxscope try --what backend:aot_eager): if that fails too, the operation's backward "
                "has no fake kernel or mutates what it saved; else the backend's lowering of it does. Keep that operation outside of the compiled function."
            ),
        )
    if failure.phase == "backend" or failure.type == "BackendCompilerFailed":
        return _backend(message)
    return _dynamo(failure)


def _constraint(failure: Failure) -> tuple[list[str], str, str]:
    marked = _MARKED.search(failure.message)
    if marked is None:
        return (
            ["mark-dynamic-violated"],
            _first_line(failure.message),
            ("Take sizes from x.shape instead of numbers, or use torch._dynamo.maybe_mark_dynamic, which gives way."),
        )
    name, dim, value = re.sub(r"^L\['(\w+)'\]", r"\1", marked[1]), marked[2], marked[3]
    fix = (
        f"Replace the number {value} by {name}.shape[{dim}] where the code fixes the size; or torch._dynamo.maybe_mark_dynamic({name}, {dim}), "
        "which gives way instead of failing."
    )
    return (
        ["mark-dynamic-violated"],
        f"mark_dynamic promised that size {dim} of {name} varies, but the code fixes it to {value}.",
        fix,
    )


def _no_fake(failure: Failure) -> tuple[list[str], str, str]:
    names = _OPERATOR.search(failure.message)
    operator = next((group for group in names.groups() if group), "") if names else ""
    operator = operator.removesuffix(".default").replace(".", "::", 1) if "::" not in operator else operator
    short = operator.rpartition("::")[2] or "op"
    fix = (
        f"Register what the output looks like:\n    @torch.library.register_fake({operator or 'ns::op'!r})\n    def _(x, *args):\n        return torch.empty_like(x)  # shape, dtype and device of the result\n"
        f"(for an operator made with torch.library.custom_op: @{short}.register_fake)"
    )
    return (
        ["missing-fake-kernel"],
        f"The custom operator {operator or '(named in the message)'} has no fake kernel, so its output cannot be known at compile time.",
        fix,
    )


def _backend(message: str) -> tuple[list[str], str, str]:
    backend = re.search(r"backend='([^']+)'", message)
    name = backend[1] if backend else "the backend"
    return ["backend-failed"], f"{name} raised on a graph: {_reason(message)}", advice("backend")


def _dynamo(failure: Failure) -> tuple[list[str], str, str]:
    """An exception of Dynamo: a graph break under fullgraph, a higher-order operator, or the program's own error."""
    message = failure.message
    record = _as_break(failure)
    cause = cause_of(record)
    entry = lookup(record.gb_id, record.kind)
    known = bool(record.gb_id) or bool(entry.id)
    file, line = failure.file, failure.line
    changed = rewrite(cause.advice, statement_at(file, line, code_at(file, line)))
    fix = advice(cause.advice, name=f"`{cause.callee.name}`" if cause.callee.name else "", detail=_reason(message))
    fix += f"\n{changed.text()}" if changed else ""
    if "GuardOnDataDependentSymNode" in failure.type or "data-dependent expression" in message.lower():
        expression = re.search(r"expression:? (.+?)(?: \(unhinted|\.|$)", message)
        return (
            ["data-dependent-value", "fullgraph-error"],
            "A size that is only known from data decides something.",
            (
                f"State what is known of it before it is used: torch._check({expression[1] if expression else 'n >= 0'}); or keep the value a tensor (mask instead of slice)."
            ),
        )
    if "HigherOrderOp" in failure.type:
        ids = ["higher-order-op", *(id_ for id_ in cause.ids if id_ != "higher-order-op" and known)]
        return (
            ids,
            f"The body of a higher-order operator cannot be captured whole: {_reason(message)}",
            fix if known else advice("higher-order"),
        )
    if failure.phase == "fullgraph" or failure.type in ("Unsupported", "ResumePrologueTracingError"):
        ids = ["fullgraph-error", *(id_ for id_ in cause.ids if id_ != "frame-skipped")]
        return ids, f"fullgraph=True allows no graph break, and here is one: {record.kind}.", fix
    if (caught := explain_caught(failure, _reason(message))) is not None:
        return caught
    if is_traced(failure):
        return (
            ["user-error"],
            f"The operation fails already on shapes and dtypes: {_reason(message)}",
            advice("user-error", detail=_reason(message)),
        )
    return ["dynamo-internal"], f"Dynamo itself failed: {_reason(message) or _raised_at(failure)}", advice("internal")


def _as_break(failure: Failure) -> GraphBreak:
    """The failure's text read like that of a graph break: title, explanation, context, id."""
    text = failure.message
    body = text.partition("Got graph break/error:\n\n")[2] or text
    url = re.search(r"/gb(\d+)\.html", body)
    title, _, rest = body.strip().partition("\n")
    context = rest.partition("Developer debug context:")[2].partition("\n")[0].strip()
    return GraphBreak(
        site="",
        file=failure.file,
        line=failure.line,
        gb_id=f"GB{int(url[1]):04d}" if url else None,
        kind=title.strip(),
        reason=body,
        explanation=rest.partition("Explanation:")[2].partition("\n  Hint")[0].strip(),
        context=context,
    )


def _first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")[:200]


def headline(message: str) -> str:
    """The first line of an error text, or the reason where that only announces it (``backend='x' raised:``)."""
    first = _first_line(message)
    return _reason(message)[:200] if first.endswith("raised:") else first


def _raised_at(failure: Failure) -> str:
    """What an exception without a message has to tell."""
    place = f", raised at {short_path(failure.file)}:{failure.line}" if failure.file else ""
    return f"{failure.type} without a message{place}"


def _reason(message: str) -> str:
    """The line of an error text that says most: the last "SomethingError: ..." of it, else the first line."""
    got = re.search(r"got (\w+\(.*?\))(?:\n|$)", message)
    if got:
        return got[1][:300]
    named = re.findall(r"^(\w+(?:Error|Exception)\b.*)$", message, re.MULTILINE)
    return (named[-1] if named else _first_line(message))[:300]
