"""``diagnose --measure``: each graph replayed eager and compiled, and after how many calls compiling paid."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fxscope.diagnosis.context import Context, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.statement import code_at
from fxscope.report.findings import Measured
from fxscope.report.safe import plain_line
from fxscope.words import count

if TYPE_CHECKING:
    from rich.console import Console

    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile

_MOST_GRAPHS = 12
_BUDGET_SECONDS = 0.5  # of timed calls per graph and side
_LEAST_CALLS = 5


def measure_graphs(recording: Recording, say: Callable[[str], None]) -> list[Measured]:
    """Replay the graphs that cost most to compile.

    Inputs are made up in the recorded shapes and types, on the device of the graph where this machine has it, else on the
    CPU, so times are of this machine. The compiled side is Inductor, whatever the recorded backend was.

    Args:
        recording: What was recorded.
        say: Takes one line of progress.
    """
    compiles = [each for each in recording.compiles if each.status == "ok" and "dynamo" in each.stages]
    compiles.sort(key=lambda each: -(each.seconds or 0.0))
    if len(compiles) > _MOST_GRAPHS:
        say(f"measuring the {_MOST_GRAPHS} graphs that took longest to compile, of {len(compiles)}")
    found = []
    for compile_ in compiles[:_MOST_GRAPHS]:
        say(f"measuring {compile_.key} {compile_.function} ...")
        found.append(_measure(recording, compile_))
    return found


def _measure(recording: Recording, compile_: Compile) -> Measured:
    import torch

    from fxscope.errors import described
    from fxscope.graph.inputs import make_inputs
    from fxscope.graph.parse import parse_graph
    from fxscope.graph.rebuild import rebuild

    result = Measured(
        id=compile_.key, function=compile_.function, compile_seconds=compile_.seconds, calls=compile_.calls
    )
    graph = parse_graph(recording.text(recording.graph(compile_).event), "dynamo")
    device = (
        "cuda"
        if torch.cuda.is_available() and any("cuda" in str(each.get("device")) for each in compile_.inputs)
        else "cpu"
    )
    try:
        module = rebuild(graph, device=device)
        inputs = make_inputs(graph, device=device)
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="inductor", dynamic=False)
        with torch.no_grad():
            compiled(*inputs)
            eager_times, compiled_times = _interleaved(lambda: module(*inputs), lambda: compiled(*inputs), device)
    except Exception as error:  # noqa: BLE001 - a graph that cannot run here (its device, its custom operator) is reported, not fatal
        result.problem = described(error)
        return result
    result.eager_ms, result.compiled_ms = 1e3 * statistics.median(eager_times), 1e3 * statistics.median(compiled_times)
    saved = (result.eager_ms - result.compiled_ms) / 1e3
    if compile_.seconds and saved > 0:
        result.pays_after = math.ceil(compile_.seconds / saved)
    return result


def findings_of(recording: Recording, measured: list[Measured]) -> list[Finding]:
    """Graphs whose compiling did not pay in the recorded run, by what was measured here."""
    found = []
    for each in measured:
        if each.eager_ms is None or each.compiled_ms is None or each.calls is None or not each.compile_seconds:
            continue
        if each.pays_after is not None and each.calls >= each.pays_after:
            continue
        compile_ = recording.find(each.id)
        file, line = user_place(compile_)
        slower = each.pays_after is None
        found.append(
            Finding(
                ids=["not-amortised"],
                category="cost",
                severity="medium",
                title=f"{each.id} {each.function}: {each.compile_seconds:.1f} s of compiling, {count(each.calls, 'call')}"
                + (", and compiled is slower than eager" if slower else f", pays after {each.pays_after}"),
                file=file,
                line=line,
                function=each.function,
                code=code_at(file, line),
                cause=f"One call takes {each.eager_ms:.3f} ms eager and {each.compiled_ms:.3f} ms compiled with Inductor (measured on this machine, forward only).",
                fix="Leave this part out of torch.compile"
                + (
                    ": it is too small to gain from fusion."
                    if slower
                    else ", or run longer; caches make the next process cheaper."
                ),
                gain=f"{each.compile_seconds:.1f} s per run",
                verify=Context(recording).measure_command(),
                evidence=[Evidence(kind="compile", text=each.id, compile_key=each.id)],
                cost=each.compile_seconds,
            )
        )
    return found


def _interleaved(first: Callable[[], Any], second: Callable[[], Any], device: str) -> tuple[list[float], list[float]]:
    """Seconds of single calls of both, taken in turns so that a change of clock or load hits both."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (first, second):
        _timed(call, device)
    ends = time.perf_counter() + 2 * _BUDGET_SECONDS
    while len(times[0]) < _LEAST_CALLS or (time.perf_counter() < ends and len(times[0]) < 1000):
        for side, call in enumerate((first, second)):
            times[side].append(_timed(call, device))
    return times


def _timed(call: Callable[[], Any], device: str) -> float:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def print_measured(console: Console, measured: list[Measured]) -> None:
    """One table, one row per graph."""
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, title="measured on this machine (forward only, Inductor)", title_justify="left"
    )
    for name in ("graph", "function"):
        table.add_column(name)
    for name in ("eager ms", "compiled ms", "speed-up", "compile s", "pays after", "calls"):
        table.add_column(name, justify="right")
    notes = []
    for each in measured:
        function = plain_line(each.function)
        if each.eager_ms is None or each.compiled_ms is None:
            table.add_row(
                each.id, function, "-", "-", "-", f"{each.compile_seconds or 0:.1f}", "-", str(each.calls or "-")
            )
            notes.append(plain_line(f"{each.id}: {each.problem}"))
            continue
        pays = count(each.pays_after, "call") if each.pays_after is not None else "never"
        table.add_row(
            each.id,
            function,
            f"{each.eager_ms:.3f}",
            f"{each.compiled_ms:.3f}",
            f"{each.eager_ms / each.compiled_ms:.2f}x",
            f"{each.compile_seconds or 0:.1f}",
            pays,
            str(each.calls) if each.calls is not None else "-",
        )
    console.print()
    console.print(table)
    for note in notes:
        console.print(note)
