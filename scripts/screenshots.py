"""Make the pictures in docs/screenshots: the app on a recording, one SVG per view.

Usage: python scripts/screenshots.py RECORDING [FOLDER]

RECORDING is any path that ``fxscope open`` takes; a run of samples/graph_breaks.py or samples/resnet50.py shows most views.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fxscope_tui.app import FxscopeApp
from fxscope_tui.store import Store

SIZE = (120, 34)
# name: keys pressed one after another
PICTURES = {
    "overview": ["1"],
    "graph": ["2"],
    "breaks": ["4"],
    "recompiles": ["5"],
    "timeline": ["9"],
}


async def picture(recording: str, name: str, keys: list[str], folder: Path) -> None:
    """One picture from a fresh app, so that none depends on the one before."""
    app = FxscopeApp(Store(recording))
    async with app.run_test(size=SIZE) as pilot:
        for key in ["", *keys]:
            if key:
                await pilot.press(key)
            for _ in range(3):
                await pilot.pause()
                await app.workers.wait_for_complete()
        await pilot.pause()
        (folder / f"{name}.svg").write_text(app.export_screenshot(title=f"fxscope: {name}"), encoding="utf-8")


def main() -> None:
    """Make all of them."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: python {sys.argv[0]} RECORDING [FOLDER]")
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    for name, keys in PICTURES.items():
        asyncio.run(picture(sys.argv[1], name, keys, folder))
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
