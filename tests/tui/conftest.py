"""The app under Textual's Pilot: waiting on workers instead of sleeping, and the screen as text."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from fxscope_tui.app import FxscopeApp
from fxscope_tui.program import Program
from fxscope_tui.store import Store
from textual.pilot import Pilot

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tui"


class Driver:
    """One running app. ``await press("2")`` presses keys and waits until everything that they started is done."""

    def __init__(self, app: FxscopeApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def settle(self) -> None:
        """Wait until no worker runs and nothing is left to draw.

        Twice in a row: what is drawn may start another worker once it is on the screen.
        """
        quiet = 0
        for _ in range(100):
            await self.pilot.pause()
            quiet = 0 if any(worker.is_running for worker in self.app.workers) else quiet + 1
            if quiet == 2:
                return
            await self.app.workers.wait_for_complete()
        raise AssertionError("workers never came to rest")

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Wait for something that no worker of ours does: the palette's search, a program in its terminal."""
        for _ in range(600):
            if wanted():
                return
            await self.pilot.pause(0.05)
        raise AssertionError(f"never happened; the screen was:\n{self.frame()}")

    async def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        await self.pilot.press(
            *[{" ": "space", "/": "slash", ".": "full_stop", "_": "underscore"}.get(c, c) for c in text]
        )
        await self.settle()

    def frame(self) -> str:
        """The screen as text, as a terminal would show it."""
        strips = self.app.screen._compositor.render_strips()  # the one place that needs Textual's inside
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    def line(self, start: str) -> str:
        """The first line of the screen that contains a text."""
        return next(line for line in self.frame().splitlines() if start in line)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No user configuration, no colours switched off, no animation."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    for name in ("NO_COLOR", "TMUX", "FXSCOPE_EDITOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


Opener = Callable[..., AbstractAsyncContextManager[Driver]]


_STORES: dict[str, Store] = {}


@pytest.fixture
def opened() -> Opener:
    """``async with opened(path, size=(120, 30)) as driver``. A recording of ../shared is read once for all tests."""

    @asynccontextmanager
    async def run(
        path: str | Path, size: tuple[int, int] = (120, 30), program: Program | None = None
    ) -> AsyncIterator[Driver]:
        store = Store(path, live=program is not None)
        if "/traces/" in str(path):
            store = _STORES.setdefault(str(path), store)
        app = FxscopeApp(store, program)
        async with app.run_test(size=size, notifications=True) as pilot:
            driver = Driver(app, pilot)
            await driver.settle()
            yield driver

    return run


@pytest.fixture
def gpt2(shared: Path) -> Path:
    return shared / "traces" / "h200" / "gpt2"


@pytest.fixture
def ranks(shared: Path) -> Path:
    return shared / "traces" / "h200" / "ranks_ddp"


_THUMB = str.maketrans(dict.fromkeys("▁▂▃▄▅▆▇", " "))


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with tests/golden/tui/NAME.txt; FXSCOPE_UPDATE_GOLDENS=1 writes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        # The ends of a scroll bar's thumb are drawn in eighths of a cell, and which eighth depends on the order of layout.
        text = "\n".join(line.rstrip() for line in text.translate(_THUMB).split("\n"))
        if os.environ.get("FXSCOPE_UPDATE_GOLDENS"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert path.exists(), f"{path} is missing: run with FXSCOPE_UPDATE_GOLDENS=1 and look at it"
        assert text + "\n" == path.read_text(encoding="utf-8"), f"{name} differs; FXSCOPE_UPDATE_GOLDENS=1 rewrites it"

    return compare
