"""Ten thousand recompiles, a thousand frames, a graph of 200,000 nodes: CPU grows no faster than the log. Run with ``make bench``."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.big_log import write_big_log, write_recompiles
from tests.benchmarks.test_graph_speed import text_of

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
VERBS = {"report": ("report",), "report --json": ("report", "--json"), "diagnose": ("diagnose",)}
STORM = """\
import torch

@torch.compile(backend="eager")
def scaled(x, name):
    return x * len(name)

for number in range(9):
    scaled(torch.ones(4), "x" * number)
"""


MEASURED = """\
import atexit, re, resource, sys

def tell():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
    print("USED", usage.ru_utime + usage.ru_stime, int(peak) / 1024, file=sys.stderr)

atexit.register(tell)
sys.argv[0] = "fxscope"
from fxscope.cli.main import main
main()
"""


def used(*command: str) -> tuple[float, float]:
    """CPU seconds and peak resident megabytes (mapped pages of the log included) of an fxscope command."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    seconds, megabytes = done.stderr.rpartition("USED ")[2].split()
    return float(seconds), float(megabytes)


def growth(small: Path, large: Path, times: float) -> None:
    """Print what each verb uses on both logs; what it adds to its start-up grows no faster than the log, give or take half."""
    for name, verb in VERBS.items():
        start, _ = used(*verb, "--help")
        (first, _), (second, memory) = used(*verb, str(small)), used(*verb, str(large))
        ratio = (second - start) / max(first - start, 0.05)
        print(
            f"{name}: {small.stat().st_size / 1e6:.1f} MB {first:.2f} s CPU, {large.stat().st_size / 1e6:.1f} MB {second:.2f} s CPU, "
            f"{memory:.0f} MB at most; log {times:.1f} times, work {ratio:.1f} times"
        )
        assert ratio < 1.5 * times
        assert memory < 400  # megabytes, whatever the size of the log


def test_ten_thousand_recompiles(recorded: Callable[..., object], tmp_path: Path) -> None:
    script = tmp_path / "storm.py"
    script.write_text(STORM)
    recording = recorded(script, options=("--config", "recompile_limit=100")).path  # type: ignore[attr-defined]
    (log,) = recording.glob("*.log")
    sizes = [write_recompiles(log, tmp_path / f"{number}.log", number) for number in (1000, 10_000)]
    report = subprocess.run(
        [sys.executable, "-m", "fxscope", "report", "--json", str(tmp_path / "10000.log")],
        capture_output=True,
        check=True,
    )
    assert json.loads(report.stdout)["totals"]["recompiles"] == 10_000
    print()
    growth(tmp_path / "1000.log", tmp_path / "10000.log", sizes[1] / sizes[0])


def test_a_thousand_frames(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[1] / "data" / "traces" / "nested_breaks.log.xz"
    unit = len(lzma.decompress(source.read_bytes())) / 1e6
    frames = json.loads(
        subprocess.run(
            [sys.executable, "-m", "fxscope", "report", "--json", str(source)], capture_output=True, check=True
        ).stdout
    )["totals"]["frames"]
    megabytes = unit * 1000 / frames
    sizes = [write_big_log(source, tmp_path / f"{part}.log", int(megabytes * part) + 1) for part in (0.1, 1)]
    print()
    growth(tmp_path / "0.1.log", tmp_path / "1.log", sizes[1] / sizes[0])


def test_a_graph_of_200000_nodes(tmp_path: Path) -> None:
    print()
    for nodes in (20_000, 200_000):
        log = tmp_path / f"{nodes}.log"
        graph = text_of(nodes)
        event = '{"dynamo_output_graph": {"sizes": {}}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "0"}'
        start = '{"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}'
        prefix = "V1129 11:59:38.304000 440 torch/_dynamo/x.py:1] "
        payload = "\t" + graph.rstrip("\n").replace("\n", "\n\t")
        log.write_text(f"{prefix}{start}\n{prefix}{event}\n{payload}\n")
    for verb in (("report",), ("diagnose",), ("export", "table"), ("export", "json"), ("export", "dot")):
        arguments = ("--graph", "0/0") if verb[0] == "export" else ()
        start, _ = used(*verb, "--help")
        (first, _), (second, memory) = (
            used(*verb, str(tmp_path / f"{nodes}.log"), *arguments) for nodes in (20_000, 200_000)
        )
        ratio = (second - start) / max(first - start, 0.05)
        print(
            f"{' '.join(verb)}: {first:.2f} and {second:.2f} s CPU, {memory:.0f} MB at most; 10 times the nodes, work {ratio:.1f} times"
        )
        assert ratio < 15
        assert memory < 1000
