"""``fxscope diagnose --measure``: graphs are replayed, and it says after how many calls compiling pays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fxscope
from fxscope.cli import measure
from fxscope.cli.diagnose import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One graph, which an eager backend got; measuring compiles it with Inductor."""
    import torch

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x * w).sin() + x).sum(1)

    folder = tmp_path_factory.mktemp("measure") / "chain.fxscope"
    torch._dynamo.reset()
    with fxscope.record(folder):
        compiled = torch.compile(step, backend="eager")
        for _ in range(3):
            compiled(torch.ones(64, 64), torch.ones(64, 64))
    return folder


@pytest.mark.parametrize(
    ("eager", "compiled", "calls", "pays", "title"),
    [
        (5.0, 1.0, 3, "computed", "pays after"),
        (1.0, 5.0, 3, None, "slower than eager"),
        (5.0, 1.0, 10**6, "computed", None),  # it paid: no finding
    ],
)
def test_after_how_many_calls_it_pays(
    chain: Path, monkeypatch: pytest.MonkeyPatch, eager: float, compiled: float, calls: int, pays: Any, title: Any
) -> None:
    """The graph is rebuilt and run for real; only the clock and the compiler are the test's."""
    import torch

    ran = []

    def clock(first: Callable[[], Any], second: Callable[[], Any], device: str) -> tuple[list[float], list[float]]:
        ran.append((first(), second()))
        return [eager] * 3, [compiled] * 3

    monkeypatch.setattr(measure, "_interleaved", clock)
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    recording = fxscope.open(chain)
    for each in recording.compiles:
        each.calls = calls
    said: list[str] = []
    rows = measure.measure_graphs(recording, said.append)
    assert len(ran) == len(rows) == len(said) == len([each for each in recording.compiles if each.status == "ok"])
    assert all(isinstance(value, torch.Tensor) for result in ran[0] for value in result)
    (row, *_) = rows
    assert (row.problem, row.eager_ms, row.compiled_ms) == (None, 1e3 * eager, 1e3 * compiled)
    assert row.compile_seconds is not None
    saved = eager - compiled
    assert row.pays_after == (None if pays is None else -int(-row.compile_seconds // saved))
    found = measure.findings_of(recording, rows)
    if title is None or (row.pays_after is not None and calls >= row.pays_after):
        assert found == []
    else:
        assert title in found[0].title
        assert found[0].ids == ["not-amortised"]


def test_the_command_measures_with_inductor(chain: Path) -> None:
    result = CliRunner().invoke(command, [str(chain), "--measure", "--json"])
    assert result.exception is None, result.output
    document = json.loads(result.stdout)
    assert document["measured"]
    for row in document["measured"]:
        assert row["problem"] is None
        assert row["eager_ms"] > 0
        assert row["compiled_ms"] > 0
    told = [finding for finding in document["findings"] if "not-amortised" in finding["ids"]]
    short = [row for row in document["measured"] if row["pays_after"] is None or row["calls"] < row["pays_after"]]
    assert len(told) == len(short)
