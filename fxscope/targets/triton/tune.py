"""Chooses a kernel's formulation by measurement, once per kernel and device; the choice is kept on disk."""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fxscope.targets import replay
from fxscope.targets.triton import module
from fxscope.targets.triton.emit import Source
from fxscope.targets.triton.ir import Memory
from fxscope.targets.triton.matmul import MatmulNest, Operand
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import LIBRARY, Schedule, candidates

Write = Callable[[Nest, Schedule], Source]
Log = Callable[[str, Schedule, float | None, str], None]
MAX_SPILLS = 8  # registers; beyond it the spilled bytes are traffic of their own
VERSION = 4


class Tuner:
    """Times every candidate of a kernel on the device.

    Args:
        log: Called with (kernel, schedule, seconds or None, why not) for every candidate.
        verify: Called with (the kernel's outputs by memory name) after a poisoned run; returns what is wrong, or None.
    """

    def __init__(
        self,
        device: torch.device,
        log: Log | None = None,
        verify: Callable[[str, dict[str, torch.Tensor]], str | None] | None = None,
    ) -> None:
        self.device, self.log, self.verify = device, log, verify
        self.pool: dict[tuple[str, int], torch.Tensor] = {}

    def choose(self, nest: Nest, write: Write, name: str, values: dict[str, torch.Tensor] | None = None) -> Schedule:
        """The fastest candidate that compiles, does not spill, and is right.

        Args:
            nest: The kernel's loop nest.
            write: Writes the kernel with a schedule.
            name: The kernel's name.
            values: Tensors for the memories that the kernel reads, by name; others are filled with random numbers.
        """
        options = candidates(nest)
        if len(options) == 1:
            return options[0]
        written = next(option for option in options if option.form != "library")
        path = tuned_path(write(nest, written), options, torch.cuda.get_device_name(self.device))
        known = known_choice(path, options)
        if known is not None:
            return known
        timed = self.measure(nest, write, name, options, values or {})
        if not timed:
            return options[0]
        best = min(timed, key=lambda pair: pair[1])[0]
        _save(path, best, name)
        return best

    def measure(
        self, nest: Nest, write: Write, name: str, options: Sequence[Schedule], values: dict[str, torch.Tensor]
    ) -> list[tuple[Schedule, float]]:
        """Seconds of one launch (of both launches of ``library``) of every candidate that is fit to run."""
        capability = torch.cuda.get_device_capability(self.device)
        timed: list[tuple[Schedule, float]] = []
        runs: dict[Schedule, Callable[[int], None]] = {}
        reference: dict[str, torch.Tensor] = {}
        if isinstance(nest, MatmulNest):
            options = [option for option in options if option.form != "library"]
            runs[LIBRARY] = self._library(nest, name, values)
            runs[LIBRARY](0)
            reference = {key: item.clone() for key, item in runs[LIBRARY].outputs.items()}  # type: ignore[attr-defined]
            _warm_up(runs[LIBRARY])
            timed.append((LIBRARY, replay_seconds(runs[LIBRARY], launches=6, repeats=5)))
        sources = [write(nest, option) for option in options]

        def build(source: Source) -> module.Binary | Exception:
            try:
                return module.compile_binary(source, capability)
            except Exception as error:  # noqa: BLE001 -- a candidate that does not compile is one that is not taken; `log` says why
                return error

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            binaries = list(pool.map(build, sources))
        for option, binary in zip(options, binaries, strict=True):
            source = write(nest, option)  # again: it sizes the partial sums
            seconds, why = None, ""
            try:
                if isinstance(binary, Exception):
                    raise binary
                spills = binary.resources()[1]
                if spills > MAX_SPILLS:
                    why = f"spills {spills} registers"
                else:
                    run = self._runner(nest, source, binary, values)
                    why = self._check(nest, source, run) or _unlike(run, reference)
                    if not why:
                        if not runs:
                            _warm_up(run)
                        seconds = replay_seconds(run, launches=6, repeats=5)
                        runs[option] = run
            except Exception as error:  # noqa: BLE001 -- out of registers, shared memory or device memory; `log` says which
                why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if self.log:
                self.log(name, option, seconds, why)
            if seconds is not None:
                timed.append((option, seconds))
        # The nearest few again, longer and in turn: the first round is noisy, and clocks drift.
        again: dict[Schedule, list[float]] = {option: [] for option, _ in sorted(timed, key=lambda pair: pair[1])[:5]}
        for _ in range(3):
            for option in again:
                again[option].append(replay_seconds(runs[option], launches=20, repeats=3))
        self.pool.clear()
        return [(option, statistics.median(times)) for option, times in again.items()]

    def _runner(
        self, nest: Nest, source: Source, binary: module.Binary, values: dict[str, torch.Tensor]
    ) -> Callable[[int], None]:
        """Launches on the i-th set of tensors."""
        from fxscope.targets.triton.executable import shifted_copies

        launch = binary.launcher(self.device.index or 0)
        written = {memory.name for _, memory, _ in nest.kernel.stores}
        size = sum(nest.big(memory) for memory in source.args)
        sets = max(1, min(3, 2**33 // max(size, 1)))
        calls = [
            {m.name: self._tensor(m, m.name in written, values, copy) for m in source.args} for copy in range(sets)
        ]
        n = nest.col_count

        def run(i: int) -> None:
            tensors = calls[i % sets]
            shifted = [shifted_copies(tensors[m.name], n, -(-n // 64) * 64, interpreted=False) for m in source.shifted]
            launch(*shifted, *(tensors[m.name] for m in source.args))

        run.sets = sets  # type: ignore[attr-defined]
        run.outputs = {name: calls[0][name] for name in written}  # type: ignore[attr-defined]
        return run

    def _library(self, nest: MatmulNest, name: str, values: dict[str, torch.Tensor]) -> Callable[[int], None]:
        """The library's product into memory, and the best kernel for what follows."""
        assert nest.tail is not None
        assert nest.write_tail is not None
        assert nest.library.extern is not None
        schedule = self.choose(nest.tail, nest.write_tail, f"{name}_tail", values)
        source = nest.write_tail(nest.tail, schedule)
        binary = module.compile_binary(source, torch.cuda.get_device_capability(self.device))
        after = self._runner(nest.tail, source, binary, values)
        memory = nest.product[0].memory
        assert memory is not None
        call = nest.library.extern[0].overloadpacket.out
        rows, cols = nest.row_count, nest.col_count
        operands: list[tuple[Operand, tuple[int, ...]]] = [(nest.a, (rows, nest.depth)), (nest.b, (nest.depth, cols))]
        if nest.bias is not None:
            # A bias as the program has it, a vector: for a matrix the library takes another way.
            operands.insert(0, (nest.bias, (rows, cols) if nest.bias.rows else (cols,)))

        def operand(place: Operand, shape: tuple[int, ...], copy: int) -> torch.Tensor:
            base = self._tensor(place.memory, False, values, copy)
            strides = (place.rows, place.cols)[-len(shape) :]
            return base.as_strided(shape, strides, base.storage_offset() + place.offset)

        sets = after.sets  # type: ignore[attr-defined]
        given = [[operand(*pair, copy) for pair in operands] for copy in range(sets)]
        results = [self._tensor(memory, False, values, copy) for copy in range(sets)]

        def run(i: int) -> None:
            call(*given[i % sets], out=results[i % sets])
            after(i)

        run.outputs = after.outputs  # type: ignore[attr-defined]
        return run

    def _check(self, nest: Nest, source: Source, run: Any) -> str:
        """What is wrong with the outputs of one run on poisoned memory; a kernel fed by another cannot be judged alone."""
        run(0)
        torch.cuda.synchronize(self.device)
        own = all(value.memory.source is not None for value in nest.kernel.values if value.memory is not None)
        return (self.verify(source.name, run.outputs) or "") if self.verify and own else ""

    def _tensor(self, memory: Memory, written: bool, values: dict[str, torch.Tensor], copy: int) -> torch.Tensor:
        """A tensor for a memory; outputs are filled with NaN. Kept from one candidate to the next."""
        if not written and copy == 0 and memory.name in values:
            return values[memory.name]
        key = (memory.name, copy)
        if key not in self.pool or self.pool[key].shape != memory.shape:
            size = 9 + sum((n - 1) * abs(s) for n, s in zip(memory.shape, memory.strides, strict=True))
            flat = torch.zeros(size, dtype=memory.dtype, device=self.device)
            if memory.dtype.is_floating_point and not written:
                flat = torch.randn(size, dtype=torch.float32, device=self.device).to(memory.dtype)
            shift = memory.misaligned // memory.dtype.itemsize
            self.pool[key] = flat[shift:].as_strided(memory.shape, memory.strides)
        if written and memory.dtype.is_floating_point:
            self.pool[key].fill_(math.nan)
        return self.pool[key]


def _unlike(run: Any, reference: dict[str, torch.Tensor]) -> str:
    """How a product in one kernel differs from the library's beyond rounding; empty where it does not, or where there is none."""
    for name, want in reference.items():
        got = run.outputs[name]
        allowed = 1e-2 if want.dtype.itemsize == 2 or torch.get_float32_matmul_precision() != "highest" else 1e-4
        error = float((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-30))
        if not error <= allowed:
            return f"{name} differs from the library's by {error:.1e}"
    return ""


def tuned_path(source: Source, options: Sequence[Schedule], device_name: str) -> Path:
    """Where the choice for a kernel is kept; ``source`` is the kernel as its first candidate writes it."""
    import triton

    text = [source.text, device_name, triton.__version__, str(VERSION), str(len(options))]
    text += [f"{m.dtype}{m.misaligned}" for m in source.args]
    key = hashlib.sha256("\n".join(text).encode()).hexdigest()[:32]
    return module.cache_dir() / "tuned" / key[:2] / f"{key}.json"


def known_choice(path: Path, options: Sequence[Schedule]) -> Schedule | None:
    """The choice that was kept, if there is one."""
    known = _read(path)
    return next((option for option in options if asdict(option) == known), None)


def replay_seconds(call: Callable[[int], Any], launches: int = 20, repeats: int = 7) -> float:
    """Median time of one call by replays of a CUDA graph of ``launches`` calls; ``call`` gets 0, 1, 2..."""
    graph = replay.capture(call, launches)
    graph.replay()
    return statistics.median(replay.seconds(graph.replay) / launches for _ in range(repeats))


def _warm_up(run: Callable[[int], None]) -> None:
    """Up to 50 rounds of 30 launches, until a round takes 30 ms, so that the first candidate is not timed at idle clocks."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(50):
        start.record()
        for i in range(30):
            run(i)
        end.record()
        end.synchronize()
        if start.elapsed_time(end) > 30:
            return


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["schedule"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, or torn by a killed process: tune again
    return found if isinstance(found, dict) else None


def _save(path: Path, best: Schedule, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.tmp")
    part.write_text(json.dumps({"kernel": name, "schedule": asdict(best)}), encoding="utf-8")
    part.replace(path)
