"""The folder of sources and choices: absent, read-only, full, torn, hostile, shared."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton import cache, module
from fxscope.targets.triton.executable import TritonExecutable, first_candidate
from fxscope.targets.triton.schedule import Schedule
from fxscope.targets.triton.tune import known_choice
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device


def compiled(scale: float) -> TritonExecutable:
    """A kernel of its own for every scale, which no earlier test loaded."""
    x = on_device(torch.ones(7))
    made = TritonExecutable(graph(lambda x: x * scale, x), (x,), first_candidate, DEVICE, INTERPRETED)
    assert made(x)[0].tolist() == pytest.approx([scale] * 7)
    return made


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"file/triton cannot be written \(Not a directory\).*FXSCOPE_CACHE_DIR"):
        compiled(11.25)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        compiled(12.25)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_else_is_in_a_source_file_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    compiled(13.25)
    (path,) = tmp_path.rglob("*.py")
    good = path.read_text()
    for other in ("raise SystemExit('run')", "", "torn\x00", good[: len(good) // 2]):
        path.write_text(other)
        monkeypatch.delitem(sys.modules, path.stem)
        compiled(13.25)
        assert path.read_text() == good
    assert not list(tmp_path.rglob("*.pyc"))


def test_threads_that_load_and_run_the_same_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    made = compiled(14.25)
    assert made.latest is not None
    (source,) = made.latest.sources
    (path,) = tmp_path.rglob("*.py")
    path.unlink()
    monkeypatch.delitem(sys.modules, path.stem)
    found: list[object] = []
    kept: list[Path] = []
    meeting = threading.Barrier(2)

    def keep(path: Path, text: str) -> None:
        kept.append(path)
        with contextlib.suppress(threading.BrokenBarrierError):  # nobody else comes: that is what is tested
            meeting.wait(1)
        cache.keep(path, text)

    monkeypatch.setattr(module, "keep", keep)

    def work() -> None:
        function = module.load(source, INTERPRETED)
        found.append((function, made(on_device(torch.ones(7)))[0].tolist()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4
    assert kept == [path]
    assert [one.name for one in tmp_path.rglob("*.*")] == [path.name]


@pytest.mark.skipif(not INTERPRETED, reason="a card runs kernels of several threads at once")
def test_the_interpreter_runs_one_kernel_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the program's number in a global."""
    made = compiled(15.25)
    meeting, met, errstate = threading.Barrier(2), [], np.errstate

    def entered(**options: str) -> np.errstate:
        with contextlib.suppress(threading.BrokenBarrierError):  # nobody else comes: that is what is tested
            met.append(meeting.wait(0.5))
        return errstate(**options)

    monkeypatch.setattr(np, "errstate", entered)
    threads = [threading.Thread(target=made, args=(torch.ones(7),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == []


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("FXSCOPE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache.cache_dir().is_absolute()


CHOICES = [
    "", "{", "null", "[]", '"schedule"', "[" * 100_000, '{"schedule": 3}', '{"schedule": {"form": "row"}}', "\ud800",
    '{"schedule": {"form": "flat", "block": 4096, "programs": 1e999}}',
]  # fmt: skip


@pytest.mark.parametrize("text", CHOICES, ids=range(len(CHOICES)))
def test_a_choice_that_is_none_of_the_formulations_is_no_choice(text: str, tmp_path: Path) -> None:
    options = [Schedule("flat", 128), Schedule("flat", 256)]
    path = tmp_path / "choice.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert known_choice(path, options) is None
    cache.keep(path, json.dumps({"schedule": asdict(options[1])}))
    assert known_choice(path, options) == options[1]
