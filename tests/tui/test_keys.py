"""Every key of the table does what it says, on real recordings."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import pytest
from fxscope_tui import keymap
from fxscope_tui.app import FxscopeApp
from fxscope_tui.widgets.frame_tree import TreeView

from fxscope.errors import UsageError

pytestmark = pytest.mark.shared


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


async def test_an_editor_that_is_not_there_gives_the_terminal_back(gpt2, opened, monkeypatch):
    away = []

    @contextmanager
    def suspend(self):  # as Textual's: an exception inside leaves the terminal to nobody
        away.append(True)
        yield
        away.clear()

    monkeypatch.setattr(FxscopeApp, "suspend", suspend)
    monkeypatch.setenv("FXSCOPE_EDITOR", "no-such-editor 'unpaired")
    async with opened(gpt2) as driver:
        await driver.press("2")
        monkeypatch.setattr(type(driver.app.view), "source_line", lambda self: (__file__, 1))
        await driver.press("o")
        assert not away
        assert "cannot start no-such-editor" in str(list(driver.app._notifications)[-1].message)


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
            assert hasattr(TreeView, f"action_{action.partition('(')[0]}"), key.id


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
        ("keys = 3\n", "must be a table"),
        ("# caf\udce9\n", "keys.toml"),
    ],
)
def test_bad_keymaps_say_what_is_wrong(text, says, tmp_path):
    path = tmp_path / "keys.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=re.escape(says)):
        keymap.load_remapped(path)
