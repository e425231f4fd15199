"""The line widgets and what they are made of: rows on demand, widths, wrapping, highlighting, differences."""

from __future__ import annotations

import pytest
from fxscope_tui.collecting import MANY, reading
from fxscope_tui.highlight import Regions, highlight
from fxscope_tui.provenance import Provenance
from fxscope_tui.spans import clean, fit, mark_matches, plain, restyle, spans_of, wrap
from fxscope_tui.widgets.code_view import CodeView, Mark
from fxscope_tui.widgets.detail import Detail
from fxscope_tui.widgets.diff_view import DiffRow, align, fold
from fxscope_tui.widgets.filtering import Filter, Haystack
from fxscope_tui.widgets.virtual_table import Column, Rows, VirtualTable, allot
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.app import App, ComposeResult

TEXT = st.text(max_size=60)


def width_of(spans) -> int:
    return sum(cell_len(text) for text, _ in spans)


@given(TEXT)
def test_clean_leaves_nothing_that_acts(text):
    safe = clean(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in safe)


@given(st.lists(st.tuples(TEXT, st.sampled_from(["", "dim", "bad"])), max_size=5), st.integers(1, 80), st.booleans())
def test_fit_gives_exactly_the_width(spans, width, middle):
    assert width_of(fit(spans_of(spans) if spans else [("", "")], width, middle=middle)) == width


def test_what_is_cut_in_the_middle_keeps_both_ends_and_their_styles():
    cut = fit([("transformer.h.0", "strong"), (".mlp.c_proj.weight", "dim")], 20, middle=True)
    assert plain(cut) == "transform…roj.weight"
    assert {style for text, style in cut if text} == {"strong", "dim"}


@given(
    st.lists(st.tuples(TEXT, st.sampled_from(["", "dim"])), min_size=1, max_size=5),
    st.integers(10, 60),
    st.integers(0, 6),
)
def test_wrap_keeps_every_word_and_the_width(spans, width, indent):
    spans = [(clean(text), style) for text, style in spans]
    lines = wrap(spans, width, indent)
    assert all(width_of(line) <= max(width, indent + 8) for line in lines)
    words = "".join("".join(text for text, _ in line).strip(" ") for line in lines)
    assert words.replace(" ", "") == "".join(text for text, _ in spans).replace(" ", "")


def test_wrap_does_not_tear_a_word_of_two_styles():
    lines = wrap([("a line that is full ", ""), ("name", "strong"), (";", "dim"), (" rest", "")], 24)
    assert ["".join(text for text, _ in line).rstrip() for line in lines] == ["a line that is full", "name; rest"]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.booleans()), min_size=1, max_size=8),
    st.integers(5, 200),
)
def test_columns_never_need_more_room_than_there_is(columns, room):
    made = [Column("c" * min(size, 5), flex=flex, keep=keep) for size, keep, flex in columns]
    widths = allot(made, [size for size, _, _ in columns], room)
    shown = [width for width in widths if width]
    assert sum(widths) + 2 * max(len(shown) - 1, 0) <= room or len(shown) <= 1


@given(TEXT, st.integers(0, 60), st.integers(-1, 60))
def test_restyle_changes_styles_only(text, start, end):
    spans = [(text[:7], ""), (text[7:], "dim")]
    assert "".join(part for part, _ in restyle(spans, start, end, "match")) == text


def test_matches_are_marked_across_spans_and_cases():
    marked = mark_matches([("Conv", "name"), ("2d(x)", "")], "conv2d")
    assert "".join(text for text, style in marked if style == "match") == "Conv2d"


class Fields(Rows):
    """Rows whose first column can be asked for by name."""

    fields = property(lambda self: {"op": lambda row, word: word in str(self.rows[row][0]).lower()})


@pytest.mark.parametrize(
    ("query", "passing"),
    [
        ("", ["aten.relu f32[3]", "add relu", "View max"]),
        ("relu f32", ["aten.relu f32[3]"]),
        ("RELU", []),
        ("View", ["View max"]),
        ("view", ["View max"]),
        ("!relu", ["View max"]),
        ("!relu f32", ["add relu", "View max"]),
        ("op:relu", ["aten.relu f32[3]"]),
        ("op:RELU f32", ["aten.relu f32[3]"]),
        ("op:", ["aten.relu f32[3]", "add relu", "View max"]),
        ("!op:relu", ["add relu", "View max"]),
        ("no:relu", []),
    ],
)
def test_filter(query, passing):
    rows = Fields((Column("op"), Column("rest")), [("aten.relu", "f32[3]"), ("add", "relu"), ("View", "max")])
    found = Haystack(rows).matching(Filter.parse(query, rows.fields), lambda: False)
    assert [rows.text(row) for row in found] == passing


