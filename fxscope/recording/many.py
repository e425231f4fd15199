"""Many logs: a map over files, each reduced to a small summary, in this process, on a process pool, or on a Dask cluster."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import msgspec

from fxscope.errors import FxscopeError, MissingError, UnreadableError, UsageError
from fxscope.recording.rank_summary import RankSummary
from fxscope.recording.rank_summary import summarize as summarize_recording
from fxscope.trace.folder import find_logs, rank_of

if TYPE_CHECKING:
    from pathlib import Path


def summarize_log(path: str) -> bytes:
    """Summaries of one log as JSON: what a worker sends back. An unreadable log becomes a summary that says so."""
    from fxscope.recording.recording import open_recording

    try:
        recording = open_recording(path)
        summaries = summarize_recording(recording)
        if not summaries:
            writer = next(recording.writers(), None)
            rank, host = (rank_of(path), None) if writer is None else (writer[0].rank, writer[0].host)
            summaries = [RankSummary(log=path, rank=rank, process=None, host=host, notes=["nothing was compiled"])]
            summaries[0].events = recording.totals.events
            summaries[0].notes += recording.session.notes
        recording.close()
    except FxscopeError as error:
        # The first words say what is wrong; how to record anew is no advice about one log of many.
        notes = [f"unreadable: {str(error).partition(': record with')[0]}"]
        summaries = [RankSummary(log=path, rank=rank_of(path), process=None, cut=True, notes=notes)]
    for summary in summaries:
        summary.log = path
    return msgspec.json.encode(summaries)


def summarize_all(path: str | Path, *, workers: int = 1, scheduler: str | None = None) -> list[RankSummary]:
    """Summaries of every log under ``path``, in order of rank.

    Args:
        path: A recording, a folder of logs, one log, or an fsspec URL of any of these.
        workers: Processes on this machine; 1 reads in this one.
        scheduler: Address of a Dask scheduler (``tcp://host:8786``) whose workers see the same paths; they need fxscope.

    Raises:
        UnreadableError: There is no log, or the only one holds nothing.
        UsageError: ``workers`` is below 1, or no scheduler answers.
        MissingError: ``scheduler`` is given and dask.distributed is not installed.
    """
    if workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}")
    logs = find_logs(path)
    if not logs:
        raise UnreadableError(f"{path}: no trace log in it")
    if scheduler is not None:
        answers = _on_cluster(logs, scheduler)
    elif workers == 1 or len(logs) == 1:
        answers = [summarize_log(log) for log in logs]
    else:
        answers = _on_pool(logs, workers)
    summaries = [summary for answer in answers for summary in msgspec.json.decode(answer, type=list[RankSummary])]
    if len(logs) == 1 and not summaries[0].events:
        raise UnreadableError(f"{logs[0]}: {'; '.join(summaries[0].bare_notes)}")
    return sorted(summaries, key=lambda s: (s.rank is None, s.rank or 0, s.process or 0, s.log))


def _on_pool(logs: list[str], workers: int) -> list[bytes]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    largest_first = sorted(range(len(logs)), key=lambda i: -_size(logs[i]))
    forks = _is_alone()
    if forks:
        import fxscope.recording.recording  # noqa: F401 - once, not in each of the processes

        gc.freeze()  # a collection in a child would touch, and so copy, all that it shares with us
    context = multiprocessing.get_context("fork" if forks else "spawn")
    # Of a pool whose worker dies (for want of memory, say) an executor tells; multiprocessing.Pool would wait for ever.
    with ProcessPoolExecutor(min(workers, len(logs)), mp_context=context) as pool:
        try:
            answers = list(pool.map(summarize_log, [logs[i] for i in largest_first]))
        except BrokenProcessPool as error:
            raise FxscopeError(
                f"a process that read logs was killed, perhaps for want of memory: use fewer than {workers} workers"
            ) from error
        finally:
            if forks:
                gc.unfreeze()
    return [answer for _, answer in sorted(zip(largest_first, answers, strict=True))]


def _is_alone() -> bool:
    """Whether this process has one thread only, so that a fork, which takes no time to start, copies nobody's lock."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False  # no such thing on this system


def _size(log: str) -> int:
    try:
        return os.stat(log).st_size
    except OSError:
        return 0  # remote, or gone: order is all that depends on it


def _on_cluster(logs: list[str], scheduler: str) -> list[bytes]:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingError("a cluster needs dask.distributed: pip install 'fxscope[cluster]'") from error
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        # A worker that dies takes no result with it: its tasks run again elsewhere.
        futures = client.map(summarize_log, logs, retries=3, pure=False)
        answers: list[bytes] = client.gather(futures)
    return answers


def write_parquet(summaries: list[RankSummary], path: str | Path) -> int:
    """One row per compile (and one per process that compiled nothing), for Spark, DuckDB or pandas; the number of rows.

    Raises:
        MissingError: pyarrow is not installed.
        UsageError: The file cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingError("Parquet needs pyarrow: pip install 'fxscope[parquet]'") from error
    rows = []
    for summary in summaries:
        base = {
            "log": summary.log,
            "rank": summary.rank,
            "process": summary.process,
            "host": summary.host,
            "torch": summary.torch,
            "notes": "; ".join(summary.notes),
        }
        rows += [
            {**base, **msgspec.structs.asdict(compile_), "calls": summary.calls.get(compile_.id)}
            for compile_ in summary.compiles
        ]
        if not summary.compiles:
            rows.append({**base, **dict.fromkeys(_COMPILE_COLUMNS), "calls": None})
    schema = pa.schema(
        [
            ("log", pa.string()),
            ("rank", pa.int64()),
            ("process", pa.int64()),
            ("host", pa.string()),
            ("torch", pa.string()),
            ("notes", pa.string()),
            *((name, pa.string()) for name in ("id", "function", "file")),
            ("line", pa.int64()),
            ("status", pa.string()),
            ("started", pa.float64()),
            ("seconds", pa.float64()),
            ("reason", pa.string()),
            ("calls", pa.int64()),
        ]
    )
    try:
        with open(path, "wb") as file:  # pyarrow's own error names neither file nor reason apart
            parquet.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return len(rows)


_COMPILE_COLUMNS = ("id", "function", "file", "line", "status", "started", "seconds", "reason")
