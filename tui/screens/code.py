"""Code: what Inductor generated, the bytecode before and after, and every other text of a compile."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from textual.app import ComposeResult

from fxscope.names import EVENT_CONFIG, EVENT_END, EVENT_LAUNCHES, EVENT_SESSION
from fxscope.recording.lookup import stage_name
from fxscope.recording.records import Compile

from ..frames import size_text
from ..provenance import Provenance
from ..store import Snapshot
from ..widgets.code_view import CodeView
from ..widgets.diff_view import DiffRow, DiffView, align
from ..widgets.line_view import LineView
from ..widgets.virtual_table import Column, Rows
from .pick import PickScreen
from .view import View, fact

METRICS = "compilation_metrics"  # no text of the log, but what torch measured of the compile, as JSON
_SKIP = {EVENT_LAUNCHES, EVENT_SESSION, EVENT_CONFIG, EVENT_END}


class CodeText(NamedTuple):
    """One text of a compile."""

    label: str
    event: int
    size: int
    language: str
    stage: str = ""
    of_run: bool = False  # it belongs to no compile


def texts_of(compile_: Compile | None, snapshot: Snapshot) -> list[CodeText]:
    """Every text of a compile, generated code first, then bytecode, then the rest; then what belongs to no compile."""
    code = [
        CodeText(stage_name(graph.stage, graph.index), graph.event, graph.size, "python", graph.stage)
        for graph in (compile_.graphs if compile_ is not None else ())
    ]
    code.sort(key=lambda text: not text.stage.endswith(".code"))
    taken = {text.event for text in code}
    others = [
        CodeText(artifact.name, artifact.event, artifact.size, language_of(artifact.name))
        for artifact in snapshot.artifacts
        if compile_ is not None
        and artifact.compile_key == compile_.key
        and artifact.event not in taken
        and artifact.name not in _SKIP
    ]
    of_run = [
        CodeText(artifact.name, artifact.event, artifact.size, language_of(artifact.name), of_run=True)
        for artifact in snapshot.artifacts
        if artifact.compile_key is None and not artifact.name.startswith("fxscope.")
    ]
    if compile_ is not None and compile_.metrics:
        others.append(CodeText(METRICS, -1, 0, "python"))
    others.sort(key=lambda text: "BYTECODE" not in text.label)
    generated = [text for text in code if text.stage.endswith(".code")]
    graphs = [text for text in code if not text.stage.endswith(".code")]
    return [*generated, *others, *graphs, *of_run]


def same_text(text: CodeText, snapshot: Snapshot, key: str | None) -> list[tuple[str, CodeText]]:
    """The text of the same name of every other compile, with the compile's key."""
    others = [compile_ for compile_ in snapshot.compiles if compile_.key != key]
    found = [
        (compile_.key, CodeText(text.label, graph.event, graph.size, "python", graph.stage))
        for compile_ in others
        for graph in compile_.graphs
        if stage_name(graph.stage, graph.index) == text.label
    ]
    if text.label == METRICS:
        return [(compile_.key, text) for compile_ in others if compile_.metrics]
    if not text.stage:
        found += [
            (artifact.compile_key, text._replace(event=artifact.event, size=artifact.size))
            for artifact in snapshot.artifacts
            if artifact.name == text.label and artifact.compile_key not in (None, key)
        ]
    return found


def language_of(name: str) -> str:
    """Language of an artifact by its name."""
    if "BYTECODE" in name:
        return "bytecode"
    return "text" if name.endswith(("reason", "reasons", "error", "metadata")) else "python"


