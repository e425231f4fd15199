"""The recording as the app sees it: snapshots for the views, and whatever costs time, always called on a worker."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fxscope.errors import FxscopeError, UnreadableError, described
from fxscope.names import OUTPUT_FILE
from fxscope.recording.records import (
    Artifact,
    Compile,
    Failure,
    GraphBreak,
    Guard,
    LimitHit,
    Recompile,
    Session,
    ShapeEvent,
    Totals,
)

if TYPE_CHECKING:
    from fxscope.diagnosis.findings import Finding
    from fxscope.graph.records import Graph
    from fxscope.recording.export import ExportReport
    from fxscope.recording.recording import Recording
    from fxscope.report.blocks import Block as ReportBlock

LARGEST_SOURCE = 4_000_000  # bytes of a source file that is read for the source pane
_MOST_OUTPUT = 30_000_000  # bytes of the program's output that a view shows
DIAGNOSE_EVERY = 1.0  # seconds between diagnoses while a program runs


class Snapshot(NamedTuple):
    """The records at one moment. Views keep it and never look at the recording itself."""

    session: Session
    totals: Totals
    compiles: tuple[Compile, ...] = ()
    graph_breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    limit_hits: tuple[LimitHit, ...] = ()
    failures: tuple[Failure, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    findings: tuple[Finding, ...] = ()
    error: str = ""  # why nothing can be read, "" where it can
    taken: float = 0.0

    def of_rank(self, rank: int | None) -> Snapshot:
        """Only what one rank did; None for all. Totals stay those of the whole run."""
        if rank is None:
            return self
        keys = {compile_.key for compile_ in self.compiles if compile_.rank == rank}
        return self._replace(
            compiles=tuple(c for c in self.compiles if c.rank == rank),
            graph_breaks=tuple(b for b in self.graph_breaks if not b.compile_keys or keys & set(b.compile_keys)),
            recompiles=tuple(r for r in self.recompiles if r.rank == rank),
            limit_hits=tuple(h for h in self.limit_hits if h.rank == rank),
            failures=tuple(f for f in self.failures if f.rank == rank),
        )

    def compile(self, key: str | None) -> Compile | None:
        """The compile with a key."""
        return next((c for c in self.compiles if c.key == key), None)


class Parts(NamedTuple):
    """What only some recordings have."""

    blocks: Sequence[ReportBlock] = ()
    export: ExportReport | None = None


class SourceFile(NamedTuple):
    """Source to show: the file's text where it is readable, and why not where it is not."""

    text: str | None
    note: str


