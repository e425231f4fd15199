"""Ways out that fail: a copy and an export tell why."""

from __future__ import annotations

import pytest
from fxscope_tui.screens.view import View

pytestmark = pytest.mark.shared


def broken(view: View) -> str:
    raise ValueError("a row [/of the table] cannot be written")


@pytest.mark.parametrize("keys", [["Y"], ["e", "enter"]])
async def test_a_failure_is_told_as_it_is(keys, gpt2, opened, home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setattr(View, "export_text", broken)
    async with opened(gpt2) as driver:
        await driver.press(*keys)
        told = list(driver.app._notifications)
        assert [(each.severity, each.message) for each in told] == [
            ("error", "ValueError: a row [/of the table] cannot be written")
        ]
        assert "[/of the table]" in driver.frame()
