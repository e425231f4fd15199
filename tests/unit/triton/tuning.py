"""Drives the tuner without a card: kernels run in Triton's interpreter, times and spilled registers are handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fxscope.targets.triton import module
from fxscope.targets.triton.emit import Source
from fxscope.targets.triton.executable import Compiled
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import Schedule, candidates
from fxscope.targets.triton.trial import Run
from fxscope.targets.triton.tune import Tuner
from tests.unit.triton.traced import graph

CPU = torch.device("cpu")
Change = Callable[[str], str]


@dataclass
class Binary:
    """What a build gives."""

    source: Source
    spilled: int

    def resources(self) -> tuple[int, int]:
        return 32, self.spilled

    def launcher(self, device: int) -> Any:
        return module.interpreted_launcher(self.source)


@dataclass
class PretendedCard:
    """A card whose kernels take the given times (a second where none is given), spill and do not compile as is said; by schedule."""

    times: dict[Schedule, float]
    spills: dict[Schedule, int] = field(default_factory=dict)
    broken: set[Schedule] = field(default_factory=set)
    name: str = "pretended"
    interpreted: bool = True
    ran: list[Schedule] = field(default_factory=list)

    def build(self, source: Source) -> Binary:
        if source.schedule in self.broken:
            raise RuntimeError("out of resource: shared memory")
        return Binary(source, self.spills.get(source.schedule, 0))

    def wait(self) -> None:
        pass

    def warm_up(self, run: Run) -> None:
        pass

    def seconds(self, run: Run, launches: int, repeats: int) -> float:
        self.ran.append(run.schedule)
        return self.times.get(run.schedule, 1.0)


@dataclass
class Kernel:
    """The first kernel of a function, some of its candidates, and what the tuner says of each."""

    nest: Nest
    write: Callable[[Nest, Schedule], Source]
    options: Sequence[Schedule]
    said: dict[Schedule, tuple[float | None, str]] = field(default_factory=dict)

    def measure(self, card: PretendedCard, changes: dict[Schedule, Change] | None = None) -> list[Schedule]:
        """The candidates that the tuner takes for fit, the fastest first; ``changes`` are made to the sources of some."""

        def write(nest: Nest, schedule: Schedule) -> Source:
            source = self.write(nest, schedule)
            change = (changes or {}).get(schedule)
            if change is None:
                return source
            text = change(source.text)
            assert text != source.text
            return replace(source, text=text)

        def log(name: str, schedule: Schedule, seconds: float | None, why: str) -> None:
            self.said[schedule] = seconds, why

        timed = Tuner(CPU, log, card=card).measure(self.nest, write, "kernel", self.options, {})
        return [schedule for schedule, _ in sorted(timed, key=lambda pair: pair[1])]


def kernel(
    function: Callable[..., Any], *args: torch.Tensor, wanted: Callable[[Schedule], bool] | None = None
) -> Kernel:
    """The first kernel of a function and those of its candidates that are wanted, the one that is taken untimed first."""
    found: list[tuple[Any, Any]] = []

    def choose(nest: Any, write: Any, name: str, values: Any) -> Schedule:
        found.append((nest, write))
        return candidates(nest)[0]

    Compiled(graph(function, *args), args, choose, CPU, True, bind=False)
    nest, write = found[0]
    plain, *others = candidates(nest)
    return Kernel(nest, write, [plain, *(o for o in others if wanted is None or wanted(o))])
