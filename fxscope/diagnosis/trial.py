"""What a change did to a program: outcomes of runs, and the verdict on each against the run as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from fxscope.errors import UsageError
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording

Verdict = Literal["better", "same", "worse", "mixed", "changed results", "fails"]
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf")
_TOLERANCE = 1e-3  # relative; compiled code may sum in another order
_TIME_SHARE = 0.5  # times that differ by less than this are the same: one run on a busy machine says no more
_TIME_SECONDS = 2.0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of how a program is run.

    Attributes:
        name: As given: ``dynamic``, ``limit:64``, ``config:allow_rnn=True``.
        options: Options for ``fxscope run``.
        environment: Variables for the program.
    """

    name: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)


class Outcome(msgspec.Struct, kw_only=True):
    """What one run did.

    Attributes:
        skipped: Frames that Dynamo gave up.
        seconds: Wall-clock seconds of the whole run.
        output: Standard output of the program.
        problem: First line of what went wrong, "" where nothing did.
        recording: Path of its recording.
    """

    change: str
    exit_code: int
    graphs: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    limit_hits: int = 0
    failures: int = 0
    skipped: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    step_seconds: float | None = None
    output: str = ""
    problem: str = ""
    recording: str = ""


class Judged(msgspec.Struct, kw_only=True):
    """An outcome with its verdict, and what made it."""

    verdict: Verdict
    reasons: list[str]
    outcome: Outcome


def parse_change(text: str) -> Change:
    """A change as ``--what`` names it.

    Raises:
        UsageError: Unknown, or without what it needs.
    """
    kind, _, value = text.partition(":")
    if text == "disable":
        return Change(name=text, environment={"TORCH_COMPILE_DISABLE": "1"})
    if kind in ("dynamic", "no-dynamic") and not value:
        return Change(name=text, options=(f"--{kind}",))
    if kind == "limit" and value.isdecimal():
        return Change(
            name=text,
            options=(
                "--config",
                f"recompile_limit={value}",
                "--config",
                f"accumulated_recompile_limit={max(256, 8 * int(value))}",
            ),
        )
    if kind in ("mode", "backend") and value:
        return Change(name=text, options=(f"--{kind}", value))
    if kind == "config" and "=" in value:
        return Change(name=text, options=("--config", value))
    if kind in ("mark-dynamic", "mark-unbacked") and value:
        name, _, dim = value.partition(":")
        source = name if "[" in name else f"L['{name}']"
        variable = "TORCH_COMPILE_DYNAMIC_SOURCES" if kind == "mark-dynamic" else "TORCH_COMPILE_UNBACKED_SOURCES"
        return Change(name=text, environment={variable: source + (f":{dim}" if dim else "")})
    raise UsageError(
        f"--what {text}: unknown; there are disable, dynamic, no-dynamic, limit:N, mode:M, backend:B, config:NAME=VALUE, mark-dynamic:NAME[:DIM], mark-unbacked:NAME[:DIM]"
    )


def outcome_of(
    change: str, recording: Recording | None, exit_code: int, seconds: float, output: str, problem: str, path: str
) -> Outcome:
    """The outcome of one run; ``recording`` is None where none could be read."""
    found = Outcome(change=change, exit_code=exit_code, seconds=seconds, output=output, problem=problem, recording=path)
    if recording is None:
        return found
    totals = recording.totals
    found.graphs, found.graph_breaks, found.recompiles = totals.graphs, totals.graph_breaks, totals.recompiles
    found.limit_hits, found.failures, found.compile_seconds = totals.limit_hits, totals.failures, totals.compile_seconds
    found.skipped = sum(compile_.status == "skipped" for compile_ in recording.compiles)
    timed = [(each.call_seconds, each.calls or 0) for each in recording.compiles if each.call_seconds is not None]
    calls = sum(number for _, number in timed)
    if calls:
        # Per round of all entries: the sum over entries of their mean, weighted by how often each ran.
        found.step_seconds = sum(mean * number for mean, number in timed) / max(number for _, number in timed)
    return found


def judge(base: Outcome, found: Outcome, *, reproducible: bool = True) -> Judged:
    """The verdict on one outcome.

    Args:
        base: The run as it is.
        found: The run with the change.
        reproducible: Two runs as it is print the same numbers, so another number is the change's doing.
    """
    better: list[str] = []
    worse: list[str] = []
    if found.exit_code == 0 and base.exit_code != 0:
        better.append(f"exit code {base.exit_code} -> 0")
    for name, noun in (
        ("failures", "failures"),
        ("limit_hits", "limit hits"),
        ("skipped", "skipped frames"),
        ("graph_breaks", "breaks"),
        ("recompiles", "recompiles"),
    ):
        before, after = getattr(base, name), getattr(found, name)
        if before != after:
            (better if after < before else worse).append(f"{noun} {before} -> {after}")
    if base.graphs == 0 and found.graphs > 0:
        better.append(f"graphs 0 -> {found.graphs}")
    elif base.graphs > 0 and found.graphs == 0:
        worse.append(f"graphs {base.graphs} -> 0")
    for name, noun in (("compile_seconds", "compile time"), ("step_seconds", "step time")):
        before, after = getattr(base, name), getattr(found, name)
        if before is None or after is None or (name == "compile_seconds" and abs(after - before) < _TIME_SECONDS):
            continue
        if abs(after - before) > _TIME_SHARE * before:
            (better if after < before else worse).append(f"{noun} {before:.3g} s -> {after:.3g} s")
    if found.exit_code != 0:
        # How far each run came decides its counts, so they judge nothing; they are told.
        reasons = [f"exit code {found.exit_code}", *([found.problem] if found.problem else [])]
        if base.exit_code != 0:
            reasons[0] += f", as it is {base.exit_code}: two runs that did not end well cannot be compared"
            reasons += [*better, *worse]
        return Judged(verdict="fails", reasons=reasons, outcome=found)
    difference = output_difference(base.output, found.output) if reproducible and base.exit_code == 0 else None
    if difference is not None:
        return Judged(verdict="changed results", reasons=[difference, *better, *worse], outcome=found)
    verdict: Verdict = "mixed" if better and worse else "better" if better else "worse" if worse else "same"
    return Judged(verdict=verdict, reasons=[*better, *worse], outcome=found)


def output_difference(first: str, second: str) -> str | None:
    """The first difference of two outputs, numbers compared with a tolerance of 1e-3; None where they agree."""
    a, b = first.splitlines(), second.splitlines()
    for number, (left, right) in enumerate(zip(a, b, strict=False), 1):
        if left != right and not _same_line(left, right):
            return f"output line {number}: {left.strip()[:60]!r} -> {right.strip()[:60]!r}"
    if len(a) != len(b):
        return f"output has {count(len(a), 'line')} -> {len(b)}"
    return None


def _same_line(left: str, right: str) -> bool:
    if _NUMBER.sub("#", left) != _NUMBER.sub("#", right):
        return False
    for one, two in zip(_NUMBER.findall(left), _NUMBER.findall(right), strict=True):
        x, y = float(one), float(two)
        if one != two and not abs(x - y) <= _TOLERANCE * max(abs(x), abs(y), 1e-6):
            return False
    return True
