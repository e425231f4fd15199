"""Findings where torch.compile had no effect, and where compiled code is silently not what the program says."""

from __future__ import annotations

import ast
import os
import re

from fxscope.diagnosis.context import Context, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.program import (
    Place,
    files_of,
    generator_compiled,
    late_hooks,
)
from fxscope.diagnosis.statement import code_at, source_tree
from fxscope.diagnosis.uncalled import NEVER_RAN, UNREACHED, of_other_method, other_method, wasted
from fxscope.recording.records import Compile
from fxscope.recording.userline import is_user_file

_MODES = re.compile(
    r"(TorchDispatchMode|FlopCounterMode|FakeTensorMode|DebugMode|ProxyTorchDispatchMode|LoggingMode|\w*DispatchMode)$"
)


def findings(context: Context) -> list[Finding]:
    """Nothing compiled at all, functions that were compiled and never ran, dispatch modes, hooks that came late."""
    found = [_late_hook(context, place) for place in _hooks_in_program(context)]
    begun = context.recording.compiles or context.recording.failures
    if not found and not begun and context.recording.session.state != "live":  # a live run may still come to it
        found.append(_nothing(context))
    if not found and context.recording.compiles and not context.recording.totals.graphs:
        found.extend(_empty(context))
    return [*found, *_other_method(context)] if context.recording.totals.graphs else found


def _other_method(context: Context) -> list[Finding]:
    """Beside what was compiled, a module of which only another method than forward is called."""
    program = _program(context)
    tree = source_tree(program) if program else None
    other = other_method(tree) if tree is not None else None
    if other is None:
        return []
    file, line, why, fix = of_other_method(program, other)
    return [
        Finding(
            ids=["nothing-compiled"],
            category="nothing-compiled",
            severity="medium",
            title="A compiled module is used through a method that runs eager",
            file=file,
            line=line,
            code=code_at(file, line),
            cause=why,
            fix=fix,
            gain="the module runs compiled",
            verify=context.report_command(),
            evidence=[Evidence(kind="note", text="read in the program's text")],
            cost=1.0,
        )
    ]


def _empty(context: Context) -> list[Finding]:
    """Frames were compiled, but none holds an operation, and no break says why."""
    recording = context.recording
    told = any(each.status in ("skipped", "failed", "unfinished") for each in recording.compiles) or recording.failures
    if told or not any(each.status == "empty" for each in recording.compiles):
        return []
    first = next(each for each in recording.compiles if each.status == "empty")
    file, line = user_place(first)
    broken = bool(recording.graph_breaks)
    if any(is_user_file(found.file) for found in recording.graph_breaks):
        return []  # the breaks of the program's own lines say it, and what to do
    if not broken and is_user_file(first.file):
        return [_left_alone(context, first)]
    return [
        Finding(
            ids=["nothing-compiled"],
            category="nothing-compiled",
            severity="high",
            title="Not one operation was compiled: every graph is empty",
            file=file,
            line=line,
            function=first.function,
            code=code_at(file, line),
            cause="Dynamo compiled frames without tensor operations only"
            + (
                "; the work lies behind graph breaks, in functions that Dynamo does not compile by themselves (code of torch.nn and other libraries)."
                if broken
                else "."
            ),
            fix=(
                "Compile the module that does the work: torch.compile(net) before it is wrapped (DistributedDataParallel(torch.compile(net))), "
                "and give it a forward of your own instead of a bare nn.Sequential, or mend the breaks that this report names."
            ),
            gain="the model runs compiled at all",
            verify=context.report_command(),
            evidence=[
                Evidence(kind="compile", text=f"{each.id} {each.function}: {each.status}", compile_key=each.key)
                for each in recording.compiles[:10]
            ],
            cost=1.0,
        )
    ]


def _left_alone(context: Context, first: Compile) -> Finding:
    """The first call computed nothing: Dynamo then skips the code object for good, later calls included."""
    return Finding(
        ids=["nothing-compiled"],
        category="nothing-compiled",
        severity="high",
        title=f"The first call of {first.function} computed nothing, so Dynamo leaves the function alone from then on",
        file=first.file,
        line=first.line,
        function=first.function,
        code=code_at(first.file, first.line),
        cause="Dynamo traced a call without one tensor operation and skips such a function for good: the calls after it run eager, whatever they compute.",
        fix=(
            f"Make the first call of {first.function} one that computes (warm it up with real arguments), or decide outside of it whether to call it at all; "
            "or compile the caller, which has operations of its own."
        ),
        gain="the function runs compiled at all",
        verify=context.report_command(),
        evidence=[Evidence(kind="compile", text=f"{first.id} {first.function}: {first.status}", compile_key=first.key)],
        cost=1.0,
    )


