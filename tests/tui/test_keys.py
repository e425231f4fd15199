"""Every key of the table does what it says, on real recordings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fxscope_tui import keymap
from fxscope_tui.app import FxscopeApp
from fxscope_tui.widgets.diff_view import DiffView
from fxscope_tui.widgets.virtual_table import VirtualTable

from fxscope.errors import UsageError

pytestmark = pytest.mark.shared


@pytest.fixture
def gpt2(shared: Path) -> Path:
    return shared / "traces" / "h200" / "gpt2"


@pytest.fixture
def ranks(shared: Path) -> Path:
    return shared / "traces" / "h200" / "ranks_ddp"


async def test_digits_and_brackets_show_views(gpt2, opened):
    async with opened(gpt2) as driver:
        for number, name in enumerate(keymap.VIEWS):
            await driver.press(str((number + 1) % 10))
            assert driver.app.active == name
        await driver.press("right_square_bracket")
        assert driver.app.active == "overview"
        await driver.press("left_square_bracket")
        assert driver.app.active == "output"


async def test_filter_narrows_the_tree_with_a_count(gpt2, opened):
    async with opened(gpt2) as driver:
        driver.app.tree_view.focus()
        before = driver.app.tree_view.count()
        await driver.press("slash")
        await driver.type("causal")
        driver.app.query_one("#filter-bar").apply()
        await driver.settle()
        tree = driver.app.tree_view
        assert 0 < tree.count() < before
        assert f"{tree.count()}/{before}" in driver.frame()
        assert driver.app.compile_key == tree.here().compile_key
        await driver.press("enter")
        assert driver.app.focused is tree
        await driver.press("escape")
        assert tree.count() == before


async def test_filter_inverse_and_recall(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "slash")
        await driver.type("!view")
        await driver.press("enter")
        table = driver.app.view.table
        assert 0 < table.count() < table.provider.count()
        assert all("view" not in table.provider.text(table.real(row)).lower() for row in range(table.count()))
        await driver.press("slash")
        assert "!view" in driver.line("filter /")
        await driver.press("escape")
        assert table.count() == table.provider.count()


async def test_cursor_stays_on_its_node_through_a_filter(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "G")
        name = driver.app.view.node().name
        await driver.press("slash")
        await driver.type("output")
        await driver.press("enter")
        assert driver.app.view.node().name == name
        await driver.press("escape")
        assert driver.app.view.node().name == name


async def test_search_in_code_marks_and_steps(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("8", "slash")
        await driver.type("tl.store")
        await driver.press("enter")
        code = driver.app.view.code
        first = code.cursor
        assert "tl.store" in code.line_text(first)
        await driver.press("n")
        assert code.cursor > first
        assert "tl.store" in code.line_text(code.cursor)
        await driver.press("N")
        assert code.cursor == first
        await driver.press("escape")
        assert code.needle == ""


async def test_movement_keys(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "g")
        table = driver.app.view.table
        await driver.press("j", "j", "k")
        assert table.cursor == 1
        await driver.press("ctrl+d")
        assert table.cursor == 1 + table.page // 2
        await driver.press("G")
        assert table.cursor == table.count() - 1
        await driver.press("pageup")
        assert table.cursor == table.count() - 1 - table.page
        await driver.press("g")
        assert table.cursor == 0


async def test_def_use_jumps(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        view = driver.app.view
        view.to_node("inputs_embeds")
        await driver.settle()
        await driver.press("u")
        user = view.node()
        assert "inputs_embeds" in _inputs(user)
        view.to_node("inputs_embeds")
        await driver.press("i")
        assert "inputs_embeds" in view.node().users
        view.to_node("inputs_embeds")
        await driver.press("enter")
        assert "input" in driver.frame()
        await driver.press("enter")
        assert "inputs_embeds" in view.node().users


def _inputs(node):
    from fxscope_tui.graph_rows import inputs_of

    return inputs_of(node)


async def test_stage_switch_goes_through_the_stack(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        seen = []
        for _ in range(7):
            seen.append(driver.app.view.stage[0])
            await driver.press("s")
        assert seen[0] == "dynamo"
        assert {"joint", "forward", "backward", "forward.post_grad"} <= set(seen)
        assert driver.app.view.stage[0] == "dynamo"
        await driver.press("S")
        assert driver.app.view.stage[0] == seen[-1]


async def test_aot_inputs_carry_the_names_of_the_program(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "s", "s", "g")
        assert "transformer.wte.weight" in driver.frame()


async def test_compare_shows_what_a_recompile_changed(gpt2, opened, golden):
    async with opened(gpt2, size=(160, 30)) as driver:
        driver.app.select_compile("1/0_1")
        await driver.press("2", "d")
        await driver.type("1/1_1 dynamo")
        await driver.press("enter")
        diff = driver.app.view.query_one(DiffView)
        assert diff.display
        assert any(row.sign == "~" and "s70" in (row.right or "") for row in diff.rows)
        golden("graph-compare", driver.frame())
        await driver.press("escape")
        assert driver.app.focused is driver.app.view.table


async def test_histogram_filters_by_the_chosen_op(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "b")
        await driver.type("layer_norm")
        await driver.press("enter")
        table = driver.app.view.table
        assert 0 < table.count() < 20
        assert all("layer_norm" in table.provider.text(table.real(row)) for row in range(table.count()))


async def test_from_a_kernel_to_its_node_and_back(shared, opened):
    async with opened(shared / "traces" / "tlparse" / "inductor_provenance_jit_cuda_log.txt") as driver:
        await driver.press("8")
        code = driver.app.view.code
        line = next(n for n in range(code.count()) if code.line_text(n).startswith("triton_poi_fused_mul_1 ="))
        code.move_to(line)
        await driver.press("enter")
        assert driver.app.active == "graph"
        assert driver.app.view.node().name == "mul"
        await driver.press("K")
        assert driver.app.active == "code"
        assert "triton_poi_fused_mul_1" in driver.app.view.code.line_text(driver.app.view.code.cursor)


async def test_a_finding_leads_to_its_record(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("1")
        driver.app.view.document.to_key(("finding", 0))
        await driver.press("enter")
        assert driver.app.active == "breaks"
        assert driver.app.view.here().count == 5


async def test_a_recompile_leads_to_the_guard_that_failed(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("5")
        row = next(n for n, item in enumerate(driver.app.view._rows) if item.record.key == "1/1")
        driver.app.view.table.select(row)
        await driver.press("enter")
        assert driver.app.active == "guards"
        guards = driver.app.view
        assert guards.compile_key.startswith("1/0")
        guard, _ = guards._all.guards[guards.table.selected]
        assert guard.type == "TENSOR_MATCH"
        assert "had 64, got 96" in driver.frame()


async def test_a_break_leads_to_its_graph(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("4")
        expected = driver.app.view.here().compile_keys[0]
        await driver.press("enter")
        assert driver.app.active == "graph"
        assert driver.app.compile_key == expected


async def test_ranks_are_switched(ranks, opened):
    async with opened(ranks) as driver:
        assert "RANKS" in driver.app.view.document.page_text()
        everything = len(driver.app.shown.compiles)
        await driver.press("R")
        assert "rank 0/2" in driver.frame()
        one = len(driver.app.shown.compiles)
        assert 0 < one < everything
        assert all(compile_.rank == 0 for compile_ in driver.app.shown.compiles)
        await driver.press("R", "R")
        assert "rank all/2" in driver.frame()
        assert len(driver.app.shown.compiles) == everything


async def test_folding_and_selecting_in_the_tree(gpt2, opened):
    async with opened(gpt2) as driver:
        tree = driver.app.tree_view
        tree.focus()
        await driver.press("g")
        rows = tree.count()
        await driver.press("h")
        assert tree.count() < rows
        await driver.press("l")
        assert tree.count() == rows
        tree.select_key("1/0_1")
        await driver.press("l")
        assert "dynamo" in driver.frame()
        await driver.press("j", "enter")
        assert driver.app.active == "graph"


async def test_braces_step_through_compiles(gpt2, opened):
    async with opened(gpt2) as driver:
        keys = [compile_.key for compile_ in driver.app.shown.compiles]
        at = keys.index(driver.app.compile_key)
        await driver.press("right_curly_bracket")
        assert driver.app.compile_key == keys[at + 1]
        await driver.press("left_curly_bracket")
        assert driver.app.compile_key == keys[at]


async def test_copy_says_what_it_did_and_saves_a_file(gpt2, opened, home):
    async with opened(gpt2) as driver:
        await driver.press("2", "g", "y")
        saved = (home / "cache" / "fxscope" / "copied.txt").read_text()
        assert saved == driver.app.view.table.line_text(0)
        assert driver.app.clipboard == saved
        message = str(next(iter(driver.app._notifications)).message)
        assert "OSC 52" in message
        assert "copied.txt" in message


async def test_copy_of_much_is_honest(gpt2, opened, home):
    async with opened(gpt2) as driver:
        await driver.press("8", "Y")
        saved = (home / "cache" / "fxscope" / "copied.txt").read_text()
        assert saved.count("\n") > 1000
        assert "too long for the terminal's clipboard" in str(next(iter(driver.app._notifications)).message)


@pytest.mark.parametrize(
    ("form", "check"), [("text", "inputs_embeds"), ("json", '"name": "inputs_embeds"'), ("dot", "digraph")]
)
async def test_export_writes_what_is_shown(form, check, gpt2, opened, home, monkeypatch):
    monkeypatch.chdir(home)
    async with opened(gpt2) as driver:
        await driver.press("2", "e")
        await driver.type(form)
        await driver.press("enter")
        files = list(home.glob("fxscope-graph-*"))
        assert len(files) == 1
        text = files[0].read_text()
        assert check in text
        if form == "json":
            json.loads(text)


async def test_export_svg_and_no_overwriting(gpt2, opened, home, monkeypatch):
    monkeypatch.chdir(home)
    async with opened(gpt2) as driver:
        for _ in range(2):
            await driver.press("e")
            await driver.type("picture")
            await driver.press("enter")
        names = sorted(path.name for path in home.glob("*.svg"))
        assert names == ["fxscope-overview-2.svg", "fxscope-overview.svg"]
        assert "<svg" in (home / names[0]).read_text()


async def test_export_into_a_folder_one_may_not_write(gpt2, opened, home, monkeypatch):
    from fxscope_tui import exporting

    monkeypatch.setattr(
        exporting.os, "open", lambda *args: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    async with opened(gpt2) as driver:
        await driver.press("e", "enter")
        assert "cannot write" in str(next(iter(driver.app._notifications)).message)


async def test_palette_finds_every_action(gpt2, opened):
    for key in ("colon", "ctrl+p"):
        async with opened(gpt2) as driver:
            await driver.press(key)
            await driver.type("timeline")
            await driver.until(lambda: "Timeline view" in driver.frame() and "Graph view" not in driver.frame())
            await driver.press("enter")
            await driver.until(lambda: driver.app.active == "timeline")


async def test_help_runs_the_key_it_lists(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("question_mark")
        await driver.type("breaks view")
        await driver.press("enter")
        assert driver.app.active == "breaks"


async def test_zoom_gives_a_pane_the_screen(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        width = driver.app.view.table.size.width
        await driver.press("z")
        assert driver.app.view.table.size.width > width
        assert driver.app.view.table.size.width >= driver.app.size.width - 1
        await driver.press("escape")
        assert driver.app.view.table.size.width == width


async def test_tree_folds_away(gpt2, opened):
    async with opened(gpt2) as driver:
        assert driver.app.tree_view.size.width > 0
        await driver.press("t")
        assert not driver.app.query_one("#left").display
        await driver.press("t")
        assert driver.app.focused is driver.app.tree_view


async def test_pause_holds_the_views(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("p")
        assert "paused" in driver.frame()
        shown = driver.app.shown
        driver.app._poll(force=True)
        await driver.settle()
        assert driver.app.shown is shown
        assert driver.app.latest is not shown
        await driver.press("p")
        assert driver.app.shown is driver.app.latest


async def test_theme_can_be_chosen(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("T")
        await driver.type("nord")
        await driver.until(lambda: "nord" in driver.frame() and "dracula" not in driver.frame())
        await driver.press("enter")
        await driver.until(lambda: driver.app.theme == "nord")


async def test_editor_needs_a_terminal_and_says_so(gpt2, opened, home, monkeypatch):
    source = home / "model.py"
    source.write_text("x = 1\n")
    monkeypatch.setenv("EDITOR", "true")
    async with opened(gpt2) as driver:
        await driver.press("2", "o")
        assert "is not on this machine" in str(next(iter(driver.app._notifications)).message)
        monkeypatch.setattr(type(driver.app.view), "source_line", lambda self: (str(source), 1))
        await driver.press("o")
        assert "cannot hand the terminal" in str(list(driver.app._notifications)[-1].message)


async def test_ctrl_c_without_a_program_does_not_leave(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("ctrl+c")
        assert driver.app.is_running
        assert "q leaves" in str(next(iter(driver.app._notifications)).message)


async def test_q_leaves(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.pilot.press("q")
        await driver.pilot.pause()
        assert driver.app._exit


async def test_mouse_selects_rows_tabs_and_keys(gpt2, opened):
    async with opened(gpt2) as driver:
        column = driver.frame().splitlines()[1].index("2 Gr")
        await driver.pilot.click(offset=(column, 1))
        await driver.settle()
        assert driver.app.active == "graph"
        table = driver.app.view.table
        top = table.scroll_offset.y
        await driver.pilot.click(table, offset=(5, 4))
        await driver.settle()
        assert table.cursor == top + 3
        row = len(driver.frame().splitlines()) - 1
        await driver.pilot.click(offset=(driver.frame().splitlines()[row].index("? help"), row))
        await driver.settle()
        assert "Keys: graph" in driver.frame()


def test_no_two_keys_of_a_view_collide():
    for view in keymap.VIEWS:
        taken: dict[str, str] = {}
        for key in keymap.KEYS:
            if key.scope not in ("app", view):
                continue
            for name in key.keys.split(","):
                assert name not in taken or "choose" in key.action, f"{view}: {name} is {taken.get(name)} and {key.id}"
                taken[name] = key.id


def test_footer_has_at_most_eight_keys_and_ends_in_help():
    for view in keymap.VIEWS:
        for tree in (False, True):
            keys = keymap.footer(view, {}, tree=tree)
            assert len(keys) <= 8
            assert keys[-1].id == "app.help"


def test_every_view_key_has_a_method():
    from fxscope_tui.screens import views

    for key in keymap.KEYS:
        action = keymap.action(key)
        match = re.match(r"app\.ask\('(\w+)', '(\w+)'", action)
        if match:
            assert hasattr(views.make(match[1]), f"do_{match[2]}"), key.id
        elif action.startswith("app."):
            assert hasattr(FxscopeApp, f"action_{action[4:].partition('(')[0]}"), key.id
        else:
            assert hasattr(VirtualTable, f"action_{action.partition('(')[0]}") or key.scope == "tree", key.id


async def test_keys_can_be_remapped(gpt2, opened, home):
    config = home / "config" / "fxscope"
    config.mkdir(parents=True)
    (config / "keys.toml").write_text('[keys]\n"app.help" = "f5"\n"graph.stage" = "v"\n')
    async with opened(gpt2) as driver:
        assert "f5 help" in driver.frame()
        await driver.press("2", "v")
        assert driver.app.view.stage[0] != "dynamo"
        await driver.press("question_mark")
        assert len(driver.app.screen_stack) == 1
        await driver.press("f5")
        assert len(driver.app.screen_stack) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[keys]\n"app.nothing" = "x"\n', "no action 'app.nothing'"),
        ("[keys\n", "keys.toml"),
        ('[keys]\n"app.quit" = 3\n', "must be a string"),
    ],
)
def test_bad_keymaps_say_what_is_wrong(text, says, tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(says)):
        keymap.load_remapped(path)
