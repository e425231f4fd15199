"""A machine: numbers from a TOML file, each with its source, and the presets that come along."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from fxscope.errors import UnreadableError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
PREFIX = "machine_"
DEFAULT = "gemmini-16x16"
Dataflow = Literal["ws", "os", "is"]


class Array(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The array of multiply-accumulate cells.

    Attributes:
        dataflow: Weight, output or input stationary.
        shadow: Weights load into shadow registers while the fold before them runs (ws and is).
        passes: Passes through the array that one multiply of a data type takes; 1 is full rate.
    """

    rows: int
    cols: int
    dataflow: Dataflow = "ws"
    shadow: bool = True
    passes: dict[str, int]


class Vector(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The element-wise unit: ``ceil(n / lanes) * interval`` cycles, results ``latency`` cycles later."""

    lanes: int
    interval: int
    latency: int
    transcendental: int  # interval of exp, log, erf, tanh and the like


class Local(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Local memories, in bytes; both are addressed in lines of ``line_bytes``."""

    line_bytes: int
    scratchpad: int
    accumulator: int


class Memory(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One memory behind the load and store engines.

    Attributes:
        bytes: Capacity; 0 where the machine has none.
        bytes_per_cycle: Peak rate, shared by loads and stores.
        burst: Bytes of the smallest transfer; shorter contiguous runs cost a whole burst each.
    """

    bytes: int
    bytes_per_cycle: float
    burst: int
    read_latency: int
    write_latency: int


class Queues(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Depth of the three queues, of the token channels between them, and how many transfers may be under way."""

    load: int
    execute: int
    store: int
    tokens: int
    outstanding: int


class Host(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What moving an island's inputs and outputs costs."""

    bytes_per_cycle: float
    launch_cycles: int


class Machine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything that compiler, executor and cycle model know of the hardware.

    Attributes:
        sources: Where each number comes from, by ``table.key``.
    """

    name: str
    doc: str
    clock_ghz: float
    array: Array
    vector: Vector
    local: Local
    dram: Memory
    chip: Memory
    queues: Queues
    host: Host
    sources: dict[str, str] = {}

    @property
    def spad_lines(self) -> int:
        """Lines of the scratchpad."""
        return self.local.scratchpad // self.local.line_bytes

    @property
    def acc_lines(self) -> int:
        """Lines of the accumulator."""
        return self.local.accumulator // self.local.line_bytes

    @property
    def line_words(self) -> int:
        """32-bit words of an accumulator line."""
        return self.local.line_bytes // 4

    def seconds(self, cycles: float) -> float:
        """Time of that many cycles."""
        return cycles / (self.clock_ghz * 1e9)

    def lines(self, cols: int, element_bytes: int) -> int:
        """Lines that one row of ``cols`` elements takes."""
        return -(-cols * element_bytes // self.local.line_bytes)


def names() -> list[str]:
    """Presets that come along."""
    return sorted(path.stem[len(PREFIX) :] for path in HERE.glob(f"{PREFIX}*.toml"))


def load(name: str | Path) -> Machine:
    """A preset by name, or a machine from a TOML file.

    Raises:
        UsageError: No such preset or file.
        UnreadableError: Bad TOML, a missing, unknown or impossible value; names it.
    """
    path = HERE / f"{PREFIX}{name}.toml"
    if not path.exists():
        path = Path(name)
        if path.suffix != ".toml":
            raise UsageError(f"unknown machine {str(name)!r}; presets: {', '.join(names())}; or give a .toml file")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; presets: {', '.join(names())}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path}: no TOML: {error}") from None
    return from_data(data, str(path))


def from_data(data: dict[str, Any], where: str) -> Machine:
    """A machine from decoded TOML.

    Raises:
        UnreadableError: See :func:`load`.
    """
    try:
        machine = msgspec.convert(data, Machine)
    except msgspec.ValidationError as error:
        raise UnreadableError(f"{where}: {error}") from None
    problem = _problem(machine)
    if problem:
        raise UnreadableError(f"{where}: {problem}")
    return machine


def _problem(machine: Machine) -> str | None:
    """The first number that no machine can have."""
    array, local = machine.array, machine.local
    checks = (
        (1 <= array.rows <= 4096 and 1 <= array.cols <= 4096, "array.rows and array.cols lie in 1 to 4096"),
        (set(array.passes) <= {"f32", "bf16", "f16", "i8"}, "array.passes knows f32, bf16, f16, i8"),
        (all(count > 0 for count in array.passes.values()), "array.passes are at least 1"),
        (local.line_bytes in (16, 32, 64, 128, 256), "local.line_bytes is 16, 32, 64, 128 or 256"),
        (16 <= machine.spad_lines <= 1 << 20, "local.scratchpad holds 16 to 1048576 lines"),
        (16 <= machine.acc_lines <= 1 << 20, "local.accumulator holds 16 to 1048576 lines"),
        (machine.clock_ghz > 0, "clock_ghz is positive"),
        (
            machine.vector.lanes > 0 and machine.vector.interval > 0 and machine.vector.transcendental > 0,
            "vector.lanes, vector.interval and vector.transcendental are positive",
        ),
        (
            min(machine.vector.latency, machine.host.launch_cycles) >= 0
            and all(min(memory.read_latency, memory.write_latency) >= 0 for memory in (machine.dram, machine.chip)),
            "latencies and host.launch_cycles are not negative",
        ),
        (machine.dram.bytes_per_cycle > 0 and machine.dram.burst > 0, "dram.bytes_per_cycle and burst are positive"),
        (machine.chip.bytes >= 0, "chip.bytes is not negative"),
        (
            machine.chip.bytes == 0 or (machine.chip.bytes_per_cycle > 0 and machine.chip.burst > 0),
            "chip.bytes_per_cycle and burst are positive",
        ),
        (machine.host.bytes_per_cycle > 0, "host.bytes_per_cycle is positive"),
        (
            min(machine.queues.load, machine.queues.execute, machine.queues.store, machine.queues.tokens) > 0
            and machine.queues.outstanding > 0,
            "queues are at least 1 deep",
        ),
    )
    return next((text for good, text in checks if not good), None)


def with_values(machine: Machine, changes: dict[str, Any]) -> Machine:
    """A copy with dotted keys changed: ``{"array.rows": 32}``; for what-if sweeps.

    Raises:
        UsageError: No such key.
        UnreadableError: An impossible value.
    """
    data: dict[str, Any] = msgspec.to_builtins(machine)
    for key, value in changes.items():
        at = data
        *path, last = key.split(".")
        for part in path:
            at = at.get(part, {}) if isinstance(at, dict) else {}
        if last not in at or isinstance(at[last], dict):
            raise UsageError(f"a machine has no number {key!r}; for example array.rows, local.scratchpad")
        at[last] = value
        data["sources"][key] = "what-if"
    return from_data(data, "what-if machine")
