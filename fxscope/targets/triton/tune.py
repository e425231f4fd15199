"""Chooses a kernel's formulation by measurement, once per kernel and device; the choice is kept on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fxscope.errors import first_line
from fxscope.targets.triton.agreement import Results, left_out, limits
from fxscope.targets.triton.cache import cache_dir, keep
from fxscope.targets.triton.emit import Source
from fxscope.targets.triton.matmul import MatmulNest
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import LIBRARY, Schedule, candidates
from fxscope.targets.triton.trial import Bench, Card, Run

Write = Callable[[Nest, Schedule], Source]
Log = Callable[[str, Schedule, "float | None", str], None]
Verify = Callable[[str, dict[str, torch.Tensor]], "str | None"]
VERSION = 6
_logger = logging.getLogger(__name__)


class Tuner:
    """Times every candidate of a kernel on the device.

    A candidate can win only if its outputs, on poisoned memory, are those of the plain candidate (the one that is taken untimed; of a
    matrix product, the library's). One that spills registers is not even run where another runs.

    Args:
        log: Called with (kernel, schedule, seconds or None, why not, or what else is to be said) for every candidate; by default a line
            for Python's ``logging``, of level INFO.
        verify: Called with (the kernel's name, its outputs by memory name) after a poisoned run; returns what is wrong, or None.
        card: What compiles, starts and times; by default the device.
    """

    def __init__(
        self, device: torch.device, log: Log | None = None, verify: Verify | None = None, card: Any = None
    ) -> None:
        self.device, self.log, self.verify = device, log or _tell, verify
        self.card = card or Card(device)

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
        path = tuned_path(write(nest, written), options, self.card.name)
        known = known_choice(path, options)
        if known is not None:
            return known
        timed = self.measure(nest, write, name, options, values or {})
        if not timed:
            return options[0]
        best = min(timed, key=lambda pair: pair[1])[0]
        keep(path, json.dumps({"kernel": name, "schedule": asdict(best)}))
        return best

    def measure(
        self, nest: Nest, write: Write, name: str, options: Sequence[Schedule], values: dict[str, torch.Tensor]
    ) -> list[tuple[Schedule, float]]:
        """Seconds of one launch (of both launches of ``library``) of the nearest few of those that are fit to run."""
        trial = _Trial(self, nest, name, Bench(self.card, self.device, values))
        if isinstance(nest, MatmulNest):
            options = [option for option in options if option.form != "library"]
            assert nest.tail is not None
            assert nest.write_tail is not None
            tail = self.choose(nest.tail, nest.write_tail, f"{name}_tail", values)
            trial.admit(LIBRARY, partial(Bench.library, nest=nest, schedule=tail))
        for spilled, option, binary in self._built(nest, write, name, options):
            if spilled and trial.runs:
                self.log(name, option, None, f"spills {spilled} registers")
                continue
            source = write(nest, option)  # again: it sizes the partial sums
            note = f"spills {spilled} registers, the fewest: no candidate that does not spill runs" if spilled else ""
            trial.admit(option, partial(Bench.run, nest=nest, source=source, binary=binary), note)
        # The nearest few again, longer and in turn: the first round is noisy, and clocks drift.
        again: dict[Schedule, list[float]] = {
            option: [] for option in sorted(trial.times, key=trial.times.__getitem__)[:5]
        }
        for _ in range(3):
            for option, times in again.items():
                times.append(self.card.seconds(trial.runs[option], launches=20, repeats=3))
        return [(option, statistics.median(times)) for option, times in again.items()]

    def _built(
        self, nest: Nest, write: Write, name: str, options: Sequence[Schedule]
    ) -> list[tuple[int, Schedule, Any]]:
        """Spilled registers, the candidate and its binary, of those that compile and fit the device; those that spill least first."""

        def build(source: Source) -> Any:
            try:
                return self.card.build(source)
            except Exception as error:  # noqa: BLE001 -- a candidate that does not compile is one that is not taken; `log` says why
                return error

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            binaries = list(pool.map(build, [write(nest, option) for option in options]))
        fit = []
        for option, binary in zip(options, binaries, strict=True):
            try:
                if isinstance(binary, Exception):
                    raise binary
                fit.append((binary.resources()[1], option, binary))
            except Exception as error:  # noqa: BLE001 -- out of registers or shared memory; `log` says which
                self.log(name, option, None, _brief(error))
        return sorted(fit, key=lambda one: one[0])  # stable: the plain one stays ahead of others that spill as little


class _Trial:
    """Candidates of one kernel that run and are right, and the first one's results, which the others' are compared with."""

    def __init__(self, tuner: Tuner, nest: Nest, name: str, bench: Bench) -> None:
        self.tuner, self.nest, self.name, self.bench = tuner, nest, name, bench
        self.kept: list[tuple[Bench, Results]] = []
        self.doubt = ""  # said of the first
        self.runs: dict[Schedule, Run] = {}
        self.times: dict[Schedule, float] = {}

    def admit(self, option: Schedule, make: Callable[[Bench], Run], note: str = "") -> None:
        """Run a candidate once, look at what it wrote, and time it if that is right."""
        card, seconds, why = self.tuner.card, None, ""
        try:
            run = self._started(make, self.bench)
            why = self._wrong(run) or self._unlike(option, make, run)
            if not why:
                if not self.runs:
                    card.warm_up(run)
                seconds = card.seconds(run, launches=6, repeats=5)
                self.runs[option], self.times[option] = run, seconds
        except Exception as error:  # noqa: BLE001 -- out of shared memory or device memory, most likely; `log` says what
            why = _brief(error)
        self.tuner.log(self.name, option, seconds, why or note or self.doubt)
        self.doubt = ""

    def _started(self, make: Callable[[Bench], Run], bench: Bench) -> Run:
        run = make(bench)
        run.start(0)
        self.tuner.card.wait()
        return run

    def _wrong(self, run: Run) -> str:
        """What is wrong with the outputs of a run on poisoned memory; a kernel that is fed by another cannot be verified alone."""
        own = all(value.memory.source is not None for value in self.nest.kernel.values if value.memory is not None)
        why = self.tuner.verify(self.name, run.outputs) if self.tuner.verify and own else ""
        return why or left_out(run.outputs)

    def _unlike(self, option: Schedule, make: Callable[[Bench], Run], run: Run) -> str:
        """How a candidate differs from the first: on these inputs, and where they give next to no numbers, on tame ones too."""
        if not self.kept:
            kept = [(self.bench, self._results(option, run))]
            if kept[0][1].vague:
                tame = self.bench.tame()
                kept.append((tame, self._results(option, self._started(make, tame))))
            self.kept = kept
            self.doubt = "an output holds next to no finite numbers to compare others with" if kept[-1][1].vague else ""
            return ""
        for bench, results in self.kept:
            found = run if bench is self.bench else self._started(make, bench)
            why = results.unlike(found.outputs)
            if why:
                return why
        return ""

    def _results(self, option: Schedule, run: Run) -> Results:
        sums = {memory.name for value, memory, _ in self.nest.kernel.stores if value.partial}
        return Results(option.text(), run.outputs, sums, limits(self.nest))


def _tell(name: str, option: Schedule, seconds: float | None, why: str) -> None:
    took = "not taken" if seconds is None else f"{seconds * 1e6:.2f} us"
    _logger.info("%s: %s: %s%s", name, option.text(), took, f": {why}" if why else "")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def tuned_path(source: Source, options: Sequence[Schedule], device_name: str) -> Path:
    """Where the choice for a kernel is kept; ``source`` is the kernel as its first candidate writes it."""
    import triton

    text = [source.text, device_name, triton.__version__, str(VERSION), str(len(options))]
    text += [f"{m.dtype}{m.misaligned}" for m in source.args]
    key = hashlib.sha256("\n".join(text).encode()).hexdigest()[:32]
    return cache_dir() / "tuned" / key[:2] / f"{key}.json"


def known_choice(path: Path, options: Sequence[Schedule]) -> Schedule | None:
    """The choice that was kept, if there is one."""
    known = _read(path)
    return next((option for option in options if asdict(option) == known), None)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["schedule"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # absent, torn, or somebody else's: tune again
    return found if isinstance(found, dict) else None
