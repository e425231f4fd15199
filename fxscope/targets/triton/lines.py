"""The lines of a kernel as they are written: names, arguments, comments, indentation."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fxscope.targets.triton.fills import Fills
from fxscope.targets.triton.ir import Memory, Value
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import Schedule, vector

RESERVED = {
    "program", "batch", "row", "cols", "mask", "tl", "device", "libdevice", "triton", "torch", "start", "head", "inner", "base", "lane", "first", "pid", "top",
    "acc", "depth", "done", "a_tile", "b_tile", "top_tile", "height", "K", "DEPTH", "DOWN", "ACROSS", "GROUP", "N", "ROWS", "TOTAL", "BLOCK", "TILE", "VEC", "PITCH", "PROGRAMS", "max", "min", "sum", "abs", "range", "float", "gdc_wait", "gdc_launch_dependents",
    *keyword.kwlist,
}  # fmt: skip
# Coordinates and masks, which the writer numbers by dimension and part; an FX node may be called like one (aten.index is `index`).
COORDINATES = re.compile(r"(row|next_row|cols|mask|index|edge|base)(_(c?\d+|edge|next))*")
# What the writer derives from a name.
ENDINGS = ("", "_wide", "_next", "_next_wide", "_chunk", "_best", "_there", "_found")


@dataclass(frozen=True)
class Part:
    """One tensor's worth of columns: its names, masks, and whether it is the ragged ends of a row."""

    suffix: str = ""
    cols: str = "cols"
    mask: str | None = None
    col_mask: str | None = None
    edge: bool = False
    chunk: int = 0  # how many whole blocks lie before it in the row


class Lines:
    """The text so far, and what it has named. ``comments``: per FX node the line of the program it came from."""

    def __init__(self, nest: Nest, schedule: Schedule, name: str, comments: Mapping[str, str]) -> None:
        self.nest, self.schedule, self.name, self.comments = nest, schedule, name, comments
        self.lines: list[str] = []
        self.nodes: dict[int, tuple[str, ...]] = {}
        self.indent = 1
        self.env: dict[tuple[Value, str], str] = {}
        self.raw: dict[tuple[Value, str], str] = {}
        self.points: dict[tuple[Value, Value], str] = {}  # values at the column that a pick picks
        self.args: list[Memory] = []
        self.shifted: list[Memory] = []
        self.said = ""
        self.phase = 0
        self.row_mask: str | None = None
        self.part = False  # written as a function that gets the program's number
        self.names = self._names()
        self.absorbed: dict[Value, bool] = {}
        self.last = max((nest.level[v] for v in nest.kernel.values), default=0)
        self.flat = schedule.form == "flat"
        self.two_d = schedule.tile > 1
        # Elements of the tensor that holds the two ends of a row. A warp of them takes fewer registers beside many small parts.
        self.ends = "32" if schedule.chunks >= 8 else "2 * VEC"
        self.vec = vector(nest)
        self.fills = Fills(nest)
        self.sizes: dict[str, int] = {}  # constants that one formulation alone has

    def _last_size(self) -> int:
        return self.nest.cols[-1] if self.nest.cols else 1

    def _program(self) -> str:
        """The program's number, in 64 bits where some address needs them."""
        number = "program" if self.part else "tl.program_id(0)"
        return number + (".to(tl.int64)" if self.nest.int64() else "")

    def _lanes(self, count: str = "BLOCK") -> str:
        """The numbers of so many columns, in 64 bits where some address needs them."""
        return f"tl.arange(0, {count})" + (".to(tl.int64)" if self.nest.wide_columns() else "")

    def pitch(self) -> int:
        """Elements from one shifted copy to the next."""
        return -(-self.nest.col_count // 64) * 64

    def _names(self) -> dict[Value, str]:
        """A name per value that is no other's, nor any that the writer derives from another's."""
        parts = ["", "_edge", *(f"_c{k}" for k in range(1, self.schedule.chunks))]
        memories = {value.memory for value in self.nest.kernel.values} | {
            memory for _, memory, _ in self.nest.kernel.stores
        }
        taken = {*RESERVED, *(f"{m.name}{kind}_ptr" for m in memories if m for kind in ("", "_shifted"))}
        names: dict[Value, str] = {}
        by_load: dict[tuple[str, int, tuple[tuple[int, int], ...]], str] = {}
        for value in self.nest.kernel.values:
            name = value.memory.name if value.op == "load" and value.memory and value.memory.source else value.name
            if value.op == "load":
                key = (
                    value.memory.name if value.memory else "",
                    value.offset,
                    tuple(sorted(self.nest.axes.strides(value.strides).items())),
                )
                if key in by_load:
                    names[value] = by_load[key]
                    continue
            base = "".join(c if c.isalnum() else "_" for c in name)
            base += "_value" if COORDINATES.fullmatch(base) else ""
            for count in itertools.count():
                name = f"{base}_{count}" if count else base
                forms = {name + part + ending for part in parts for ending in ENDINGS}
                if not forms & taken:
                    break
            taken |= forms
            names[value] = name
            if value.op == "load":
                by_load[key] = name
        return names

    def put(self, text: str, *nodes: str) -> None:
        """One line."""
        self.lines.append("    " * self.indent + text)
        if nodes:
            self.nodes[len(self.lines)] = nodes

    def comment(self, text: str) -> None:
        """A comment line."""
        self.put(f"# {text}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A statement with an indented body."""
        self.put(head)
        self.indent += 1
        yield
        self.indent -= 1

    def argument(self, memory: Memory) -> str:
        """The kernel argument that points to a memory."""
        if memory not in self.args:
            self.args.append(memory)
        return f"{memory.name}_ptr"

    def _say(self, node: str) -> None:
        text = self.comments.get(node, "")
        if text and text != self.said:
            self.comment(text)
            self.said = text
