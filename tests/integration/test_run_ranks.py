"""Distributed programs, recorded: DDP with its optimizer's splits, FSDP2, DataLoader workers; one log per process, ranks right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fxscope.diagnosis.ranks import compare_ranks
from fxscope.recording.many import summarize_all
from fxscope.recording.recording import Recording, open_recording
from fxscope.report.perfetto import perfetto

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
pytestmark = pytest.mark.slow
LOADERS = """\
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

def scale(x):
    return (x * 2).relu()

class Rows(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, n):
        return torch.compile(scale, backend="eager")(torch.full((8,), float(n)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((8, 600), (600, 600), (600, 8)))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = torch.compile(nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=1), backend="aot_eager")
    net(torch.ones(2, 8)).sum().backward()
    for method in ("fork", "spawn"):
        for batch in DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context=method):
            loss = net(batch).sum()
            loss.backward()
    print(f"rank {dist.get_rank()}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()
"""


def _record(folder: Path, *program: str) -> Recording:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(folder), "--", *launcher, *program],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0" in done.stdout
    assert "rank 1" in done.stdout
    recording = open_recording(folder)
    assert recording.session.ranks == [0, 1]
    assert recording.totals.failures == recording.totals.unknown_events == 0
    return recording


def test_ddp_with_splits_and_workers_of_both_kinds(tmp_path: Path) -> None:
    script = tmp_path / "loaders.py"
    script.write_text(LOADERS)
    recording = _record(tmp_path / "r", str(script))
    logs = sorted(path.name for path in (tmp_path / "r").glob("*.log"))
    # The training process, a forked worker and a spawned one: a log each, of the rank that started them.
    assert [name.split("_")[4:6] for name in logs] == [["rank", "0"]] * 3 + [["rank", "1"]] * 3
    assert recording.session.processes == 6
    children = [a.compile_key for a in recording.artifacts if a.name.startswith("optimize_ddp_split_child")]
    assert sorted({key.split(":")[0] for key in children if key}) == ["r0", "r1"]
    assert len(children) >= 4  # two parts or more on each rank
    for rank in (0, 1):
        functions = [row.function for row in recording.compiles if row.rank == rank and row.status == "ok"]
        assert functions.count("scale") == 2  # each worker compiled it once
        assert "forward" in functions
    tracks = {(e["pid"], e["tid"]) for e in json.loads("".join(perfetto(recording)))["traceEvents"] if e["ph"] == "X"}
    assert sorted(pid for pid, _ in tracks) == [0, 0, 0, 1, 1, 1]
    # Workers are no ranks of their own: the training processes are what is compared, and they agree.
    assert compare_ranks(summarize_all(tmp_path / "r")) == []


def test_fsdp2_where_one_rank_meets_a_longer_sequence_first(tmp_path: Path) -> None:
    sample = str(SAMPLES / "parallel_transformer.py")
    options = ["--parallel", "fsdp2", "--layers", "1", "--steps", "4", "--backend", "eager", "--uneven"]
    recording = _record(tmp_path / "r", sample, *options)
    assert sorted(path.name.split("_")[5] for path in (tmp_path / "r").glob("*.log")) == ["0", "1"]
    again = [row for row in recording.recompiles if any("expected 64, actual 96" in f.guard for f in row.failed)]
    assert sorted({row.rank for row in again}) == [0, 1]
    assert min(again, key=lambda row: row.started).rank == 1
    _check_timeline(recording, again)


def _check_timeline(recording: Recording, again: list) -> None:  # type: ignore[type-arg]
    """Both ranks in one Perfetto document, a group of tracks each, on one clock."""
    events = json.loads("".join(perfetto(recording)))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    spans = [e for e in events if e["ph"] == "X"]
    for rank in (0, 1):
        own = [e for e in spans if e["pid"] == rank]
        assert own
        # What the recorder says of the same compile, from the other clock of the log: printed local time.
        for row in (row for row in again if row.rank == rank):
            seen = [e for e in own if e["args"].get("compile_id") == row.id]
            assert seen
            assert abs(min(e["ts"] for e in seen) / 1e6 - row.started) < 0.5
    first, last = min(e["ts"] for e in spans), max(e["ts"] + e["dur"] for e in spans)
    assert recording.session.started - 1 < first / 1e6 < last / 1e6 < recording.session.ended + 1
