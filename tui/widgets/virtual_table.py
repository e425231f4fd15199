"""A table of any length: rows come from a provider, only the visible ones are made, filtering runs on a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rich.cells import cell_len
from textual.message import Message
from textual.worker import get_current_worker

from ..spans import Cell, Span, Spans, fit, plain, spans_of
from .filtering import Filter, Haystack, fields_of
from .line_view import LineView


class Column(NamedTuple):
    """One column.

    Attributes:
        title: Heading.
        width: Cells; 0 measures a sample of the rows.
        flex: Takes what is left, and gives way first.
        right: Aligned to the right.
        keep: When the table is too narrow the columns with the lowest ``keep`` go first; 9 always stays.
        limit: Largest measured width.
        least: Cells to which it is squeezed before an important column goes; 0 for those of no squeezing.
        middle: What is too long is cut in the middle: the ends of names tell them apart.
    """

    title: str
    width: int = 0
    flex: bool = False
    right: bool = False
    keep: int = 5
    limit: int = 40
    least: int = 0
    middle: bool = False


class RowProvider(Protocol):
    """Where rows come from. Called for visible rows only, so it may do work, but not read from disk."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns."""
        ...

    def count(self) -> int:
        """Number of rows, unfiltered."""
        ...

    def row(self, index: int) -> Sequence[Cell]:
        """The cells of one row, one per column."""
        ...

    def text(self, index: int) -> str:
        """What a filter looks at; the whole row in words."""
        ...

    def key(self, index: int) -> object:
        """What the row is, so that the cursor stays on it when rows come and go."""
        ...

    def find(self, key: object) -> int | None:
        """The row with a key, None where there is none."""
        ...


class Rows:
    """A provider over rows that are already there."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], keys: Sequence[object] | None = None
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.keys = keys

    def count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def row(self, index: int) -> Sequence[Cell]:
        """Cells of one row."""
        return self.rows[index]

    def text(self, index: int) -> str:
        """All cells, for the filter."""
        return " ".join(plain(cell) for cell in self.rows[index])

    def key(self, index: int) -> object:
        """The given key, else the row's number."""
        return self.keys[index] if self.keys is not None else index

    def find(self, key: object) -> int | None:
        """The first row with that key."""
        if self.keys is None:
            return key if isinstance(key, int) and key < len(self.rows) else None
        return self.keys.index(key) if key in self.keys else None


IMPORTANT = 6  # ``keep`` from which a column goes only when squeezing all of them does not help


