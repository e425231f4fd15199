"""Many logs, very large logs, endless logs: throughput, memory and scaling. Run with ``make bench``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fxscope
from fxscope.graph.diff import diff_graphs
from fxscope.graph.parse import parse_graph
from tests.benchmarks.big_log import write_big_log

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1500)]
TLPARSE = "tlparse"
RANKS = [sys.executable, "-m", "fxscope", "ranks"]


def _seconds(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and CPU seconds of the child and its children."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begin, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def _medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)


@pytest.fixture(scope="module")
def ranks(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 logs of 27 MB."""
    folder = tmp_path_factory.mktemp("ranks")
    first = folder / "first.log"
    write_big_log(next((shared / "traces" / "h200" / "gpt2").glob("*.xz")), first, 27)
    for rank in range(64):
        os.link(first, folder / f"dedicated_log_torch_trace_rank_{rank}.log")
    first.unlink()
    return folder


@pytest.mark.shared
def test_two_processes_against_one(ranks: Path) -> None:
    one, two = [], []
    for _ in range(3):
        one.append(_seconds([*RANKS, str(ranks)]))
        two.append(_seconds([*RANKS, str(ranks), "--workers", "2"]))
    (wall_one, cpu_one), (wall_two, cpu_two) = _medians(one), _medians(two)
    print(
        f"\n64 logs of 27 MB: one process {wall_one:.1f} s ({cpu_one:.1f} s CPU), two {wall_two:.1f} s ({cpu_two:.1f} s CPU): "
        f"{wall_one / wall_two:.2f} times faster; {os.getloadavg()[0]:.1f} ready to run on {os.cpu_count()} cores"
    )
    assert wall_one / wall_two > 1.7


