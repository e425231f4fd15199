"""A recording, opened: everything that happened in one run, read from its trace logs, loaded when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fxscope.recording.records import (
        Artifact,
        Compile,
        Failure,
        GraphBreak,
        GraphText,
        Guard,
        LimitHit,
        Recompile,
        Session,
        Totals,
    )


class Recording:
    """Records of one run. Attributes are read lazily; ``refresh`` takes in what a live writer has added.

    Attributes:
        compiles: One per attempt, in order of time.
        graph_breaks: One per site and kind, most frequent first.
    """

    path: Path
    session: Session
    totals: Totals
    compiles: list[Compile]
    graph_breaks: list[GraphBreak]
    recompiles: list[Recompile]
    limit_hits: list[LimitHit]
    failures: list[Failure]
    artifacts: list[Artifact]

    def refresh(self) -> bool:
        """Take in what was appended since; True where anything changed. Costs what is new, not what is old."""
        raise NotImplementedError

    def find(self, graph_id: str) -> Compile:
        """The compile that ``--graph`` names.

        Raises:
            UsageError: No such id; the message names the nearest ones.
        """
        raise NotImplementedError

    def graph(self, compile_: Compile, stage: str = "dynamo", index: int = 0) -> GraphText:
        """The printed graph of one stage.

        Raises:
            UsageError: That compile has no such stage; the message lists those it has.
        """
        raise NotImplementedError

    def text(self, event: int) -> str:
        """Payload of one event, read from disk now (never cached whole)."""
        raise NotImplementedError

    def guards(self, compile_: Compile) -> list[Guard]:
        """Roots of the entry's guard tree, parsed now."""
        raise NotImplementedError

    def timeline(self) -> Iterator[dict[str, Any]]:
        """Compile phases as Chrome trace events (name, ph, ts in microseconds, dur, pid, tid, args)."""
        raise NotImplementedError


def open_recording(path: str | Path) -> Recording:
    """Open a recording folder, a TORCH_TRACE folder, one log, any of these compressed, or an fsspec URL.

    Raises:
        UnreadableError: There is nothing to read: what, where, and how to mend it.
    """
    raise NotImplementedError
