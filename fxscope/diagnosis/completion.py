"""Whether a run is worth judging: a program that failed, or that compiled nothing, is within every budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxscope.diagnosis.budget import Baseline, Violation
from fxscope.diagnosis.diagnose import diagnose
from fxscope.recording.ending import doubts
from fxscope.recording.session_file import read_session_file
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


def incomplete(
    recording: Recording, baseline: Baseline | None = None, *, allow_failed: bool = False, allow_nothing: bool = False
) -> list[Violation]:
    """Why counts of this run say nothing: it failed, has no end or went on in another recording, torch.compile failed in it, or nothing was compiled.

    Args:
        recording: The run. An exit code that nobody recorded (a bare TORCH_TRACE log) is no failure.
        baseline: Failures that it knows are allowed; where it knows no graph, so is a run without any.
        allow_failed: The program may fail.
        allow_nothing: The program may compile nothing.
    """
    found = []
    totals, code = recording.totals, recording.session.exit_code
    new_failures = totals.failures - (baseline.failures if baseline is not None else 0)
    problem = ""
    if not allow_failed and code not in (0, None):
        problem = f"the program failed with exit code {code}: what it did not reach was not counted"
    elif not allow_failed and new_failures > 0 and baseline is None:  # beyond a baseline they are its own violation
        problem = f"torch.compile failed: {count(totals.failures, 'failure')}, and what failed runs eager or not at all"
    open_ = [] if allow_failed else open_ends(recording)
    if not problem and open_:
        problem = "; ".join(open_)
    if problem:
        file, line, details = _first_failure(recording)
        message = f"{problem} (--allow-failed to judge it all the same)"
        found.append(Violation(rule="program", message=message, details=details, file=file, line=line))
    if not allow_nothing and totals.graphs == 0 and baseline is None:
        finding = next((each for each in diagnose(recording) if "nothing-compiled" in each.ids), None)
        found.append(
            Violation(
                rule="compiled",
                message="no graph was compiled, so every budget holds (--allow-nothing where that is meant)",
                details=(f"{finding.site or 'run'}: {finding.cause}", *finding.fix.split("\n")) if finding else (),
                file=finding.file if finding else "",
                line=finding.line if finding else 0,
            )
        )
    return found


def open_ends(recording: Recording) -> list[str]:
    """Why the run may hold more than its recording: it was killed, may run elsewhere, or its job was started again."""
    path = str(recording.path)
    return doubts(path, read_session_file(path))


def _first_failure(recording: Recording) -> tuple[str, int, tuple[str, ...]]:
    if not recording.failures:
        return "", 0, ()
    first = recording.failures[0]
    message = next((line.strip() for line in first.message.splitlines() if line.strip()), "")
    place = f"{first.file.rsplit('/', 1)[-1]}:{first.line}: " if first.file else ""
    return first.file, first.line, (f"{place}{first.type}: {message}"[:300],)
