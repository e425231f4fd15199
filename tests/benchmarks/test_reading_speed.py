"""Reading against tlparse 0.4.3 on the same log, and the memory and latency of it. Run with ``make bench``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fxscope
from tests.benchmarks.big_log import write_big_log

pytestmark = [pytest.mark.bench, pytest.mark.shared]
TLPARSE = "tlparse"
REPORT = [sys.executable, "-m", "fxscope", "report"]


def source(shared: Path) -> Path:
    return next((shared / "traces" / "h200" / "gpt2").glob("*.xz"))


def cpu_seconds(command: list[str]) -> float:
    """User and system seconds of a child: what a busy machine does not blur."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def wall_seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def interleaved(first: Callable[[], float], second: Callable[[], float], turns: int) -> tuple[float, float]:
    """Medians of pairs that were measured in turn."""
    pairs = [(first(), second()) for _ in range(turns)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("megabytes", "factor", "turns"), [(27, 6, 5), (100, 10, 3), (500, 10, 1)])
def test_faster_than_tlparse(shared: Path, tmp_path: Path, megabytes: int, factor: int, turns: int) -> None:
    log = tmp_path / "big.log"
    size = write_big_log(source(shared), log, megabytes)
    peer = [TLPARSE, str(log), "-o", str(tmp_path / "out"), "--overwrite", "--no-browser"]
    own = [*REPORT, str(log)]
    for measure in (wall_seconds, cpu_seconds):
        theirs, ours = interleaved(lambda m=measure: m(peer), lambda m=measure: m(own), turns)
        print(
            f"\n{size / 1e6:.0f} MB, {measure.__name__}: tlparse {theirs:.2f}, fxscope report {ours:.2f}, "
            f"{theirs / ours:.1f} times faster"
        )
        assert theirs / ours >= factor


def test_private_memory(shared: Path, tmp_path: Path) -> None:
    log = tmp_path / "big.log"
    write_big_log(source(shared), log, 500)
    program = (
        "import fxscope, sys, io\n"
        "from rich.console import Console\n"
        "from fxscope.report.terminal import print_report\n"
        "recording = fxscope.open(sys.argv[1])\n"
        "print_report(recording, Console(file=io.StringIO(), markup=False), everything=True)\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('RssAnon')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(log)], check=True, capture_output=True, text=True)
    anonymous = int(done.stdout) / 1024
    print(f"\nprivate memory after the report of 500 MB: {anonymous:.0f} MB")
    assert anonymous < 150


def test_small_report(shared: Path) -> None:
    log = str(Path(__file__).resolve().parents[1] / "data" / "traces" / "branches.log.xz")
    bare = [sys.executable, "-c", "pass"]
    start, ours = interleaved(lambda: wall_seconds(bare), lambda: wall_seconds([*REPORT, log]), 9)
    cpu = statistics.median(cpu_seconds([*REPORT, log]) for _ in range(5))
    print(f"\nsmall report: {ours:.2f} s on the clock ({cpu:.2f} s CPU), of which Python's start {start:.2f} s")
    assert cpu < 0.4


def test_following(shared: Path, tmp_path: Path) -> None:
    """From a line written to its record: below 0.2 s, and no dearer in a log of 100 MB than in one of 9."""
    costs = []
    for megabytes in (9, 100):
        log = tmp_path / f"{megabytes}.log"
        write_big_log(source(shared), log, megabytes)
        recording = fxscope.open(log)
        times = []
        for number in range(50):
            with open(log, "ab") as file:
                file.write(b'V1129 14:36:24.838000 439 torch/a.py:1] {"str": ["/new.py", %d]}\n' % (100_000 + number))
            begin = time.perf_counter()
            assert recording.refresh()
            assert recording.totals.events
            times.append(time.perf_counter() - begin)
        costs.append(statistics.median(times))
        assert costs[-1] < 0.2
    print(f"\nrefresh after one more event: {costs[0] * 1e3:.2f} ms at 9 MB, {costs[1] * 1e3:.2f} ms at 100 MB")
