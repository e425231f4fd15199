"""What would break a lesser app: garbage, deletion, growth, tiny and changing windows, hostile text, a rank that dies."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from fxscope_tui.app import FxscopeApp
from fxscope_tui.keymap import VIEWS
from fxscope_tui.store import Store, read_source
from textual.command import CommandList

from fxscope.names import LOG_PREFIX, SESSION_FILE
from tests.benchmarks.big_log import write_big_log

BRANCHES = Path(__file__).resolve().parents[1] / "data" / "traces" / "branches.log.xz"
ALL_VIEWS = [str((number + 1) % 10) for number in range(len(VIEWS))]


def log_of(folder: Path) -> Path:
    return next(path for path in sorted(folder.iterdir()) if path.name.startswith(LOG_PREFIX) or path.suffix == ".log")


def unpacked(source: Path, target: Path) -> Path:
    """A writable, plain copy of a recording's first log in a folder of its own."""
    import lzma

    target.mkdir(exist_ok=True)
    found = log_of(source) if source.is_dir() else source
    data = lzma.decompress(found.read_bytes()) if found.suffix == ".xz" else found.read_bytes()
    path = target / f"{LOG_PREFIX}1.log"
    path.write_bytes(data)
    return path


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "tlparse/simple_corrupted_json.log",
        "tlparse/comp_failure.log",
        "tlparse/export.log",
        "tlparse/multi_rank_messy_input",
        "models/SwitchTransformers",
    ],
)
async def test_every_view_of_every_kind_of_log(name, shared, opened):
    async with opened(shared / "traces" / name, size=(100, 30)) as driver:
        for key in ALL_VIEWS:
            await driver.press(key)
            assert "internal error" not in driver.frame()
        assert driver.app.is_running


@pytest.mark.shared
async def test_the_recording_of_a_program_that_failed_to_compile(shared, opened):
    async with opened(shared / "traces" / "tlparse" / "comp_failure.log") as driver:
        assert "FAILURES" in driver.app.view.document.page_text()
        assert "✖" in driver.frame()


async def test_a_recording_in_which_nothing_was_compiled(tmp_path, opened):
    session = {"argv": ["idle.py"], "exit_code": 0, "ended": 1.0, "started": 0.5}
    (tmp_path / SESSION_FILE).write_text(json.dumps(session))
    async with opened(tmp_path, size=(100, 24)) as driver:
        for key in ALL_VIEWS:
            await driver.press(key)
        await driver.press("1")
        assert "othing" in driver.frame()


async def test_nothing_there_yet_is_told_and_fills_later(tmp_path, opened):
    async with opened(tmp_path / "later", size=(100, 24)) as driver:
        assert "no such file or folder" in driver.frame()


@pytest.mark.shared
@pytest.mark.parametrize("seed", range(2))
async def test_garbage_in_a_log(seed, shared, tmp_path, opened):
    rng = random.Random(seed)
    path = unpacked(shared / "traces" / "tlparse" / "simple.log", tmp_path / "log")
    data = bytearray(path.read_bytes())
    for _ in range(200):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data))
    async with opened(path.parent, size=(100, 24)) as driver:
        for key in ALL_VIEWS:
            await driver.press(key)
        assert driver.app.is_running