def allot(columns: Sequence[Column], natural: Sequence[int], room: int) -> list[int]:
    """Cells of each column in ``room``: the least important ones go first, what is left goes to the most important."""
    floors = []
    for column, size in zip(columns, natural, strict=True):
        least = size if column.width else max(min(size, len(column.title)), min(size, 14), 2 * size // 3)
        floors.append(max(len(column.title), min(size, 16)) if column.flex else least)
    shown = [number for number, size in enumerate(natural) if size]
    squeezed = [min(floor, column.least or floor) for floor, column in zip(floors, columns, strict=True)]
    while len(shown) > 1:
        last = min(shown, key=lambda number: (columns[number].keep, -number))
        needs = floors if columns[last].keep < IMPORTANT else squeezed
        if sum(needs[number] for number in shown) + 2 * (len(shown) - 1) <= room:
            break
        shown.remove(last)
    floors = squeezed
    widths = [floors[number] if number in shown else 0 for number in range(len(columns))]
    spare = room - sum(widths) - 2 * (len(shown) - 1)
    for number in sorted(shown, key=lambda number: (-columns[number].keep, number)):
        more = max(0, min(spare, natural[number] - widths[number]))
        widths[number] += more
        spare -= more
    flexible = [number for number in shown if columns[number].flex]
    if spare > 0 and flexible:
        widths[flexible[-1]] += spare
    if len(shown) == 1:
        widths[shown[0]] = min(widths[shown[0]], room) if not flexible else room
    return widths


class VirtualTable(LineView):
    """Rows of a provider, with a heading, a filter and a cursor that stays on its row."""

    header_rows = 1
    ON_WORKER = 2_000  # rows from which a filter leaves the UI thread

    class Filtered(Message):
        """A filter has been applied: how many rows remain of how many."""

        def __init__(self, table: VirtualTable, shown: int, total: int) -> None:
            self.table = table
            self.shown = shown
            self.total = total
            super().__init__()

    def __init__(self, provider: RowProvider | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.provider: RowProvider = provider if provider is not None else Rows((), ())
        self.filter_text = ""
        self._shown: Sequence[int] | None = None  # None: all of them
        self._haystack = Haystack(self.provider)
        self._widths: tuple[int, list[int]] = (-1, [])
        self.marks: Mapping[int, Span] = {}

    # rows

    def count(self) -> int:
        """Rows that pass the filter."""
        return self.provider.count() if self._shown is None else len(self._shown)

    def real(self, index: int) -> int:
        """The provider's number of a shown row."""
        return index if self._shown is None else self._shown[index]

    def shown_index(self, real: int) -> int | None:
        """Where a row of the provider is shown, None where the filter hides it."""
        if self._shown is None:
            return real if real < self.provider.count() else None
        from bisect import bisect_left

        at = bisect_left(self._shown, real)
        return at if at < len(self._shown) and self._shown[at] == real else None

    @property
    def selected(self) -> int | None:
        """The provider's number of the row under the cursor."""
        return self.real(self.cursor) if self.count() else None

    def select(self, real: int, *, centre: bool = True, tell: bool = True) -> bool:
        """Put the cursor on a row of the provider; False where the filter hides it."""
        index = self.shown_index(real)
        if index is None:
            return False
        self.move_to(index, centre=centre, tell=tell)
        return True

    def mark(self, marks: Mapping[int, Span]) -> None:
        """Signs of one cell in the margin, by the provider's numbers of rows."""
        old, self.marks = self.marks, marks
        top = self.scroll_offset.y
        rows = ((index, self.real(index)) for index in range(top, min(top + self.page, self.count())))
        self.redraw_lines(index for index, row in rows if old.get(row) != marks.get(row))

    def variant(self, index: int) -> object:
        """The mark."""
        return self.marks.get(self.real(index)) if self.marks else None

    def show(self, provider: RowProvider, *, prepare: bool = False) -> None:
        """Show other rows, or the same ones after they changed; the cursor stays on its row where it can.

        Args:
            provider: The rows.
            prepare: Make what a filter of many rows searches in the background now, so that the first filter is as quick as
                the next one. For rows that stay; not for those of a live run, which are others every second.
        """
        key = None
        old = self.selected
        if old is not None and old < self.provider.count():
            key = self.provider.key(old)
        self.provider = provider
        self.marks = {}
        self._haystack = haystack = Haystack(provider)
        self._widths = (-1, [])
        row = None if key is None else provider.find(key)
        if self.filter_text:
            if self._shown is not None:  # until a worker has looked at the new rows
                self._shown = [row for row in self._shown if row < provider.count()]
            self._filter(self.filter_text, row)
            return
        self._shown = None
        self._settle(row)
        if prepare and provider.count() > self.ON_WORKER:
            self.run_worker(lambda: self._prepare(haystack), thread=True, exclusive=True, group="texts")

    def _settle(self, row: int | None) -> None:
        """The cursor goes to the row that it was on, where that is shown."""
        if row is not None and not self.auto_tail:
            index = self.shown_index(row)
            if index is not None:
                self.cursor = index
        self.changed()
        if self.count():
            self.reveal(self.cursor)

    # filter

    def filter(self, query: str) -> None:
        """Show only matching rows; long tables are filtered on a worker. The cursor stays on its row where it can."""
        self._filter(query, self.selected)

    def _filter(self, query: str, row: int | None) -> None:
        provider, haystack = self.provider, self._haystack
        self.filter_text = query
        wanted = Filter.parse(query, fields_of(provider))
        self.needle = wanted.words[0] if len(wanted.words) == 1 and not wanted.inverse else ""
        if not wanted.asks:
            self._apply(None, row)
        elif provider.count() <= self.ON_WORKER:
            self._apply(haystack.matching(wanted, lambda: False), row)
        else:
            self.run_worker(
                lambda: self._filter_far(wanted, haystack, query, row), thread=True, exclusive=True, group="filter"
            )

    def _prepare(self, haystack: Haystack) -> None:
        """On a worker: what filters will search."""
        worker = get_current_worker()
        haystack.texts(lambda: worker.is_cancelled)

    def _filter_far(self, wanted: Filter, haystack: Haystack, query: str, row: int | None) -> None:
        """The worker's part of a filter."""
        worker = get_current_worker()
        found = haystack.matching(wanted, lambda: worker.is_cancelled)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._apply_far, found, haystack, query, row)

    def _apply_far(self, found: list[int], haystack: Haystack, query: str, row: int | None) -> None:
        """Take the worker's answer unless it is stale."""
        if haystack is self._haystack and query == self.filter_text:
            self._apply(found, row)

    def _apply(self, found: Sequence[int] | None, row: int | None) -> None:
        self._shown = found
        self._settle(row)
        self.post_message(self.Filtered(self, self.count(), self.provider.count()))

    # drawing

    def widths(self, width: int) -> list[int]:
        """Cells of each column in a table of ``width``; 0 hides one."""
        if self._widths[0] == width:
            return self._widths[1]
        columns = self.provider.columns
        count = self.provider.count()  # whatever a filter shows, so that columns stay where they are
        step = max(1, count // 60)
        natural = []
        sample = [self.provider.row(index) for index in range(0, count, step)]
        for number, column in enumerate(columns):
            size = column.width
            if not size:
                most = max((cell_len(plain(row[number])) for row in sample), default=0)
                # A column with nothing in it is left out; where only a sample was looked at, it may have something.
                size = min(max(cell_len(column.title), most), column.limit) if most or step > 1 or not count else 0
            natural.append(size)
        natural = allot(columns, natural, width - 2)
        self._widths = (width, natural)
        return natural

    def _line(self, cells: Sequence[Cell], *margin: Span) -> list[Span]:
        """One line of padded cells behind a margin of two."""
        line: list[Span] = list(margin)
        columns = self.provider.columns
        first = True
        for number, width in enumerate(self.widths(self.room)):
            if not width:
                continue
            if not first:
                line.append(("  ", ""))
            first = False
            spans = spans_of(cells[number])
            if columns[number].right:
                length = sum(cell_len(text) for text, _ in spans)
                if length < width:
                    spans.insert(0, (" " * (width - length), ""))
            line.extend(fit(spans, width, middle=columns[number].middle))
        return line

    def header(self) -> Spans:
        """The headings."""
        return self._line([column.title for column in self.provider.columns], ("  ", ""))

    def spans(self, index: int) -> Spans:
        """One row."""
        real = self.real(index)
        bar: Span = ("\u258c", "accent") if index == self.cursor else (" ", "")
        return self._line(self.provider.row(real), bar, self.marks.get(real, (" ", "")))

    def line_text(self, index: int) -> str:
        """One row in full, tab-separated, as copied."""
        return "\t".join(plain(cell).strip() for cell in self.provider.row(self.real(index)))

    def table_text(self) -> str:
        """All rows that pass the filter with aligned columns, as exported; nothing is cut."""
        provider, shown = self.provider, self._shown  # of this moment: a worker may ask
        columns = provider.columns
        lines = [[column.title for column in columns]]
        real = range(provider.count()) if shown is None else shown
        lines += [[plain(cell) for cell in provider.row(index)] for index in real]
        sizes = [max(cell_len(line[number]) for line in lines) for number in range(len(columns))]
        return "\n".join(
            "  ".join(text + " " * (size - cell_len(text)) for text, size in zip(line, sizes, strict=True)).rstrip()
            for line in lines
        )