class Store:
    """Opens and follows one recording. Every method may block: call them on workers only."""

    def __init__(self, path: str | Path, *, live: bool = False) -> None:
        self.path = str(path)
        self.live = live  # we run the program ourselves: nothing there yet is no error
        self._recording: Recording | None = None
        self._lock = threading.RLock()
        self._graphs: OrderedDict[tuple[str, str, int], Graph] = OrderedDict()
        self._sources: dict[str, SourceFile] = {}
        self._findings: tuple[Finding, ...] = ()
        self._diagnosed = 0.0
        self._stale = False

    def read(self, *, force: bool = False) -> Snapshot | None:
        """Open the recording, or take in what is new; None where nothing changed."""
        from fxscope.recording.recording import open_recording

        with self._lock:
            try:
                if self._recording is None:
                    self._recording = open_recording(self.path)
                    changed = True
                else:
                    changed = self._recording.refresh()
            except UnreadableError as error:
                if self._recording is not None:  # deleted while open: keep showing what was read
                    return self._snapshot(f"{error}") if force or self._note_once(str(error)) else None
                waiting = "waiting for the program's first compile" if self.live else str(error)
                return Snapshot(Session(path=self.path), Totals(), error=waiting, taken=time.time())
            if not changed and not force and not self._stale:
                return None
            return self._snapshot("")

    _noted = ""

    def _note_once(self, text: str) -> bool:
        fresh, self._noted = text != self._noted, text
        return fresh

    def _snapshot(self, error: str) -> Snapshot:
        recording = self._recording
        assert recording is not None
        try:
            self._diagnose(recording)
        except Exception as problem:  # noqa: BLE001 - what was recorded is worth showing without its diagnosis
            error = error or f"the diagnosis failed: {describe(problem)}"
        return Snapshot(
            session=recording.session,
            totals=recording.totals,
            compiles=tuple(recording.compiles),
            graph_breaks=tuple(recording.graph_breaks),
            recompiles=tuple(recording.recompiles),
            limit_hits=tuple(recording.limit_hits),
            failures=tuple(recording.failures),
            artifacts=tuple(recording.artifacts),
            findings=self._findings,
            error=error,
            taken=time.time(),
        )

    def _diagnose(self, recording: Recording) -> None:
        """Findings, at most once a second while the run is live."""
        self._stale = False
        from fxscope.diagnosis.diagnose import diagnose, explain_records

        now = time.monotonic()
        self._stale = now - self._diagnosed < DIAGNOSE_EVERY
        if self._stale:
            return
        self._diagnosed = now
        explain_records(recording)
        found = diagnose(recording)
        if recording.session.state == "live":  # what has not happened yet is no finding
            found = [finding for finding in found if finding.category != "nothing-compiled"]
        self._findings = tuple(found)
        self._diagnosed = time.monotonic()

    # what is loaded on demand

    def _opened(self) -> Recording:
        if self._recording is None:
            raise UnreadableError(f"{self.path}: nothing has been read yet")
        return self._recording

    def text(self, event: int) -> str:
        """Payload of an event."""
        with self._lock:
            return self._opened().text(event)

    def guards(self, compile_: Compile) -> list[Guard]:
        """Guard tree of an entry."""
        with self._lock:
            return self._opened().guards(compile_)

    def timeline(self) -> list[dict[str, Any]]:
        """Compile phases as trace events."""
        with self._lock:
            return list(self._opened().timeline())

    def shapes(self) -> list[ShapeEvent]:
        """Symbolic sizes: made, fixed, guarded."""
        with self._lock:
            return list(self._opened().shape_events)

    def metrics(self, compile_: Compile) -> dict[str, Any]:
        """Everything that torch measured of a compile."""
        with self._lock:
            return self._opened().metrics(compile_)

    def parts(self) -> Parts:
        """What the report says beside findings and totals: exports, ranks, kernels and their nodes, vLLM, links."""
        from fxscope.report.blocks import Block, blocks
        from fxscope.report.tallies import export_of

        with self._lock:
            try:
                return Parts(list(blocks(self._opened(), stacks=False)), export_of(self._opened()))
            except Exception as problem:  # noqa: BLE001 - told where the parts would be: the rest is worth showing without them
                return Parts([Block(anchor="problem", title="Not shown", lines=[describe(problem)], what="lines")])

    def kernel_maps(self, compile_: Compile, stage: str) -> dict[str, tuple[str, ...]]:
        """Kernels to post-grad nodes, as Inductor's provenance logs say; empty where it logged none."""
        from fxscope.recording.provenance import read_provenance

        with self._lock:
            found = read_provenance(self._opened(), compile_)
        return {kernel.name: kernel.post_grad for code in found if code.stage == stage for kernel in code.kernels}

    def graph_text(self, compile_: Compile, stage: str, index: int = 0) -> str:
        """The printed text of a stage."""
        with self._lock:
            recording = self._opened()
            return recording.text(recording.graph(compile_, stage, index).event)

    def graph(self, compile_: Compile, stage: str, index: int = 0) -> Graph:
        """A parsed graph, the last few kept."""
        key = (compile_.key, stage, index)
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key]
        from .parsing import parse

        graph = parse(self.graph_text(compile_, stage, index), stage, compile_.key)
        self._graphs[key] = graph
        while len(self._graphs) > 4:
            self._graphs.popitem(last=False)
        return graph

    def output(self) -> bytes:
        """The end of what the recorded program printed, 30 MB at most; empty where that was not kept."""
        path = os.path.join(self.path, OUTPUT_FILE)
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_OUTPUT))
            return file.read()

    def script(self) -> str:
        """How to name the recorded program in a command."""
        from fxscope.diagnosis.context import Context

        with self._lock:
            return Context(self._opened()).script

    def source(self, path: str) -> SourceFile:
        """A source file of the recorded program, as it is on this machine now."""
        if path not in self._sources:
            self._sources[path] = read_source(path)
        return self._sources[path]


def read_source(path: str) -> SourceFile:
    """Read a source file that a log names. A log is a stranger's: only ordinary text files are opened."""
    if not path:
        return SourceFile(None, "the log names no file")
    try:
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or not path.endswith((".py", ".pyi", ".ipynb", ".txt")):
            return SourceFile(None, f"{path} is no source file")
        if facts.st_size > LARGEST_SOURCE:
            return SourceFile(None, f"{path} is too large to show ({facts.st_size:,} bytes)")
        with open(path, encoding="utf-8", errors="replace") as file:
            return SourceFile(file.read(), "")
    except FileNotFoundError:
        return SourceFile(None, f"{path} is not on this machine: only lines that the log carries are shown")
    except (OSError, ValueError) as error:
        return SourceFile(None, f"{path}: {error}")


def describe(error: BaseException) -> str:
    """One line for an error that a worker met; of ours it is whole, of others as much as a screen has room for."""
    return str(error) if isinstance(error, FxscopeError) else described(error)[:300]
