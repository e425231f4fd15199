"""What costs time on a card only: waits of the host, launches that outweigh their work, CUDA graphs that are skipped; and where it is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

import fxscope
from fxscope.diagnosis.diagnose import diagnose
from fxscope.diagnosis.findings import Finding
from tests.gpu.recorded import record

HEAD = """import torch
torch.manual_seed(0)
device = "cuda"
"""
# Products with a matrix in between cannot be fused into one kernel, and on 32 rows each takes less than its launch.
SMALL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(40))
    def forward(self, x):  # NET
        for layer in self.layers:
            x = torch.cumsum(layer(x), 1)
        return x
net = torch.compile(Net().to(device).requires_grad_(False){mode})
x = torch.randn(32, 32, device=device)
for _ in range(300):
    net(x)
torch.cuda.synchronize()
"""
SYNCS = """
torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True
@torch.compile
def scale(x):
    n = x.abs().max().item()  # ITEM
    return x / n
@torch.compile
def kept(x):
    return torch.nonzero(x > 0) * 2  # NONZERO
@torch.compile
def copied(x):
    return (x * 2).cpu() + 1  # COPY
x = torch.randn(64, 64, device=device)
for _ in range(20):
    scale(x); kept(x); copied(x)
"""
SKIPPED = """
import torch._inductor.config
torch._inductor.config.graph_partition = False  # else the part on the CPU is cut out, and the rest replayed
@torch.compile(mode="reduce-overhead")
def step(x, scale):
    return x.relu().sum(1) * scale.to(x.device)
scale = torch.ones(64)  # on the CPU
for _ in range(5):
    step(torch.randn(64, 64, device=device), scale{moved})
"""
MUTATES = """
@torch.compile(mode="reduce-overhead")
def step(x, cache):
    cache.add_(x)
    return (cache * 2).sum(1)
for _ in range(5):
    step(torch.randn(64, 64, device=device), torch.zeros(64, 64, device=device))
"""
HEALTHY = """
@torch.compile
def mlp(x, a, b):
    return torch.relu(x @ a) @ b
x, a, b = (torch.randn(2048, 2048, device=device, dtype=torch.bfloat16) for _ in range(3))
for _ in range(50):
    mlp(x, a, b)
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("findings")


def line_of(text: str, mark: str) -> int:
    return next(number for number, line in enumerate((HEAD + text).splitlines(), 1) if f"# {mark}" in line)


def found(path: Path, id_: str) -> list[Finding]:
    return [finding for finding in diagnose(fxscope.open(path)) if id_ in finding.ids]


def seconds_per_call(path: Path) -> float:
    return min(each.call_seconds for each in fxscope.open(path).compiles if each.call_seconds)


def test_waits_of_the_host_are_named_by_line(folder: Path) -> None:
    findings = found(record(folder, "syncs", HEAD + SYNCS), "host-sync")
    lines = {finding.line: finding for finding in findings}
    for mark in ("ITEM", "NONZERO", "COPY"):
        assert line_of(SYNCS, mark) in lines, [(each.line, each.title) for each in findings]
    assert "20 calls" in lines[line_of(SYNCS, "ITEM")].cause


def test_many_small_kernels_are_launch_bound_and_cuda_graphs_mend_it(folder: Path) -> None:
    plain = record(folder, "small", HEAD + SMALL.format(mode=""))
    (finding,) = found(plain, "launch-bound")
    assert finding.line == line_of(SMALL, "NET")
    assert finding.change == "mode:reduce-overhead"
    assert "skipped" not in finding.fix
    graphs = record(folder, "small_graphs", HEAD + SMALL.format(mode=', mode="reduce-overhead"'))
    assert found(graphs, "launch-bound") == []  # the remedy is in force
    assert seconds_per_call(graphs) < 0.8 * seconds_per_call(plain)


def test_cuda_graphs_that_are_skipped_say_why(folder: Path) -> None:
    (finding,) = found(record(folder, "skipped", HEAD + SKIPPED.format(moved="")), "cudagraph-skipped")
    assert "cpu" in finding.title
    assert "on the device" in finding.fix
    assert found(record(folder, "moved", HEAD + SKIPPED.format(moved=".to(device)")), "cudagraph-skipped") == []


def test_an_argument_that_is_written_is_named(folder: Path) -> None:
    (finding,) = found(record(folder, "mutates", HEAD + MUTATES), "cudagraph-skipped")
    assert (finding.severity, "the argument cache is written in place" in finding.title) == ("info", True)
    assert "mark_static_address" in finding.fix


def test_large_products_are_no_fault(folder: Path) -> None:
    findings = diagnose(fxscope.open(record(folder, "healthy", HEAD + HEALTHY)))
    assert [(each.severity, each.ids) for each in findings if each.severity != "info"] == []
