"""The recording that is meant where a command names none: the one in the current folder that ended last.

So ``fxscope run train.py && fxscope check`` reads what it has just recorded, under whatever name ``run`` chose for it.
"""

from __future__ import annotations

import os

import click

from fxscope.errors import UsageError
from fxscope.names import RECORDING_SUFFIX


def newest_recording(apart_from: str | None = None) -> str:
    """Path of the recording in the current folder that ended last; standard error says which it is.

    Args:
        apart_from: A recording that it is not.

    Raises:
        UsageError: There is none.
    """
    from fxscope.recording.session import read_session_file

    best, last = None, float("-inf")
    # By when they ended, not by their names: one that is still written (of another run, beside us) is not meant.
    for name in sorted(os.listdir()):
        session = read_session_file(name) if name.endswith(RECORDING_SUFFIX) else None
        ended = session.get("ended") if session else None
        if isinstance(ended, (int, float)) and ended >= last and not _same(name, apart_from):
            best, last = name, ended
    if best is None:
        other = f" apart from {apart_from}" if apart_from else ""
        raise UsageError(f"no recording in this folder{other}: name one, or make one with fxscope run")
    click.echo(f"fxscope: reading {best}, the newest recording here", err=True)
    return best


def named_or_newest(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Callback of an argument PATH that may be left out."""
    return newest_recording() if value is None and not ctx.resilient_parsing else value or ""


def _same(name: str, other: str | None) -> bool:
    return other is not None and os.path.exists(other) and os.path.samefile(name, other)


path = click.argument("path", required=False, type=click.Path(), callback=named_or_newest)
