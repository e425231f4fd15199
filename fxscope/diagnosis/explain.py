"""``fxscope.explain(fn, *args)``: what torch.compile does to a function over several calls, with the fixes."""

from __future__ import annotations

import importlib
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from fxscope.diagnosis.diagnose import diagnose, explain_records
from fxscope.diagnosis.findings import Finding
from fxscope.recording.recording import Recording, open_recording
from fxscope.recording.records import Totals
from fxscope.words import count


class Explanation(msgspec.Struct, kw_only=True):
    """What happened in the calls of one function.

    Attributes:
        totals: Graphs, breaks, recompiles and the like.
        findings: What is wrong, worst first.
        recording: The whole recording, for more.
        error: The exception that ended the calls, None where there was none.
    """

    totals: Totals
    findings: list[Finding]
    recording: Recording
    error: BaseException | None = None

    def __str__(self) -> str:
        """The short report."""
        totals = self.totals
        lines = [
            (
                f"{count(totals.graphs, 'graph')}, {count(totals.graph_breaks, 'graph break')} at {count(totals.break_sites, 'site')}, "
                f"{count(totals.recompiles, 'recompile')}, {count(totals.limit_hits, 'limit hit')}, {totals.compile_seconds:.1f} s of compiling"
            )
        ]
        for finding in self.findings:
            lines.append(f"\n[{finding.severity}] {finding.site} {finding.title}")
            for text in (finding.cause, *finding.fix.split("\n")):
                # Code keeps its lines; sentences are wrapped.
                lines.extend(
                    ["  " + text]
                    if text.startswith("    ")
                    else textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="  ")
                )
        if not self.findings:
            lines.append("Nothing is wrong.")
        if self.error is not None:
            lines.append(f"\nThe calls ended with {type(self.error).__name__}: {self.error}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        from fxscope.diagnosis.html import findings_table

        return findings_table(self.findings, self.totals)


def explain(
    fn: Callable[..., Any],
    *args: Any,
    calls: Iterable[tuple[Any, ...]] = (),
    backend: str = "eager",
    path: str | Path | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compile a function, call it, and say what torch.compile did and what to change.

    Unlike ``torch._dynamo.explain`` it takes several calls, so that recompiles show, and it leaves the functions that the
    program compiled before alone.

    Args:
        fn: A function or nn.Module; one that is compiled already is called as it is.
        args: Arguments of the first call, made twice (the second one shows what changes by itself).
        calls: Further calls, each a tuple of positional arguments (a last element that is a dict is not special).
        backend: Backend of torch.compile; "eager" costs least and shows the same breaks and recompiles.
        path: Where to keep the recording; a temporary folder by default.
        kwargs: Keyword arguments of every call.
    """
    # Loaded by name: reading never imports torch, and this is the one function here that runs a program.
    torch = importlib.import_module("torch")
    record = importlib.import_module("fxscope.capture.api").record
    target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="fxscope-")) / "explain.fxscope"
    compiled = (
        fn
        if hasattr(fn, "_torchdynamo_orig_callable") or type(fn).__name__ == "OptimizedModule"
        else torch.compile(fn, backend=backend)
    )
    error: BaseException | None = None
    with record(str(target)):
        try:
            if args or kwargs or not calls:
                compiled(*args, **kwargs)
                compiled(*args, **kwargs)
            for call in calls:
                compiled(*call, **kwargs)
        except Exception as caught:  # noqa: BLE001 - the explanation is about what the function does, its failure included
            error = caught
    recording = open_recording(target)
    explain_records(recording)
    return Explanation(totals=recording.totals, findings=diagnose(recording), recording=recording, error=error)
