"""The recording that is meant where a command names none: the one in the current folder that ended last.

So ``fxscope run train.py && fxscope check`` reads what it has just recorded, under whatever name ``run`` chose for it.
"""

from __future__ import annotations

import os
import time

import click

from fxscope.errors import UsageError
from fxscope.names import RECORDING_SUFFIX


def newest_recording(apart_from: str | None = None) -> str:
    """Path of the recording in the current folder that ended last; standard error says which it is.

    One that was killed ended with its last sign of life; one that is still written, beside us, is not meant.

    Args:
        apart_from: A recording that it is not, and than which it is newer.

    Raises:
        UsageError: There is none.
    """
    best, last, killed = None, float("-inf"), False
    runs = []
    since = None
    if apart_from is not None:
        since, _ = _ended(apart_from if os.path.isdir(apart_from) else os.path.dirname(apart_from))
    for name in sorted(os.listdir()):
        if not name.endswith(RECORDING_SUFFIX) or _same(name, apart_from):
            continue
        ended, without = _ended(name)
        if ended is None:
            runs += [name] if without else []
        elif ended >= last and (since is None or ended >= since):
            best, last, killed = name, ended, without
    if best is None and apart_from is not None:
        raise UsageError(
            f"no recording in this folder is newer than {apart_from}: run the program again, or name a second one"
        )
    if best is None:
        raise UsageError("no recording in this folder: name one, or make one with fxscope run")
    told = ["its program was killed, or is not known to run"] if killed else []
    told += [f"{', '.join(runs)} is still written"] if runs else []
    more = f" ({'; '.join(told)})" if told else ""
    click.echo(f"fxscope: reading {best}, the newest recording here{more}", err=True)
    return best


def _ended(path: str) -> tuple[float | None, bool]:
    """When a recording ended, None where it has not or nothing is known; and whether it has said nothing of its end."""
    from fxscope.recording.ending import SILENT, is_elsewhere, last_sign
    from fxscope.recording.session_file import is_live, read_session_file

    session = read_session_file(path)
    ended = session.get("ended") if session else None
    if isinstance(ended, (int, float)):
        return float(ended), False
    if not session or session.get("state") != "live":
        return None, False
    sign = last_sign(path)
    gone = not is_live(session) or (is_elsewhere(session) and time.time() - sign > SILENT)
    return sign if gone else None, True


def named_or_newest(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Callback of an argument PATH that may be left out."""
    return newest_recording() if value is None and not ctx.resilient_parsing else value or ""


def _same(name: str, other: str | None) -> bool:
    """Whether the other is that recording, or a log in it."""
    if other is None or not os.path.exists(other):
        return False
    return any(os.path.samefile(name, place) for place in (other, os.path.dirname(os.path.abspath(other))))


path = click.argument("path", required=False, type=click.Path(), callback=named_or_newest)
