"""The choke point, in this process: backends stay what they are, and what they return stays fast."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fxscope
from fxscope.capture.api import RecordingBackend
from fxscope.capture.recorder import ACTIVE

Events = Callable[[Path], list[tuple[dict, str]]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert ACTIVE == []


def payloads(folder: Path, name: str, log_events: Events) -> list[dict[str, Any]]:
    (log,) = folder.glob("*.log")
    return [json.loads(p) for envelope, p in log_events(log) if envelope.get("artifact", {}).get("name") == name]


def calls(folder: Path, log_events: Events) -> dict[int, int]:
    """The last total of each entry; an entry is in a flush only if it changed since the one before."""
    flushes = payloads(folder, "fxscope.launches", log_events)
    return {row["graph"]: row["calls"] for flush in flushes for row in flush["entries"]}


def test_a_lazy_graph_module_is_made_real_before_it_is_wrapped(tmp_path: Path) -> None:
    from torch.fx._lazy_graph_module import _LazyGraphModule

    returned = []

    def lazy(gm: Any, inputs: Any) -> Any:
        assert isinstance(gm, _LazyGraphModule)
        assert gm._needs_recompile()
        returned.append(gm)
        return gm.forward if len(returned) == 1 else gm

    def plus(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def minus(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    with fxscope.record(tmp_path / "r"):
        for number, function in enumerate((plus, minus)):
            result = torch.compile(function, backend=lazy)(torch.ones(2))
            assert result.tolist() == [[2.0, 2.0], [0.0, 0.0]][number]
            assert not returned[number]._needs_recompile()
            assert returned[number].forward.__name__ != "_lazy_forward"


def test_attributes_and_identity_of_what_a_backend_returns(tmp_path: Path, log_events: Events) -> None:
    seen = []

    def marked(gm: Any, inputs: Any) -> Any:
        def inner(*args: Any) -> Any:
            return gm.forward(*args)

        inner.mark = "kept"
        seen.append(inner)
        return inner

    compiled = torch.compile(lambda x: x * 2, backend=marked)
    with fxscope.record(tmp_path / "r"):
        for _ in range(5):
            compiled(torch.ones(3))
        torch.compile(lambda x: x * 2, backend=marked)(torch.ones(3))
    assert len(seen) == 2
    assert {row["backend"] for row in payloads(tmp_path / "r", "fxscope.graph", log_events)} == {"marked"}
    assert sorted(calls(tmp_path / "r", log_events).values()) == [1, 5]


def test_an_equal_recording_backend_does_not_recompile(tmp_path: Path, log_events: Events) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with fxscope.record(tmp_path / "r"):
        for _ in range(3):
            torch.compile(twice, backend=RecordingBackend("eager"))(torch.ones(2))
        torch.compile(twice, backend=RecordingBackend("aot_eager"))(torch.ones(2))
    graphs = payloads(tmp_path / "r", "fxscope.graph", log_events)
    assert [row["backend"] for row in graphs] == ["eager", "aot_eager"]


def test_inputs_and_constants_are_described(tmp_path: Path, log_events: Events) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 2, dtype=torch.float64))

        def forward(self, x: torch.Tensor, scale: int) -> torch.Tensor:
            return x.double() @ self.weight * scale + torch.tensor([1.0, 2.0], dtype=torch.float64)

    with fxscope.record(tmp_path / "r"):
        torch.compile(Model(), backend="eager", dynamic=True, fullgraph=True)(torch.ones(6, 3, 4).transpose(0, 1), 5)
    (row,) = payloads(tmp_path / "r", "fxscope.graph", log_events)
    assert (row["fullgraph"], row["dynamic"], row["graph"] >= 0) == (True, True, True)
    tensors = {item["source"]: item for item in row["inputs"] if item["kind"] == "tensor"}
    x = tensors["L['x']"]
    assert (x["dtype"], x["hint"], x["stride_hint"], x["requires_grad"]) == (
        "torch.float32",
        [3, 6, 4],
        [4, 12, 1],
        False,
    )
    assert all(isinstance(size, str) for size in x["shape"][:2])
    weight = next(item for source, item in tensors.items() if "weight" in source)
    assert (weight["parameter"], weight["requires_grad"], weight["shape"]) == (True, True, [4, 2])
    numbers = [item for item in row["inputs"] if item["kind"] == "symint"]
    assert {5, 3, 6} <= {item["hint"] for item in numbers}


def test_recordings_nest_and_close_whatever_happens(tmp_path: Path, log_events: Events) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with fxscope.record(tmp_path / "outer"):
        compiled(torch.ones(2))
        with contextlib.suppress(KeyError), fxscope.record(tmp_path / "inner"):
            compiled(torch.ones(3))
            raise KeyError
        compiled(torch.ones(3))
    assert len(payloads(tmp_path / "outer", "fxscope.graph", log_events)) == 2
    assert len(payloads(tmp_path / "inner", "fxscope.graph", log_events)) == 1
    assert list(calls(tmp_path / "inner", log_events).values()) == [1]
    with pytest.raises(FileExistsError), fxscope.record(tmp_path / "outer"):
        pass
    with pytest.raises(TypeError), fxscope.record(tmp_path / "other", no_such_option=1):
        pass


def test_a_fault_of_ours_is_one_line_and_no_fault_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fxscope.capture import graphs

    def fails(*_: Any) -> None:
        raise RuntimeError("of ours")

    monkeypatch.setattr(graphs, "describe_inputs", fails)
    monkeypatch.setattr(graphs, "_faults", set())
    with fxscope.record(tmp_path / "r"):
        compiled = torch.compile(lambda x: x + 1, backend="eager")
        assert [compiled(torch.ones(n)).sum().item() for n in (2, 3)] == [4.0, 6.0]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fxscope: describing a graph failed")


def test_what_torch_lacks_is_listed_and_the_rest_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_events: Events
) -> None:
    from types import ModuleType

    from fxscope.capture import breaks, facts, fusion, graphs

    monkeypatch.setattr(facts, "UNAVAILABLE", [])
    for hook in (breaks.hook_break_log, fusion.hook_scheduler, graphs.hook_output_graph):
        hook(ModuleType("another torch"))
    assert len(facts.UNAVAILABLE) == 3
    with fxscope.record(tmp_path / "r"):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    (session,) = payloads(tmp_path / "r", "fxscope.session", log_events)
    assert [row["feature"] for row in session["unavailable"]] == [row["feature"] for row in facts.UNAVAILABLE]


def test_counting_survives_wrapping_and_forgetting() -> None:
    from fxscope.capture.launches import Entry

    entry = Entry("0/0", 0, 0)
    counted = entry.counting(lambda *args, **keywords: (args, keywords))
    assert counted(1, 2, key=3) == ((1, 2), {"key": 3})
    counted()
    assert entry.calls == 2
    entry.forget()
    assert entry.calls == 0
    counted()
    assert entry.calls == 1


def test_calls_belong_to_their_entry_after_a_reset_gave_its_id_anew(tmp_path: Path) -> None:
    with fxscope.record(tmp_path / "r"):
        for function, times in ((lambda x: x * 2, 7), (lambda x: x * 3 + 1, 3)):
            torch._dynamo.reset()
            compiled = torch.compile(function, backend="eager")
            for _ in range(times):
                compiled(torch.ones(2))
    recording = fxscope.open(tmp_path / "r")
    assert [(row.id.partition("#")[2], row.calls) for row in recording.compiles] == [("", 7), ("2", 3)]
    assert [launch.calls for launch in recording.launches] == [7, 3]
