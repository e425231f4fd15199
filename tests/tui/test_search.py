"""Searching texts: marks, steps, the count, and long ones on a worker."""

from __future__ import annotations

import threading

import pytest
from fxscope_tui.widgets.filter_bar import FilterBar

pytestmark = pytest.mark.shared


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


async def test_a_long_text_is_searched_off_the_ui_thread(gpt2, opened, monkeypatch):
    async with opened(gpt2) as driver:
        await driver.press("8")
        code = driver.app.view.code
        code.show("\n".join([*(f"line {n}" for n in range(5_000)), "the needle", *(f"line {n}" for n in range(5_000))]))
        threads = []
        line_text = type(code).line_text

        def noted(self, index):
            threads.append(threading.get_ident())
            return line_text(self, index)

        monkeypatch.setattr(type(code), "line_text", noted)
        await driver.press("slash")
        await driver.type("needle")
        assert len(threads) >= 10_001
        assert threading.get_ident() not in threads
        assert code.cursor == 5_000
        assert "1 line" in driver.line("search /")
        await driver.press("enter", "slash")  # opened again: the count is back
        assert "1 line" in driver.line("search /")
        await driver.type("nowhere")
        assert "0 lines" in driver.line("search /")
        assert code.cursor == 5_000
        code.move_to(10)  # the cursor was moved while the worker searched
        driver.app.query_one(FilterBar)._found(code, "nowhere", [7_000], 5_000)
        assert code.cursor == 10
        driver.app.query_one(FilterBar)._found(code, "nowhere", [7_000], 10)
        assert code.cursor == 7_000