class CodeTextView(View):
    """One text of the selected compile."""

    NAME = "code"
    TERMS = "What the compiler wrote: Inductor's kernels, Dynamo's bytecode, other texts."
    EMPTY = (
        "This compile left no code.\n\n"
        "Inductor's output appears here for the inductor backend; other backends write none. Bytecode is logged by torch itself."
    )
    DEFAULT_CSS = """
    CodeTextView #code-diff { display: none; height: 1fr; }
    CodeTextView.-diff #code-diff { display: block; }
    CodeTextView.-diff #code-text { display: none; }
    """
    about_compile = True

    def __init__(self) -> None:
        super().__init__()
        self.texts: Sequence[CodeText] = ()
        self.current: CodeText | None = None
        self.provenance: Provenance | None = None
        self._wanted = "forward.code"
        self._pending_node: str | None = None

    def body(self) -> ComposeResult:
        """The text; a comparison in its place."""
        yield CodeView(id="code-text").add_class("body")
        yield DiffView(id="code-diff")

    @property
    def code(self) -> CodeView:
        """The text."""
        return self.query_one(CodeView)

    def take(self, snapshot: Snapshot) -> None:
        """A live compile may have more texts."""
        self.snapshot = snapshot
        self._list()

    def compile_changed(self) -> None:
        """Another compile: its text of the same kind."""
        self.current = None
        self.remove_class("-diff")
        self._list()

    def choose_stage(self, stage: str, index: int) -> None:
        """Show a stage's text."""
        label = stage_name(stage, index)
        found = next((text for text in self.texts if text.label == label), None)
        if found is not None:
            self._show(found)

    def show_record(self, kind: str, index: int) -> None:
        """Show the text of an event."""
        found = next((text for text in self.texts if text.event == index), None)
        if kind == "text" and found is not None:
            self._show(found)

    def _list(self) -> None:
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        self.texts = texts_of(compile_, self.snapshot) if self.snapshot else ()
        if not self.texts:
            self.empty()
            return
        if self.current is None or self.current not in self.texts:
            self._show(next((text for text in self.texts if text.label == self._wanted), self.texts[0]), chosen=False)

    def _show(self, text: CodeText, *, chosen: bool = True) -> None:
        self.current = text
        if chosen:  # else another compile would be asked for what is only the first text of this one
            self._wanted = text.label
        self.remove_class("-diff")
        store, read = self.scope.store, self._reader(self.compile_key)
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None

        def job() -> tuple[str, Provenance | None]:
            code = read(text)
            if not text.stage.endswith(".code") or compile_ is None:
                return code, None
            return code, Provenance(code, store.kernel_maps(compile_, text.stage))

        self.load(job, lambda result: self._loaded(text, *result))

    def _reader(self, key: str | None) -> Callable[[CodeText], str]:
        """What reads a text of a compile, on a worker."""
        store = self.scope.store
        compile_ = self.snapshot.compile(key) if self.snapshot else None

        def read(text: CodeText) -> str:
            if text.label == METRICS and compile_ is not None:
                return json.dumps(store.metrics(compile_), indent=2, default=str)
            return store.text(text.event)

        return read

    def _loaded(self, text: CodeText, code: str, provenance: Provenance | None) -> None:
        self.filled()
        self.provenance = provenance
        self.code.show(code, text.language)
        self._tell_text(text)
        if self._pending_node is not None:
            self._go(self._pending_node)

    def _tell_text(self, text: CodeText) -> None:
        provenance = self.provenance
        number = self.texts.index(text) + 1 if text in self.texts else 0
        cells = [
            [("text ", "dim"), (f"\u2039{text.label}\u203a", "accent"), (f" ({number}/{len(self.texts)})", "dim")],
            fact("of", "the run") if text.of_run else fact("compile", self.compile_key),
            fact("lines", f"{self.code.count():,}"),
            *([fact("size", size_text(text.size))] if text.size else []),
        ]
        if provenance is not None and provenance.nodes_of:
            cells.append(fact("kernels", len(provenance.nodes_of)))
        self.tell(*cells)

    def do_stage(self, step: int) -> None:
        """Choose among the texts; with few of them, go to the next."""
        if len(self.texts) < 2 or self.current not in self.texts:
            self.notify("this compile has only one text")
            return
        at = self.texts.index(self.current)
        if len(self.texts) <= 3 or step < 0:
            self._show(self.texts[(at + step) % len(self.texts)])
            return
        rows = [(text.label, size_text(text.size) if text.size else "") for text in self.texts]
        columns = (Column("text", flex=True, keep=9), Column("size", right=True))

        def done(picked: int | None) -> None:
            if picked is not None:
                self._show(self.texts[picked])

        self.app.push_screen(
            PickScreen(f"Texts of {self.compile_key or 'the run'}", Rows(columns, rows), start=at), done
        )

    def do_compare(self) -> None:
        """Choose another text of this compile, or the same one of another compile."""
        if self.current is None or self.snapshot is None:
            return
        choices = [(self.compile_key or "", text) for text in self.texts if text != self.current]
        choices += same_text(self.current, self.snapshot, self.compile_key)
        rows = [(key, text.label, size_text(text.size) if text.size else "") for key, text in choices]
        columns = (Column("compile", keep=9), Column("text", flex=True, keep=9), Column("size", right=True))

        def done(picked: int | None) -> None:
            if picked is not None:
                self._compare(*choices[picked])

        self.app.push_screen(PickScreen(f"Compare {self.current.label} with", Rows(columns, rows)), done)

    def _compare(self, key: str, other: CodeText) -> None:
        read_mine, read, mine = self._reader(self.compile_key), self._reader(key), self.current
        assert mine is not None
        titles = (f"{self.compile_key or ''} {mine.label}", f"{key} {other.label}")

        def show(rows: list[DiffRow]) -> None:
            if self.current is not mine:
                return  # meanwhile another text was chosen
            self.add_class("-diff")
            diff = self.query_one(DiffView)
            diff.show(rows, titles)
            diff.focus()
            changes = sum(row.sign in "+-~" for row in rows)
            self.tell(
                [(f"{titles[0]} \u2194 {titles[1]}", "accent")],
                fact("lines that differ", f"{changes:,}"),
                [("n next, esc back", "dim")],
            )

        def job() -> list[DiffRow]:
            return align(read_mine(mine).split("\n"), read(other).split("\n"), 3)

        self.load(job, show, group="compare")

    def back(self) -> bool:
        """Leave the comparison."""
        if not self.has_class("-diff"):
            return False
        self.remove_class("-diff")
        self.code.focus()
        if self.current is not None:
            self._tell_text(self.current)
        return True

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        """From a kernel to its node."""
        event.stop()
        if event.view is not self.code:
            return
        if self.provenance is None or self.current is None:
            self.notify("only Inductor's output leads back to graph nodes")
            return
        nodes = self.provenance.nodes_at(self.code.line_number)
        if not nodes:
            self.notify("no kernel on this line whose nodes are known")
            return
        stage = self.current.stage.replace(".code", ".post_grad")

        def open_node(picked: int | None) -> None:
            if picked is not None:
                self.scope.show_node(stage, nodes[picked])

        if len(nodes) == 1:
            open_node(0)
            return
        rows = Rows((Column("node", flex=True),), [(name,) for name in nodes])
        self.app.push_screen(PickScreen("Nodes of this kernel", rows, f"in the {stage} graph"), open_node)

    def show_node(self, stage: str, node: str) -> None:
        """Go to the kernel that computes a node."""
        label = stage.split(".")[0] + ".code"
        found = next((text for text in self.texts if text.label == label), None)
        if found is None:
            self.notify(f"no generated code of {stage.split('.')[0]} was logged")
            return
        self._pending_node = node
        if found == self.current and self.provenance is not None:
            self._go(node)
        else:
            self._show(found)

    def _go(self, node: str) -> None:
        self._pending_node = None
        lines = self.provenance.lines_of.get(node) if self.provenance else None
        if lines:
            self.code.to_line(lines[-1])
        else:
            self.notify(f"no kernel is known to compute {node}")

    def source_line(self) -> tuple[str, int] | None:
        """The compiled function."""
        compile_ = self.snapshot.compile(self.compile_key) if self.snapshot else None
        return (compile_.file, compile_.line) if compile_ and compile_.file else None

    def data(self) -> Any:
        """The list of texts."""
        return [text._asdict() for text in self.texts]
