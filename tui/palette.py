"""The palette: every action of the key table, every compile, every theme, by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Provider
from textual.types import IgnoreReturnCallbackType

from .keymap import KEYS, WIDGET_SCOPES, action, display

if TYPE_CHECKING:
    from .app import FxscopeApp

COMPILES = 500  # compiles that the palette offers by name; the filter of the tree finds any


class Actions(Provider):
    """What the app can do now."""

    def _entries(self) -> Iterator[tuple[str, str, IgnoreReturnCallbackType]]:
        app = cast("FxscopeApp", self.app)
        for key in KEYS:
            if key.scope in WIDGET_SCOPES or key.action == "choose" or key.id == "app.palette":
                continue
            if key.scope not in ("app", app.active):
                continue
            keys = display(app.remapped.get(key.id, key.keys))
            name = f"{key.label}  ({keys})" if key.scope == "app" else f"{key.scope}: {key.label}  ({keys})"
            yield name, key.description, partial(app.run_action, action(key))
        for compile_ in app.shown.compiles[:COMPILES] if app.shown else ():
            yield (
                f"go to {compile_.key} {compile_.function}",
                "Select this compile.",
                partial(app.select_compile, compile_.key),
            )

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        """Everything, before anything is typed."""
        for name, help_text, run in self._entries():
            if not name.startswith("go to "):
                yield DiscoveryHit(name, run, help=help_text)

    async def search(self, query: str) -> AsyncIterator[Hit]:
        """What matches."""
        matcher = self.matcher(query)
        for number, (name, help_text, run) in enumerate(self._entries()):
            if number % 64 == 63:
                await asyncio.sleep(0)  # a recording of many compiles must not hold up the typing
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), run, help=help_text)


class Palette(CommandPalette):
    """Textual's palette, whose page keys fail where its list has no line to be laid out on: a terminal of four rows."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something now."""
        if action == "command_list" and not self.query_one(CommandList).scrollable_content_region:
            return False
        return super().check_action(action, parameters)
