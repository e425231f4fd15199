"""``fxscope open``: the terminal app on anything that was recorded."""

from __future__ import annotations

import sys

import click

from fxscope.errors import UsageError


@click.command(
    epilog="""\b
Examples:
  fxscope open train-20260101-120000.fxscope
  TORCH_TRACE=/tmp/trace python train.py & fxscope open /tmp/trace    # follows it while it grows"""
)
@click.argument("path", type=click.Path())
def command(path: str) -> None:
    """Open the terminal app on PATH: a recording, a TORCH_TRACE folder or one log.

    A recording that another process is still writing is followed, read-only. `?` in the app lists the keys.
    """
    from fxscope.trace.folder import find_logs

    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError(f"the app needs a terminal on stdin, stdout and stderr; try `fxscope report {path}`")
    find_logs(path)  # a missing or foreign path is told before the screen changes
    from fxscope_tui.app import open_app

    open_app(path)