@given(TEXT, st.sampled_from(["python", "cpp", "bytecode", "npu", "text"]))
def test_highlighting_keeps_the_text(text, language):
    line = clean(text)
    assert "".join(part for part, _ in highlight(line, language)) == line


def test_highlighting_knows_what_matters():
    styles = dict(highlight("def f(x: f32[8, 3]): return torch.relu(x)  # why", "python"))
    assert styles["def"] == styles["return"] == "keyword"
    assert styles["f32[8, 3]"] == "type"
    assert styles["torch.relu"] == "name"
    assert styles["# why"] == "comment"


def test_kernels_inside_strings_are_code():
    text = "a = 1\nk = async_compile.triton('k', '''\nimport triton\n@triton.jit\ndef k(x): pass\n''')\nc = cpp('''\n#include <x>\nvoid f() {}\n''')\nb = 2"
    regions = Regions(text)
    lines = text.split("\n")
    assert regions.language(0) == "python"
    assert regions.language(lines.index("@triton.jit")) == "python"
    assert regions.language(lines.index("void f() {}")) == "cpp"
    assert regions.language(len(lines) - 1) == "python"


def test_align_and_fold():
    left = [f"line{n} = x" for n in range(20)]
    right = [*left[:10], "new", *left[10:15], "line15 = other", "gone = y", *left[17:]]
    rows = align(left, right, 1)
    assert DiffRow(None, "new", "+") in rows
    assert DiffRow("line15 = x", "line15 = other", "~") in rows
    assert DiffRow("line16 = x", None, "-") in rows
    assert DiffRow(None, "gone = y", "+") in rows
    assert sum(row.sign == "…" for row in rows) == 3
    assert [row.left for row in align(left, right) if row.left is not None] == left
    assert fold([DiffRow("a", "a")] * 5, 1) == [DiffRow("5 equal", "5 equal", "…")]


def test_provenance_from_comments():
    code = (
        "# Source node to ATen node mapping:\n#   y => relu\n# Graph fragment:\n"
        "#   %relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%x,), kwargs = {})\n"
        "triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''\nimport triton\n''')\n"
        "def call(args):\n    triton_poi_fused_relu_0.run(buf0, 1)\n"
    )
    provenance = Provenance(code)
    assert provenance.nodes_of == {"triton_poi_fused_relu_0": ["relu"]}
    assert provenance.lines_of["relu"] == [5, 9]
    assert provenance.nodes_at(6) == ["relu"]
    assert provenance.nodes_at(9) == ["relu"]
    assert provenance.nodes_at(8) == []


class Many:
    """A provider that counts how many rows were made."""

    columns = (Column("number", right=True), Column("text", flex=True))

    def __init__(self, size: int) -> None:
        self.size = size
        self.made = 0

    def count(self) -> int:
        return self.size

    def row(self, index: int):
        self.made += 1
        return str(index), f"row {index}"

    def text(self, index: int) -> str:
        return f"row {index} {'odd' if index % 2 else 'even'}"

    def key(self, index: int) -> object:
        return index

    def find(self, key: object) -> int | None:
        return key if isinstance(key, int) and key < self.size else None


class Holder(App[None]):
    def __init__(self, widget) -> None:
        super().__init__()
        self.widget = widget

    def compose(self) -> ComposeResult:
        yield self.widget


async def test_only_visible_rows_are_made():
    provider = Many(1_000_000)
    table = VirtualTable()
    async with Holder(table).run_test(size=(60, 20)) as pilot:
        table.show(provider)
        table.focus()
        await pilot.pause()
        await pilot.press("G")
        await pilot.pause()
        assert table.cursor == 999_999
        assert provider.made < 600  # a sample for the widths, and two screens


async def test_a_long_filter_runs_on_a_worker_and_the_newest_wins():
    table = VirtualTable()
    async with Holder(table).run_test(size=(60, 20)) as pilot:
        table.show(Many(30_000))
        table.filter("odd")
        table.filter("row 299")
        await pilot.app.workers.wait_for_complete([w for w in pilot.app.workers if not w.is_cancelled])
        await pilot.pause()
        assert table.count() == sum("299" in str(n) for n in range(30_000))


