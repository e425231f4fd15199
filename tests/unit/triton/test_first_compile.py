"""What a process does once before its first compile: Triton hashes its own files, beside the rest and by one thread."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
import triton
from triton.runtime import cache

from fxscope.targets.triton import module
from fxscope.targets.triton.executable import Compiled, first_candidate
from fxscope.targets.triton.target import TritonTarget
from tests.unit.triton.traced import graph


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not hashed yet."""
    monkeypatch.setattr(module, "_hashing", [])


@pytest.mark.usefixtures("fresh")
def test_a_compile_waits_for_the_one_thread_that_hashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    go, early, happened = threading.Event(), threading.Event(), []
    asked, meeting, hash_early = threading.Barrier(5), threading.Barrier(2), module.hash_early

    class Hashing(list[threading.Thread]):
        """Two threads that look at it at once both find it empty."""

        def __len__(self) -> int:
            found = super().__len__()
            with contextlib.suppress(threading.BrokenBarrierError):  # nobody else comes: that is what is tested
                meeting.wait(0.5)
            return found

    def ask() -> threading.Thread:
        thread = hash_early()
        asked.wait(60)
        return thread

    def key() -> str:
        go.wait(60)
        happened.append("hashed")
        return "key"

    def compiled(*_: Any, **__: Any) -> str:
        happened.append("compiled")
        early.set()
        return "kernel"

    monkeypatch.setattr(module, "_hashing", Hashing())
    monkeypatch.setattr(module, "hash_early", ask)
    monkeypatch.setattr(cache, "triton_key", key)
    monkeypatch.setattr(triton, "compile", compiled)
    x = torch.ones(64)
    written = Compiled(graph(torch.relu, x), (x,), first_candidate, torch.device("cpu"), False, bind=False)
    (source,) = written.sources
    threads = [threading.Thread(target=module.compile_binary, args=(source, (9, 0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    asked.wait(60)
    early.wait(0.5)  # what does not wait for the hash is through by then
    go.set()
    for thread in threads:
        thread.join(60)
    assert happened == ["hashed"] + ["compiled"] * 4


@pytest.mark.usefixtures("fresh")
def test_it_starts_when_the_target_is_made_where_kernels_will_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    monkeypatch.setattr(cache, "triton_key", lambda: hashed.append(1))
    for interpreting, missing, started in (
        (True, None, 0),
        (False, "no triton", 0),
        (False, None, 1),
        (False, None, 1),
    ):
        monkeypatch.setattr(module, "interpreting", lambda answer=interpreting: answer)
        monkeypatch.setattr(module, "missing", lambda answer=missing: answer)
        TritonTarget()
        assert len(module._hashing) == started
    module._hashing[0].join(60)
    assert hashed == [1]
    assert module._hashing[0].daemon  # a program that ends meanwhile ends


@pytest.mark.usefixtures("fresh")
def test_what_goes_wrong_there_is_left_to_the_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        raise OSError("libtriton cannot be read")

    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    monkeypatch.setattr(cache, "triton_key", key)
    module.hash_early().join(60)
    assert told == []