@pytest.mark.shared
async def test_a_log_that_grows_is_followed(shared, tmp_path, opened):
    """Half a log, then the rest: what was written appears, and the cursor stays."""
    path = unpacked(shared / "traces" / "h200" / "gpt2", tmp_path / "log")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    async with opened(path.parent) as driver:
        before = len(driver.app.shown.compiles)
        key = driver.app.compile_key
        assert before > 0
        with path.open("ab") as file:
            file.write(b"".join(lines[len(lines) // 2 :]))
        await driver.until(lambda: len(driver.app.shown.compiles) > before)
        await driver.settle()
        assert driver.app.compile_key == key
        assert driver.app.tree_view.here().compile_key == key


@pytest.mark.shared
async def test_a_recording_deleted_while_open_stays_on_the_screen(shared, tmp_path, opened):
    path = unpacked(shared / "traces" / "tlparse" / "simple.log", tmp_path / "log")
    async with opened(path.parent) as driver:
        assert driver.app.shown.compiles
        shutil.rmtree(path.parent)
        driver.app._poll(force=True)
        await driver.settle()
        assert driver.app.shown.compiles
        for key in ALL_VIEWS:
            await driver.press(key)
        assert driver.app.is_running


async def test_a_log_that_is_cut_while_open_is_told_in_every_view(tmp_path, opened):
    path = unpacked(BRANCHES, tmp_path / "log")
    async with opened(path.parent, size=(120, 30)) as driver:
        await driver.press("8")
        os.truncate(path, 1000)
        driver.app._poll(force=True)
        await driver.settle()
        assert "while it was read; open it again" in driver.frame()
        for key in ALL_VIEWS:
            await driver.press(key)
        assert driver.app.shown.compiles


@pytest.mark.shared
async def test_a_rank_that_dies_leaves_the_others(shared, tmp_path, opened):
    import lzma

    for source in (shared / "traces" / "h200" / "ranks_ddp").iterdir():
        data = lzma.decompress(source.read_bytes()) if source.suffix == ".xz" else source.read_bytes()
        name = source.name.removesuffix(".xz")
        (tmp_path / name).write_bytes(data if "rank_0" in name else data[: len(data) // 3])
    async with opened(tmp_path) as driver:
        assert {compile_.rank for compile_ in driver.app.shown.compiles} == {0, 1}
        await driver.press("R", "R")
        assert {compile_.rank for compile_ in driver.app.shown.compiles} == {1}


@pytest.mark.shared
async def test_a_storm_of_sizes(shared, opened):
    sizes = [(40, 10), (200, 60), (20, 5), (1, 1), (300, 100), (41, 11)]
    async with opened(shared / "traces" / "tlparse" / "simple.log") as driver:
        for key in ("1", "2", "4", "8"):
            await driver.press(key)
            for width, height in sizes:
                await driver.pilot.resize_terminal(width, height)
            assert driver.app.is_running
        await driver.pilot.resize_terminal(120, 30)
        await driver.settle()
        assert "simple.log" in driver.frame()
        assert driver.app.tree_view.size.width > 0
        await driver.pilot.resize_terminal(60, 20)
        await driver.settle()
        assert driver.app.tree_view.size.width == 0, "the tree folds away where there is no room"


async def test_pages_of_a_palette_that_has_no_line(opened):
    async with opened(BRANCHES, size=(80, 4)) as driver:
        for key in ("colon", "ctrl+p", "T"):
            await driver.pilot.press(key)
            await driver.until(lambda: driver.app.screen.query_one(CommandList).option_count > 0)
            await driver.press("pageup", "pagedown", "escape")
        assert driver.app.is_running


@pytest.mark.shared
async def test_forty_by_ten_still_works(shared, opened):
    async with opened(shared / "traces" / "h200" / "gpt2", size=(40, 10)) as driver:
        for name, key in zip(VIEWS, ALL_VIEWS, strict=True):
            await driver.press(key)
            frame = driver.frame()
            assert name.capitalize() in frame  # the row of views names the one that is shown
            assert all(len(line) <= 40 for line in frame.splitlines())
            assert "?" in frame.splitlines()[-1]


@pytest.mark.shared
async def test_eighty_by_twentyfour(shared, opened, golden):
    async with opened(shared / "traces" / "h200" / "gpt2", size=(80, 24)) as driver:
        await driver.press("2")
        golden("graph-80x24", driver.frame())
        await driver.press("t")
        golden("graph-80x24-tree", driver.frame())


@pytest.mark.shared
async def test_no_color_has_signs_for_everything(shared, opened, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(shared / "traces" / "h200" / "gpt2") as driver:
        assert driver.app.no_color
        frame = driver.frame()
        assert "↺" in frame  # restarted
        assert "✔" in frame
        assert "▌" in frame  # the cursor


HOSTILE = "\x1b[2J\x1b]52;c;aGFja2Vk\x07\x9b31m\u202eevil\x00\r\n"


def hostile_log(folder: Path) -> None:
    """A trace log in which everything that is text carries control characters."""
    evil = json.dumps(HOSTILE)[1:-1]
    stack = f'[{{"line": 3, "name": "{evil}", "filename": 0}}]'
    where = '"frame_id": 0, "frame_compile_id": 0, "attempt": 0'
    spaced = HOSTILE.replace("\n", " ").replace("\r", " ")
    reason = f"\tGraph break in user code at /tmp/a.py:3\n\tGraph Break Reason: {spaced}"
    graph = (
        "\tclass GraphModule(torch.nn.Module):\n\t    def forward(self, L_x_):\n\t        # \x1b[31mred\x9b\n"
        "\t        y = torch.relu(L_x_)\n\t        return (y,)"
    )
    metrics = f'"co_name": "{evil}", "co_filename": "/tmp/{evil}.py", "co_firstlineno": 3, "fail_reason": "{evil}", "fail_type": "{evil}"'
    artifact = '"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}'
    events = [
        f'{{"str": ["/tmp/{evil}.py", 0]}}',
        f'{{"dynamo_start": {{"stack": {stack}}}, {where}, "stack": {stack}}}',
        f'{{{artifact}, {where}, "has_payload": "x"}}\n{reason}',
        f'{{"dynamo_output_graph": {{"sizes": {{}}}}, {where}, "has_payload": "x"}}\n{graph}',
        f'{{"compilation_metrics": {{{metrics}}}, {where}}}',
    ]
    prefix = "V0101 00:00:00.000000 1 torch/_dynamo/x.py:1] "
    (folder / f"{LOG_PREFIX}1.log").write_text("".join(f"{prefix}{event}\n" for event in events), encoding="utf-8")


async def test_control_characters_of_a_log_never_reach_the_terminal(tmp_path, opened, monkeypatch):
    hostile_log(tmp_path)
    async with opened(tmp_path) as driver:
        for key in [*ALL_VIEWS, "e", "escape", "question_mark", "escape"]:
            await driver.press(key)
            strips = driver.app.screen._compositor.render_strips()
            for strip in strips:
                for segment in strip:
                    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in segment.text), segment
        driver.app.notify(HOSTILE)


async def test_odd_text_pasted_into_the_filter(tmp_path, opened):
    hostile_log(tmp_path)
    from textual.events import Paste

    async with opened(tmp_path) as driver:
        await driver.press("slash")
        driver.app.post_message(Paste("\x1b[31m漢字\u202e" + "x" * 100_000 + "\n[bold]\\"))
        await driver.settle()
        await driver.press("enter")
        assert driver.app.is_running


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/mem", "/etc/passwd", "", "\0", "/nowhere/x.py"])
def test_a_log_cannot_make_us_read_what_is_no_source(path):
    source = read_source(path)
    assert source.text is None
    assert source.note


def test_a_large_source_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "big.py"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    assert read_source(str(path)).text is None


def test_a_pipe_named_as_a_source_does_not_hang(tmp_path):
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    assert read_source(str(path)).text is None


@pytest.mark.shared
async def test_a_diagnosis_that_fails_does_not_hide_the_recording(shared, tmp_path, opened, monkeypatch):
    import fxscope.diagnosis.diagnose as module

    monkeypatch.setattr(module, "diagnose", lambda recording: 1 / 0)
    path = unpacked(shared / "traces" / "tlparse" / "simple.log", tmp_path / "log")
    async with opened(path.parent, size=(120, 40)) as driver:
        assert driver.app.shown.compiles
        assert "the diagnosis failed" in driver.app.view.document.page_text()


async def test_a_store_is_never_asked_on_the_ui_thread(tmp_path, monkeypatch):
    """Whatever may block runs on a worker."""
    import threading

    hostile_log(tmp_path)
    asked: list[str] = []
    for name in ("read", "text", "guards", "timeline", "graph", "source"):
        original = getattr(Store, name)

        def spy(self, *args, _original=original, _name=name, **kwargs):
            if threading.current_thread() is threading.main_thread():
                asked.append(_name)
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(Store, name, spy)
    app = FxscopeApp(Store(tmp_path))
    async with app.run_test(size=(120, 30)) as pilot:
        for key in ALL_VIEWS:
            await pilot.press(key)
            await pilot.pause()
            await app.workers.wait_for_complete()
    assert asked == []


@pytest.mark.shared
async def test_a_log_of_100_megabytes(shared, tmp_path, opened):
    """A real log again and again under fresh ids: every repetition is there, and views of the last one open."""
    source = next((shared / "traces" / "h200" / "gpt2").glob("*.xz"))
    size = write_big_log(source, tmp_path / f"{LOG_PREFIX}1.log", 100)
    assert size > 100_000_000
    async with opened(shared / "traces" / "h200" / "gpt2") as driver:
        once = len(driver.app.shown.compiles)
    async with opened(tmp_path) as driver:
        again = len(driver.app.shown.compiles) // once
        assert again > 5
        assert len(driver.app.shown.compiles) == again * once
        last = next(compile_ for compile_ in reversed(driver.app.shown.compiles) if compile_.graphs)
        driver.app.select_compile(last.key)
        for key in ("2", "3", "5", "8", "9", "1"):
            await driver.press(key)
            assert not driver.app.view.has_class("-empty"), driver.app.active
        await driver.press("2")
        assert f"compile {last.key}" in driver.frame()


async def test_a_message_with_brackets_is_shown_as_it_is(tmp_path, opened):
    async with opened(tmp_path, size=(100, 24)) as driver:
        driver.app.view.notify("node x[0] [/bold] [red]y")
        await driver.until(lambda: "node x[0] [/bold] [red]y" in driver.frame())
