"""Make the pictures in docs/screenshots from recordings of samples/, which it makes first.

Usage: python scripts/screenshots.py [FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fxscope_tui.app import FxscopeApp
from fxscope_tui.store import Store

ROOT = Path(__file__).resolve().parent.parent
SIZE = (154, 36)
# name: the sample that is recorded, and the keys pressed one after another
PICTURES = {
    "overview": ("graph_breaks.py", ["1"]),
    "graph": ("graph_breaks.py", ["2"]),
    "recompiles": ("recompile_storm.py", ["5"]),
    "timeline": ("graph_breaks.py", ["9"]),
}


def record(sample: str) -> str:
    """Record a sample in the working directory, so that no path of this machine is in the picture."""
    folder = sample.replace(".py", ".fxscope")
    if not os.path.exists(folder):
        shutil.copy(ROOT / "samples" / sample, sample)
        command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", folder, sample]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


async def picture(recording: str, name: str, keys: list[str]) -> str:
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
        return app.export_screenshot(title=f"fxscope: {name}")


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "screenshots", metavar="FOLDER")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for name, (sample, keys) in PICTURES.items():
            svg = asyncio.run(picture(record(sample), name, keys))
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
            print(folder / f"{name}.svg")
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