async def test_the_cursor_stays_on_its_row_when_rows_come_and_go():
    rows = [(str(n),) for n in range(100)]
    table = VirtualTable()
    async with Holder(table).run_test(size=(40, 10)) as pilot:
        table.show(Rows((Column("n"),), rows, list(range(100))))
        table.move_to(50)
        table.show(Rows((Column("n"),), rows[20:], list(range(20, 100))))
        await pilot.pause()
        assert table.provider.key(table.selected) == 50
        table.show(Rows((Column("n"),), [], []))
        assert table.selected is None
        assert table.cursor == 0


async def test_a_live_list_follows_its_tail_until_the_user_moves():
    table = VirtualTable()
    table.follows_tail = True
    async with Holder(table).run_test(size=(40, 10)) as pilot:
        table.show(Many(50))
        table.focus()
        await pilot.press("G")
        table.show(Many(60))
        assert table.cursor == 59
        await pilot.press("k")
        table.show(Many(70))
        assert table.cursor == 58


async def test_a_resize_keeps_the_place_that_the_mouse_scrolled_to():
    for event in (events.MouseScrollDown, events.MouseScrollUp):
        async with Holder(table := VirtualTable()).run_test(size=(40, 20)) as pilot:
            table.show(Many(500))
            table.start_at(250)
            await pilot.pause()
            start = table.scroll_offset.y
            assert start == 250 - table.page // 2
            for _ in range(20):
                table.post_message(event(table, 5, 5, 0, 0, 0, False, False, False))
            await pilot.pause()
            place = table.scroll_offset.y
            assert abs(place - start) >= 20
            await pilot.resize_terminal(40, 14)
            await pilot.pause()
            assert table.scroll_offset.y == place


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["one", "two"], ["one", "two", ""]),
        (["word " * 30, "last"], ["word word word", "word word word\u2026", "last"]),
        (["one", "two", "three", "four"], ["one", "two", "three \u2026"]),
        (["word " * 30, "two", "three", "four"], ["word word word \u2026", "two", "three \u2026"]),
    ],
)
async def test_what_a_detail_has_no_room_for_is_an_ellipsis(cells, shown):
    async with Holder(detail := Detail()).run_test(size=(18, 3)) as pilot:
        detail.show(cells)
        assert [detail.render_line(y).text.strip() for y in range(3)] == shown
        await pilot.resize_terminal(18, 12)
        await pilot.pause()
        assert cells[-1] in [detail.render_line(y).text.strip() for y in range(12)]  # there is room now


async def test_code_with_gaps_marks_and_notes():
    code = CodeView()
    async with Holder(code).run_test(size=(60, 10)) as pilot:
        code.show("a = 1\nb = 2\nc = 3", numbers=[3, 10, 40], marks={10: Mark("✂", "bad", "breaks here")}, line=12)
        await pilot.pause()
        assert code.line_number == 10
        assert "10 ✂ b = 2   ◂ breaks here" in "".join(text for text, _ in code.spans(1))


async def test_an_endless_line_is_counted_not_drawn():
    code = CodeView()
    async with Holder(code).run_test(size=(60, 10)) as pilot:
        code.show("x" * 1_000_000)
        await pilot.pause()
        shown = "".join(text for text, _ in code.spans(0))
        assert len(shown) < 5_000
        assert "996,000 more characters" in shown


def test_plain_gives_the_text_of_any_cell():
    assert plain("a") == plain(("a", "bad")) == plain([("a", "bad")]) == "a"
    assert plain([("a", ""), ("b", "bad")]) == "ab"
    assert plain([("a\x1b[2J", "")]) == "a␛[2J"


def test_many_new_records_are_not_looked_at_again_by_the_collector():
    import gc

    before = gc.get_freeze_count()
    kept = []
    try:
        with reading():
            assert not gc.isenabled()
            with reading():  # two workers at once
                kept.append([[] for _ in range(MANY + 20_000)])
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before + MANY
    finally:
        gc.unfreeze()


async def test_a_column_with_nothing_in_it_leaves_its_room_to_the_others():
    rows = Rows((Column("a"), Column("nothing"), Column("b", flex=True)), [("x" * 30, "", "y"), ("z", "", "w" * 30)])
    async with Holder(table := VirtualTable(rows)).run_test(size=(50, 10)):
        assert table.widths(50)[1] == 0
        table.filter("x")  # a filter moves no column
        assert table.widths(50) == [30, 0, 16]