@pytest.mark.shared
def test_rank_findings_against_tlparse(ranks: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for rank in range(8):  # tlparse needs 30 s for these; all 64 would take four minutes
        os.link(
            ranks / f"dedicated_log_torch_trace_rank_{rank}.log", few / f"dedicated_log_torch_trace_rank_{rank}.log"
        )
    peer = [TLPARSE, "--all-ranks-html", str(few), "-o", str(tmp_path / "html"), "--overwrite", "--no-browser"]
    pairs = [(_seconds(peer), _seconds([*RANKS, str(few)])) for _ in range(2)]
    (their_wall, theirs), (our_wall, ours) = (_medians(list(column)) for column in zip(*pairs, strict=True))
    print(
        f"\n8 logs of 27 MB: tlparse --all-ranks-html {their_wall:.1f} s ({theirs:.1f} s CPU), fxscope ranks {our_wall:.1f} s "
        f"({ours:.1f} s CPU): {their_wall / our_wall:.1f} times faster on the clock, {theirs / ours:.1f} times in CPU seconds"
    )
    assert theirs / ours > 10


@pytest.mark.shared
def test_opening_through_a_kept_index(shared: Path, tmp_path: Path) -> None:
    """CPU seconds to open a log of 500 MB, and how much of it is read from the disk, with and without its index."""
    log = tmp_path / "big.log"
    write_big_log(next((shared / "traces" / "h200" / "gpt2").glob("*.xz")), log, 500)
    os.utime(log, (log.stat().st_mtime - 60,) * 2)
    code = (
        "import os, sys, time; import fxscope; f = os.open(sys.argv[1], os.O_RDONLY);"
        "os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED);"
        "b = time.process_time(); r = fxscope.open(sys.argv[1]); t = r.totals.events; s = time.process_time() - b;"
        "m = int([l for l in open('/proc/self/io') if l.startswith('read_bytes')][0].split()[1]) / 1024; print(s, m, t)"
    )
    rows: list[list[list[float]]] = [[], []]
    for kept in (0, 1):
        if kept:
            made = _seconds([sys.executable, "-m", "fxscope", "index", str(log)])[1]
        for _ in range(5):
            out = subprocess.run(
                [sys.executable, "-c", code, str(log)], check=True, capture_output=True, text=True
            ).stdout
            rows[kept].append([float(part) for part in out.split()])
    assert rows[0][0][2] == rows[1][0][2]
    (cpu, pages), (kept_cpu, kept_pages) = (
        (statistics.median(row[0] for row in half), statistics.median(row[1] for row in half) / 1024) for half in rows
    )
    print(
        f"\nopening 500 MB: {cpu:.2f} s CPU, {pages:.0f} MiB read from the disk; through its index {kept_cpu:.2f} s CPU, "
        f"{kept_pages:.0f} MiB; making the index {made:.2f} s CPU"
    )
    assert cpu / kept_cpu > 1.3


@pytest.mark.shared
def test_five_gigabytes(shared: Path, tmp_path: Path) -> None:
    size = int(os.environ.get("FXSCOPE_BENCH_MB", "5000"))
    if shutil.disk_usage(tmp_path).free < 2 * size * 1_000_000:
        pytest.skip(f"{size} MB do not fit on the disk")
    code = (
        "import fxscope, os, sys; b = os.times(); r = fxscope.open(sys.argv[1]); t = r.totals; a = os.times();"
        "m = [l for l in open('/proc/self/status') if l.startswith('RssAnon')][0].split()[1];"
        "print(a.user - b.user, a.system - b.system, m, t.compiles)"
    )
    user = {}
    for megabytes in (size // 10, size):
        log = tmp_path / "big.log"
        written = write_big_log(next((shared / "traces" / "h200" / "gpt2").glob("*.xz")), log, megabytes) / 1e6
        done = subprocess.run([sys.executable, "-c", code, str(log)], check=True, capture_output=True, text=True)
        in_user, in_system, pages, compiles = (float(part) for part in done.stdout.split())
        rate, user[megabytes], private = written / (in_user + in_system), written / in_user, pages / 1024
        print(
            f"\n{megabytes} MB: {rate:.0f} MB per CPU second ({in_system:.1f} s of it the kernel's), {private:.0f} MiB private, "
            f"{compiles:.0f} compiles"
        )
        log.unlink()
    assert rate > 80
    assert private < 500
    assert user[size] > 0.7 * user[size // 10]  # linear; what the kernel reads from the disk is not ours


def _event(envelope: dict[str, object], payload: str | None = None) -> bytes:
    if payload is not None:
        envelope["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    body = "" if payload is None else "\t" + payload.replace("\n", "\n\t") + "\n"
    return f"V1129 11:59:38.304000 440 torch/_dynamo/x.py:1] {json.dumps(envelope)}\n{body}".encode()


def _compile(frame: int, number: int, reason: bool) -> bytes:
    ids: dict[str, object] = {"frame_id": frame, "frame_compile_id": number, "attempt": 0}
    stack = [{"line": 7, "name": f"f{frame}", "filename": 0, "loc": "y = f(x)"}]
    metrics = {
        "co_name": f"f{frame}",
        "co_filename": "/u/train.py",
        "co_firstlineno": 7,
        "entire_frame_compile_time_s": 0.01,
        "graph_op_count": 3,
        "graph_node_count": 5,
        "guard_count": 9,
    }
    text = f"{frame}/{number - 1}: tensor 'x' size mismatch at index 0. expected {number}, actual {number + 1}"
    parts = [_event({"dynamo_start": {"stack": stack}, **ids})]
    if reason:
        parts.append(_event({"artifact": {"name": "recompile_reasons", "encoding": "json"}, **ids}, json.dumps([text])))
    parts.append(_event({"compilation_metrics": metrics, **ids}))
    return b"".join(parts)


@pytest.mark.parametrize(("frames", "each"), [(1, 10_000), (1000, 2)])
def test_many_recompiles_and_many_frames(tmp_path: Path, frames: int, each: int) -> None:
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    parts = [_event({"str": ["/u/train.py", 0]})]
    parts += [_compile(frame, number, number > 0) for frame in range(frames) for number in range(each)]
    log.write_bytes(b"".join(parts))
    for verb in ("report", "diagnose"):
        _, seconds = _seconds([sys.executable, "-m", "fxscope", verb, str(log)])
        print(f"\n{frames} frames of {each} compiles: fxscope {verb} {seconds:.2f} CPU s")
        assert seconds < 20
    assert fxscope.open(log).totals.recompiles == frames * (each - 1)


def test_a_graph_of_200_000_nodes() -> None:
    lines = ["class GraphModule(torch.nn.Module):", '    def forward(self, x: "f32[4]"):']
    lines += [f'        relu_{i}: "f32[4]" = torch.relu({f"relu_{i - 1}" if i else "x"})' for i in range(200_000)]
    text = "\n".join([*lines, "        return (relu_199999,)"])
    begin = time.process_time()
    graph = parse_graph(text)
    parsed = time.process_time() - begin
    begin = time.process_time()
    assert diff_graphs(graph, graph).empty
    print(
        f"\n200,000 nodes ({len(text) / 1e6:.0f} MB): parse {parsed:.1f} s, diff with itself {time.process_time() - begin:.1f} s"
    )
    assert len(graph.nodes) >= 200_002


@pytest.mark.shared
def test_following_two_gigabytes_keeps_memory_flat(shared: Path, tmp_path: Path) -> None:
    """A writer that appends while a reader follows: private memory grows with the compiles, not with the bytes."""
    import lzma

    raw = lzma.decompress(next((shared / "traces" / "h200" / "gpt2").glob("*.xz")).read_bytes())
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    total = int(os.environ.get("FXSCOPE_BENCH_FOLLOW_MB", "2000"))
    if shutil.disk_usage(tmp_path).free < 3 * total * 1_000_000:
        pytest.skip(f"{total} MB do not fit on the disk")
    # One long graph text again and again under one compile: bytes grow, records hardly do.
    filler = _event(
        {"artifact": {"name": "noise", "encoding": "string"}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0},
        "x\n" * 500_000,
    )
    log.write_bytes(raw)
    recording = fxscope.open(log)
    assert recording.totals.compiles
    start = _private()
    worst = 0.0
    with open(log, "ab") as file:
        for _ in range(total * 1_000_000 // len(filler)):
            file.write(filler)
            file.flush()
            begin = time.process_time()
            assert recording.refresh()
            worst = max(worst, time.process_time() - begin)
    grown = (_private() - start) / 1024
    print(
        f"\nfollowed {log.stat().st_size / 1e9:.1f} GB: {grown:.1f} MiB more private memory, slowest refresh {worst * 1e3:.0f} ms CPU"
    )
    assert grown < 50


def _private() -> int:
    """KiB of anonymous memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.split("\n") if line.startswith("RssAnon")).split()[1])
