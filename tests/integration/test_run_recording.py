"""Recordings of real programs: complete, and readable by PyTorch's own tool."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fxscope
from tests.integration.trace_logs import EAGER, Events, artifacts, calls, check_log, compiles, logs, start


def test_late_and_repeated_recordings_name_every_string_they_use(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "twice.py"
    script.write_text(
        EAGER + "import fxscope, sys\n"
        "g = torch.compile(f, backend='eager'); g(torch.ones(2))\n"
        "with fxscope.record(sys.argv[1]) as path: g(torch.ones(3)); print(path)\n"
        "torch._dynamo.reset()\n"
        "with fxscope.record(sys.argv[2]):\n    g(torch.ones(4)); g(torch.ones(4))\n    torch._dynamo.reset(); g(torch.ones(4))\n"
        "g(torch.ones(5))\n"
    )
    first, second = tmp_path / "first", tmp_path / "second"
    done = subprocess.run(
        [sys.executable, script, first, second], capture_output=True, text=True, check=True, timeout=120
    )
    assert (done.stdout, done.stderr) == (f"{first}\n", "")
    (log,) = logs(first)
    assert compiles(check_log(log, log_events)) == 1
    (log,) = logs(second)
    events = check_log(log, log_events)
    assert compiles(events) == 2  # the id 0/0 twice, and what came before and after is in neither
    assert calls(events) == [("0/0", 1), ("0/0", 2)]
    session = json.loads((second / "session.json").read_text())
    assert (session["state"], session["exit_code"], session["script"]) == ("ended", None, str(script))


def test_processes_of_every_kind_have_logs_of_their_own(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "family.py"
    script.write_text(
        EAGER + "import multiprocessing, os, sys\n"
        "def child(n):\n    torch.compile(f, backend='eager')(torch.ones(n)); print('child', n, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    g = torch.compile(f, backend='eager'); g(torch.ones(2)); g(torch.ones(2))\n"
        "    if (pid := os.fork()) == 0:\n"
        "        g(torch.ones(2)); torch._dynamo.reset(); child(3)\n"
        "        import time; time.sleep(2.5); os._exit(0)\n"  # long enough for a flush
        "    os.waitpid(pid, 0)\n"
        "    for method in ('fork', 'spawn'):\n"
        "        worker = multiprocessing.get_context(method).Process(target=child, args=(4,)); worker.start(); worker.join()\n"
        "        assert worker.exitcode == 0\n"
        "    idle = multiprocessing.get_context('fork').Process(target=print, args=('idle',)); idle.start(); idle.join()\n"
    )
    folder = tmp_path / "r"
    assert start(script, folder).stdout == "child 3\nchild 4\nchild 4\nidle\n"
    by_parent: dict[bool, list] = {True: [], False: []}
    for log in logs(folder):
        events = check_log(log, log_events)
        (facts,) = artifacts(events, "fxscope.session")
        assert f"_{facts['pid']}_" in log.name
        by_parent[facts["forked_from"] is not None].append(events)
    assert (len(by_parent[True]), len(by_parent[False])) == (2, 2)  # two forked; the program itself and the spawned one
    assert len(json.loads((folder / "session.json").read_text())["processes"]) == 4
    (forked,) = (events for events in by_parent[True] if artifacts(events, "fxscope.launches"))
    # Counted in the child alone: one call of what the parent compiled, one of its own, although it never ended properly.
    assert calls(forked) == [("0/0", 1), ("0/0", 1)]
    assert not artifacts(forked, "fxscope.end")
    # The reader adds the child's call to the compile of its parent, and says who called.
    recording = fxscope.open(str(folder))
    (compile_,) = (each for each in recording.compiles if each.key == "0/0")
    assert compile_.calls == 3
    assert {
        each.process == compile_.process: each.calls for each in recording.launches if each.compile_key == "0/0"
    } == {
        True: 2,
        False: 1,
    }


def test_a_programs_own_trace_and_logs_are_as_without_us(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "own.py"
    script.write_text(
        EAGER + "import logging; logging.disable(logging.CRITICAL)\ntorch.compile(f, backend='eager')(torch.ones(2))\n"
    )
    own = tmp_path / "own"
    start(script, tmp_path / "r", TORCH_TRACE=str(own), TORCH_LOGS="graph_breaks,recompiles")
    (theirs,), (ours,) = logs(own), logs(tmp_path / "r")

    def names(log: Path) -> list[str]:
        kinds = []
        for envelope, _ in log_events(log):
            name = str(envelope.get("artifact", {}).get("name", ""))
            if not name.startswith(("fxscope.", "torch_version")):
                kinds.append(name or next(iter(envelope)))
        return kinds

    check_log(theirs, log_events)
    assert "fxscope." not in theirs.read_text()
    assert sorted(names(theirs)) == sorted(names(ours))
    assert len(names(ours)) > 10


def test_threads_that_compile_at_once_lose_no_event_and_no_call(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "threads.py"
    script.write_text(
        EAGER + "import sys, threading\nsys.setswitchinterval(1e-5)\n"
        "def work(n):\n"
        "    exec(f'def own{n}(x): return x * {n}', globals())\n"
        "    g = torch.compile(globals()[f'own{n}'], backend='eager')\n"
        "    h = shared\n"
        "    for _ in range(200): g(torch.ones(2)); h(torch.ones(2))\n"
        "shared = torch.compile(f, backend='eager'); shared(torch.ones(2))\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "[t.start() for t in threads]; print(threading.active_count()); [t.join() for t in threads]\n"
    )
    start(script, tmp_path / "r")
    (log,) = logs(tmp_path / "r")
    events = check_log(log, log_events)
    total: dict[int, int] = {}
    for flushed in artifacts(events, "fxscope.launches"):
        for row in flushed["entries"]:
            assert total.get(row["graph"], 0) < row["calls"]  # a running total
            total[row["graph"]] = row["calls"]
    graphs = artifacts(events, "fxscope.graph")
    assert len(graphs) == compiles(events) == len(total)
    assert sum(total.values()) == 1 + 8 * 400


def test_config_per_thread_and_forced_config(tmp_path: Path, log_events: Events) -> None:
    if importlib.metadata.version("torch").startswith("2.11."):
        pytest.skip("torch 2.11 has one set of settings for all threads")
    script = tmp_path / "config.py"
    script.write_text(
        EAGER + "import threading\n"
        "torch._dynamo.config.recompile_limit = 3\n"
        "g = torch.compile(f, backend='eager'); g(torch.ones(2))\n"
        "def work():\n"
        "    torch._dynamo.config.verbose = True; torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
        "    print(torch._dynamo.config.recompile_limit)\n"
        "t = threading.Thread(target=work); t.start(); t.join()\nprint(torch._dynamo.config.recompile_limit)\n"
    )
    assert start(script, tmp_path / "r").stdout == "8\n3\n"  # torch keeps settings per thread
    (log,) = logs(tmp_path / "r")
    rows = artifacts(check_log(log, log_events), "fxscope.config")
    assert [(row["main"], row["values"]) for row in rows] == [
        (True, {"torch._dynamo.config.recompile_limit": 3}),
        (False, {"torch._dynamo.config.verbose": True}),
    ]
    forced = start(
        script, tmp_path / "forced", "--config", "recompile_limit=5", "--config", "inductor.max_fusion_size=7"
    )
    assert (forced.stdout, forced.stderr) == ("5\n5\n", "")
    (log,) = logs(tmp_path / "forced")
    for row in artifacts(log_events(log), "fxscope.config"):
        assert row["values"]["torch._dynamo.config.recompile_limit"] == 5
    unknown = start(script, tmp_path / "unknown", "--config", "no_such_setting=5", "--backend", "aot_eager")
    assert "no_such_setting" in unknown.stderr


def test_settings_of_a_main_thread_that_compiles_nothing(tmp_path: Path) -> None:
    if importlib.metadata.version("torch").startswith("2.11."):
        pytest.skip("torch 2.11 has one set of settings for all threads")
    script = tmp_path / "pool.py"
    script.write_text(
        EAGER + "from concurrent.futures import ThreadPoolExecutor\n"
        "LIMIT = 16 * 2\ntorch._dynamo.config.cache_size_limit = LIMIT\n"
        "with ThreadPoolExecutor(1) as pool:\n"
        "    print(pool.submit(torch.compile(f, backend='eager'), torch.ones(2)).result().sum().item())\n"
    )
    start(script, tmp_path / "r")
    (finding,) = fxscope.open(str(tmp_path / "r")).diagnose()
    assert finding.ids == ["per-thread-config"]
    assert finding.code == "torch._dynamo.config.cache_size_limit = LIMIT"
    assert "torch._dynamo.config.recompile_limit = 32" in finding.fix


def test_overrides_of_torch_compile(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "chosen.py"
    script.write_text(
        EAGER + "g = torch.compile(f, backend='aot_eager', dynamic=False)\n"
        "g(torch.ones(2)); g(torch.ones(3))\n"
        "class M(torch.nn.Module):\n    forward = lambda self, x: x + 1\n"
        "m = M(); m.compile(mode='max-autotune'); m(torch.ones(1, 2))\n"
    )
    start(script, tmp_path / "r", "--backend", "eager", "--dynamic")
    (log,) = logs(tmp_path / "r")
    events = check_log(log, log_events)
    assert [row["backend"] for row in artifacts(events, "fxscope.graph")] == ["eager", "eager"]
    first = artifacts(events, "fxscope.graph")[0]["inputs"]
    assert [row["kind"] for row in first] == ["symint", "tensor"]
    assert (first[1]["shape"], first[1]["hint"], first[1]["source"]) == ([first[0]["expression"]], [2], "L['x']")
    assert artifacts(events, "fxscope.session")[0]["options"] == {"backend": "eager", "dynamic": True}


@pytest.mark.slow
def test_inductor_with_every_extra(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "extras.py"
    script.write_text(
        "import torch\nm = torch.nn.Linear(8, 8)\nc = torch.arange(8.0)\n"
        "def f(x):\n    return (m(x).relu() * c).sum()\n"
        "g = torch.compile(f, mode='reduce-overhead')\nfor _ in range(20):\n    g(torch.ones(4, 8)).backward()\n"
    )
    options = ("--save-tensors", "--time-launches", "--fusion-log")
    done = start(
        script,
        tmp_path / "r",
        *options,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
        TORCHINDUCTOR_COMPILE_THREADS="2",
        PYTHONWARNINGS="ignore:Guards may run slower:RuntimeWarning",  # torch of Python 3.13.0
    )
    # A CUDA build of torch says so itself where there is a CUDA toolkit and no GPU.
    said = [line for line in done.stderr.splitlines() if "No CUDA runtime is found" not in line]
    assert (done.stdout, said) == ("", [])
    (log,) = logs(tmp_path / "r")  # Inductor's compile workers wrote none
    events = check_log(log, log_events)
    (graph,) = artifacts(events, "fxscope.graph")
    assert (graph["backend"], graph["mode"], graph["ops"]) == ("inductor", "reduce-overhead", 4)
    assert sum(row["parameter"] for row in graph["inputs"]) == 2
    from safetensors import safe_open

    with safe_open(tmp_path / "r" / graph["tensors"], "np") as file:
        saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {f"input:{row['name']}" for row in graph["inputs"]} == set(saved)
    assert any(value.tolist() == [float(n) for n in range(8)] for value in saved.values() if value.shape == (8,))
    (row,) = artifacts(events, "fxscope.launches")[-1]["entries"]
    assert row["calls"] == 20
    for direction in ("forward", "backward"):
        assert row[direction]["samples"] == 19  # all but the first, which may still compile
        assert 0 < row[direction]["min"] <= row[direction]["mean"] <= row[direction]["max"]
    fusions = artifacts(events, "fxscope.fusion")
    assert len(fusions) == 2  # forward and backward
    assert all(any("fuse" in line for line in fusion["lines"]) for fusion in fusions)
