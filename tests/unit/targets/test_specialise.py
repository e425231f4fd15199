"""Graphs with symbolic sizes on a target that needs concrete ones: a program per set of sizes, bounded."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxscope.targets.backend import make_backend
from fxscope.targets.npu.device import NpuTarget


def compiled(function, limit=8, **options):
    torch._dynamo.reset()
    reports = []
    backend = make_backend(NpuTarget(tried=1), decompositions="core", specialise=limit, on_report=reports.append)
    return torch.compile(function, backend=backend, **options), reports


def same(run, function, *inputs):
    torch.testing.assert_close(run(*inputs), function(*inputs), rtol=1e-4, atol=1e-5)


def test_each_size_gets_one_program():
    def f(x):
        return torch.relu(x) * x.shape[0] + 1

    run, reports = compiled(f, dynamic=True)
    for rows in (3, 5, 7, 3, 5):
        same(run, f, torch.randn(rows, 6))
    assert [report.coverage for report in reports] == [1.0] * 3
    sizes = [report.aten.graph.find_nodes(op="output")[0].args[0][0].meta["val"].shape[0] for report in reports]
    assert sizes == [3, 5, 7]


def test_strides_count_as_well():
    def f(x):
        return x * 2

    run, reports = compiled(f, dynamic=True)
    same(run, f, torch.randn(4, 6))
    x = torch.randn(6, 4).t()
    same(run, f, x)
    assert run(x).stride() == f(x).stride()
    assert all(report.coverage == 1.0 for report in reports)


def test_more_sizes_than_the_limit_run_eagerly_and_say_so():
    def f(x):
        return torch.tanh(x) + 1

    run, reports = compiled(f, limit=2, dynamic=True)
    for rows in (2, 3):
        same(run, f, torch.randn(rows, 4))
    with pytest.warns(UserWarning, match="npu: a graph of .* more than 2 sets of sizes; the further ones run eagerly"):
        same(run, f, torch.randn(5, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(run, f, torch.randn(6, 4))
        same(run, f, torch.randn(2, 4))
    assert [report.coverage for report in reports] == [1.0, 1.0, 0.0]
    reasons = {clause.code for clauses in reports[-1].partition.clauses.values() for clause in clauses}
    assert "dynamic-shape" in reasons


def test_training_with_changing_batches():
    layer = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(1), nn.Linear(20, 2))
    other = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(1), nn.Linear(20, 2))
    other.load_state_dict(layer.state_dict())
    run, reports = compiled(layer, dynamic=True)
    for batch in (4, 6):
        x = torch.randn(batch, 3, 5)
        for model, call in ((layer, run), (other, other)):
            model.zero_grad()
            call(x).square().sum().backward()
        for a, b in zip(layer.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
        for a, b in zip(layer.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(a, b)
    assert {report.kind for report in reports} == {"forward", "backward"}


def test_sizes_that_depend_on_data_and_floats_stay_symbolic():
    def rows(x, mask):
        return F.relu(x[mask]) + 1

    run, reports = compiled(rows, dynamic=True)
    x = torch.randn(6, 4)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        same(run, rows, x, x[:, 0] > 0)
        same(run, rows, x, x[:, 0] > 1)
    assert reports

    def scaled(x, rate):
        return torch.relu(x) * rate

    run, reports = compiled(scaled)
    for rate in (0.5, 0.25, 0.125, 0.1):
        same(run, scaled, x, rate)
    assert len(reports) <= 2  # one for the first value, one for all others
