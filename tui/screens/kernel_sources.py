"""One kernel's source beside the nodes that it computes, and Inductor's kernel for the same nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from ..widgets.code_view import CodeView, Mark
from ..widgets.line_view import LineView

AHEAD = 4  # lines that a comment may stand before what it is about


class KernelSources(Horizontal):
    """Nodes (and Inductor's source below them) on the left, the chosen source on the right; one follows the other."""

    DEFAULT_CSS = """
    KernelSources #kernels-left { width: 2fr; }
    KernelSources #kernels-nodes { height: 1fr; }
    KernelSources #kernels-inductor { height: 1fr; display: none; border-top: solid $surface-lighten-2; }
    KernelSources.-inductor #kernels-inductor { display: block; }
    KernelSources #kernels-right { width: 3fr; border-left: solid $surface-lighten-2; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._names: list[str] = []  # of the lines on the left
        self._lines: Mapping[Any, Sequence[str]] = {}
        self._inductor: dict[str, int] = {}  # by node the line of Inductor's first kernel that computes it

    def compose(self) -> ComposeResult:
        """Three texts."""
        with Vertical(id="kernels-left"):
            yield CodeView(id="kernels-nodes")
            yield CodeView(id="kernels-inductor")
        yield CodeView(id="kernels-right")

    @property
    def right(self) -> CodeView:
        """The chosen source."""
        return self.query_one("#kernels-right", CodeView)

    def show(self, listing: Mapping[str, Any], nodes: Mapping[str, str], inductor: Mapping[str, Any] | None) -> None:
        """Show a source.

        Args:
            listing: Of the document of ``fxscope bench``.
            nodes: The line of each node by its name.
            inductor: What Inductor wrote for the same graph, None where it is not to be shown.
        """
        text = str(listing.get("text", ""))
        self._names = list(nodes)
        self._lines = listing.get("lines_to_nodes") or {}
        below = (inductor or {}).get("lines_to_nodes") or {}
        self._inductor = {}
        for number in sorted(below, key=int):
            for name in below[number]:
                self._inductor.setdefault(name, int(number))
        self.set_class(bool(self._lines and self._inductor), "-inductor")
        self.query_one("#kernels-nodes", CodeView).show("\n".join(nodes.values()))
        self.query_one("#kernels-inductor", CodeView).show(str((inductor or {}).get("text", "")))
        language = str(listing.get("language", "python"))
        first = min((int(number) for number in self._lines), default=1)
        self.right.show(text, language, line=first if self._lines else None)
        self.right.focus()
        self.follow(self.right)

    def names_at(self, number: int) -> set[str]:
        """The nodes that a line of the chosen source computes; of a comment those of the line below it."""
        for at in range(number, number + AHEAD):
            names = self._lines.get(str(at)) or self._lines.get(at)
            if names:
                return set(names)
            if not (0 < at <= len(self.right.lines) and self.right.lines[at - 1].lstrip().startswith("#")):
                break
        return set()

    def follow(self, view: LineView) -> None:
        """Mark the nodes that a line of the source computes, and Inductor's kernel that computes most of them."""
        if view is not self.right:
            return
        names = self.names_at(self.right.line_number)
        left = self.query_one("#kernels-nodes", CodeView)
        left.mark({number: Mark("\u25b6", "accent") for number, name in enumerate(self._names, 1) if name in names})
        if left.marks:
            left.to_line(min(left.marks))
        pane = self.query_one("#kernels-inductor", CodeView)
        votes = Counter(self._inductor[name] for name in names if name in self._inductor)
        pane.mark({number: Mark("\u25b6", "accent") for number in votes})
        if votes:
            pane.to_line(votes.most_common(1)[0][0])
