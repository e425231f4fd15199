"""One graph as a bug report: the scrubbed part of the log that it needs, a file that runs it alone, versions and settings."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from fxscope.diagnosis.diagnose import diagnose
from fxscope.errors import UsageError
from fxscope.graph.load import load_graph, recorded_symbols
from fxscope.graph.repro import repro
from fxscope.names import EVENT_CONFIG, EVENT_SESSION, SESSION_FILE
from fxscope.recording.lookup import parse_stage
from fxscope.recording.process import triple_of
from fxscope.recording.recording import open_recording
from fxscope.recording.state import event_number, split_number
from fxscope.report.safe import plain
from fxscope.report.scrub import scrub

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile
    from fxscope.report.scrub_rules import Topic
    from fxscope.trace.index import Event

# Events without a compile id that a reader needs: interned strings, versions, settings.
_GLOBAL = frozenset({EVENT_SESSION, EVENT_CONFIG, "torch_version"})


def bundle(path: str | Path, graph_id: str, stage: str, out: Path, hide: frozenset[Topic]) -> list[str]:
    """Write a zip file; the names of what is in it.

    Everything in it is made from the scrubbed copy, so nothing that was to be removed can be left in one of its parts.

    Args:
        path: A recording, a folder of logs or one log.
        graph_id: The compile, as ``--graph`` names it.
        stage: Of the graph that ``repro.py`` runs; ``forward#1`` is the second of its stage.
        out: The zip file; an existing one is not overwritten.
        hide: Which of source, paths, names and hosts to remove.

    Raises:
        UsageError: There is no such graph, or ``out`` exists.
        UnreadableError: There is nothing to read.
    """
    if out.exists():
        raise UsageError(f"{out} exists already; name another file with -o")
    kind, index = parse_stage(stage)
    recording = open_recording(path)
    compile_ = recording.find(graph_id)
    known = _known_event(recording, compile_, kind, index)
    log = recording.log_of(known)
    frame = recording.event(known).envelope
    # Outside any frame only the place in the log tells.
    outside = set()
    if triple_of(frame) == (None, None, None):
        outside = {number for number, _ in recording.events() if recording.key_of(number) == compile_.key}
    log_number, _ = split_number(known)
    recording.close()

    def wanted(event: Event) -> bool:
        if event.name == "str" or event_number(log_number, event.number) in outside:
            return True
        if event.envelope.get("frame_id") is None:
            return event.name == "artifact" and isinstance(event.value, dict) and event.value.get("name") in _GLOBAL
        return all(event.envelope.get(key) == frame.get(key) for key in ("frame_id", "compiled_autograd_id"))

    with tempfile.TemporaryDirectory(prefix="fxscope-") as scratch:
        folder = Path(scratch) / "log"
        scrub(log, folder, hide, wanted)
        copy = open_recording(folder)
        again = copy.find(compile_.id)
        parts: dict[str, str] = {}
        run = "No graph was made of this frame, so none can be run alone: the log and the failure are all there is."
        if compile_.stages:
            parts["graph.txt"] = plain(copy.text(copy.graph(again, kind, index).event))
            run = "`python repro.py` runs the graph; `--backend inductor` compares."
            try:
                symbols = recorded_symbols(copy, again)
                graph = load_graph(copy, again, kind, index)
                parts["repro.py"] = repro(graph, title=f"Graph {again.id}, stage {stage}", symbols=symbols)
            except UsageError as error:
                run = f"`repro.py` could not be written: {error}"
            run += f"\n`graph.txt` is the graph as PyTorch printed it (stage {stage})."
        parts["issue.md"] = _issue(copy, again, run)
        try:
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
                for name, content in parts.items():
                    file.writestr(name, content)
                for each in sorted(folder.iterdir()):
                    if each.name != SESSION_FILE:
                        file.write(each, f"log/{each.name}")
                return file.namelist()
        except OSError:
            out.unlink(missing_ok=True)  # half an archive is nobody's, and would be in the way of the next try
            raise


def _known_event(recording: Recording, compile_: Compile, stage: str, index: int) -> int:
    """The event with the graph or, of a frame that failed before it had one, the one that began or ended the compile."""
    if not compile_.stages:
        for number, name in recording.events():
            if name in ("dynamo_start", "compilation_metrics") and recording.key_of(number) == compile_.key:
                return number
    return recording.graph(compile_, stage, index).event


def _issue(recording: Recording, compile_: Compile, run: str) -> str:
    """The text to paste into an issue: what happened, how to run it, with what."""
    session = recording.session
    lines = [f"# torch.compile: {compile_.function} ({compile_.status}), compile {compile_.id}", ""]
    for failure in recording.failures:
        if failure.compile_key == compile_.key:
            lines += [
                "## Failure",
                "",
                f"{failure.phase}: {failure.type}",
                "",
                "```",
                plain(failure.message),
                "```",
                "",
            ]
    findings = [
        f
        for f in diagnose(recording)
        # Of the whole run only this frame is here: that nothing else was compiled is nobody's fault.
        if f.category != "nothing-compiled" and any(e.compile_key == compile_.key for e in f.evidence)
    ]
    if findings:
        lines += ["## What fxscope says", ""]
        lines += [f"- **{plain(f.title)}** ({', '.join(f.ids)}) {f.site}: {plain(f.cause)}" for f in findings]
        lines.append("")
    lines += ["## To reproduce", "", run, ""]
    lines += [
        "`log/` is the part of the structured trace log that belongs to this frame; `tlparse` and `fxscope report` read it.",
        "",
    ]
    lines += ["## Versions and settings", "", f"- torch {session.torch}", f"- Python {session.python}"]
    lines += [f"- device {device}" for device in session.devices]
    lines += [f"- backend {compile_.backend or session.backend or 'unknown'}"]
    lines += [f"- `{name} = {value!r}`" for name, value in sorted(session.config.items())]
    return "\n".join(lines) + "\n"
