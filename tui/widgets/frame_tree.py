"""The tree of frames: a filtered table whose rows fold."""

from __future__ import annotations

from textual.message import Message

from ..frames import FrameRow, FrameTree, frame_key
from ..keymap import bindings
from ..store import Snapshot
from .virtual_table import VirtualTable


class TreeView(VirtualTable):
    """Shows ``FrameTree`` rows; space, left and right fold; the folding outlives new snapshots."""

    BINDINGS = bindings("tree")
    header_rows = 0

    class Selected(Message):
        """A compile, and perhaps a graph of it, has been selected."""

        def __init__(self, row: FrameRow, *, chosen: bool) -> None:
            self.row = row
            self.chosen = chosen
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="tree")
        self._snapshot: Snapshot | None = None
        self._unfolded: set[str] = set()
        self._folded: set[str] = set()

    def take(self, snapshot: Snapshot) -> None:
        """Show the frames of a snapshot."""
        self._snapshot = snapshot
        self._rebuild()

    def _rebuild(self) -> None:
        if self._snapshot is not None:
            self.show(FrameTree(self._snapshot, self._unfolded, self._folded))

    def here(self) -> FrameRow | None:
        """The row under the cursor."""
        at = self.selected
        return self.provider.at(at) if at is not None and isinstance(self.provider, FrameTree) else None

    def select_key(self, key: str) -> None:
        """Put the cursor on a compile or graph, unfolding what hides it."""
        compile_key = key.split("@", 1)[0]
        if self._snapshot is not None:
            compile_ = self._snapshot.compile(compile_key)
            if compile_ is not None and frame_key(compile_) in self._folded:
                self._folded.discard(frame_key(compile_))
                self._rebuild()
        if isinstance(self.provider, FrameTree):
            at = self.provider.find(key)
            if at is None:
                at = self.provider.find(compile_key)
            if at is not None:
                self.select(at, tell=False)

    def move_to(self, index: int, *, centre: bool = False, tell: bool = True) -> None:
        """Moving selects."""
        before = self.cursor
        super().move_to(index, centre=centre, tell=False)
        row = self.here()
        if tell and row is not None and self.cursor != before:
            self.post_message(self.Selected(row, chosen=False))

    def action_choose(self) -> None:
        """Enter shows the graph."""
        row = self.here()
        if row is not None:
            self.post_message(self.Selected(row, chosen=True))

    def action_fold(self) -> None:
        """Fold or unfold."""
        row = self.here()
        if row is not None and row.folded is not None:
            self._fold(row, not row.folded)

    def action_sideways(self, by: int) -> None:
        """Left folds or goes to the parent, right unfolds or goes to the first child."""
        row = self.here()
        if row is None:
            return
        if by > 0 and row.folded:
            self._fold(row, False)
        elif by > 0:
            self.action_move(1)
        elif row.folded is False:
            self._fold(row, True)
        elif row.depth and isinstance(self.provider, FrameTree):
            index = self.cursor
            while index > 0 and self.provider.at(self.real(index)).depth >= row.depth:
                index -= 1
            self.move_to(index)

    def _fold(self, row: FrameRow, fold: bool) -> None:
        if row.depth == 0:
            (self._folded.add if fold else self._folded.discard)(row.key)
        else:
            (self._unfolded.discard if fold else self._unfolded.add)(row.key)
        self._rebuild()