def _hooks_in_program(context: Context) -> list[Place]:
    """Hooks that came late, by the program's text; only where hooks are not guarded and something was compiled."""
    compiled = [each for each in context.recording.compiles if each.status == "ok"]
    if not compiled or context.dynamo_config(compiled[0]).get("skip_nnmodule_hook_guards") is False:
        return []
    return [place for file in files_of(context) for place in late_hooks(file)]


def _nothing(context: Context) -> Finding:
    program = _program(context)
    tree = source_tree(program) if program else None
    mode = _mode_in(tree) if tree is not None else None
    ids = ["nothing-compiled"]
    if mode is not None:
        ids = ["nothing-compiled", "dispatch-mode"]
    generator = generator_compiled(program) if program else None
    if generator is not None:
        ids.append("generator")
    site = wasted(program, tree)
    file, line, why, fix = site
    if generator is not None:
        line, why = (
            generator.line,
            f"{generator.text} is a generator function; Dynamo does not compile generators themselves.",
        )
        fix = (
            "Compile a function that consumes the generator: torch.compile(lambda x: [y for y in "
            + generator.text
            + "(x)]), or compile what it calls for each item."
        )
    elif mode is not None:
        line, why = (
            mode.lineno,
            f"A dispatch mode is active around the call (`{ast.unparse(mode)[:80]}`), and Dynamo steps aside under one.",
        )
        fix = "Leave the mode (FlopCounterMode, a profiler's mode, FakeTensorMode) while the compiled function is called; measure with it on the eager model."
    code = context.recording.session.exit_code
    if code not in (0, None) and (not why or why is NEVER_RAN or why.startswith(UNREACHED)):
        # How far it came is not known: what stands in the program may simply not have been reached.
        why = f"The program ended with exit code {code} before anything was compiled."
        fix = "See why it ended (its own output, a time limit, memory), and record a run that reaches the first call of the compiled function."
    if not why:
        why = "No function was compiled in the whole run."
        fix = 'Call what torch.compile returns (model.compile() does nothing for a class of torch itself, nn.Sequential for one), and look for TORCH_COMPILE_DISABLE, torch.compiler.set_stance("force_eager") and torch.compiler.disable.'
    return Finding(
        ids=ids,
        category="nothing-compiled",
        severity="high",
        title="torch.compile had no effect: nothing was compiled"
        if code in (0, None)
        else f"Nothing was compiled before the program ended with exit code {code}",
        file=file,
        line=line,
        function="",
        code=code_at(file, line),
        cause=why,
        fix=fix,
        gain="the model runs compiled at all",
        verify=context.report_command(),
        evidence=[Evidence(kind="note", text="no compile in the log")],
        cost=1.0,
    )


def _program(context: Context) -> str:
    """Path of the script that ran, "" where the log does not know it."""
    session = context.recording.session
    for word in session.argv:
        if word.endswith(".py"):
            return word if os.path.isabs(word) else os.path.join(session.cwd or "", word)
    return ""


def _mode_in(tree: ast.Module) -> ast.expr | None:
    """A dispatch mode that a ``with`` of the program enters."""
    classes = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(_MODES.search(ast.unparse(base)) for base in node.bases)
    }
    for node in ast.walk(tree):
        for item in getattr(node, "items", []) if isinstance(node, (ast.With, ast.AsyncWith)) else []:
            called = item.context_expr
            name = ast.unparse(called.func if isinstance(called, ast.Call) else called)
            if name in classes or _MODES.search(name):
                return called
    return None


def _late_hook(context: Context, place: Place) -> Finding:
    return Finding(
        ids=["late-hook"],
        category="wrong",
        severity="high",
        title="A hook was registered on a module after it was compiled",
        file=place.file,
        line=place.line,
        function="",
        code=code_at(place.file, place.line),
        cause="Hooks are not guarded (torch._dynamo.config.skip_nnmodule_hook_guards is True), so the code compiled before goes on without calling this hook.",
        fix=(
            "Register the hook before the first compiled call; or set torch._dynamo.config.skip_nnmodule_hook_guards = False before compiling "
            "(then a new hook recompiles); or call torch.compiler.reset() after registering."
        ),
        gain="the hook is called",
        verify=context.try_command("config:skip_nnmodule_hook_guards=False"),
        evidence=[Evidence(kind="note", text=place.text)],
        cost=10.0,
        change="config:skip_nnmodule_hook_guards=False",
    )
