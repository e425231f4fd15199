"""Writes a kernel's Triton source: one loop nest, one formulation, the names and lines of the graph it came from."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fxscope.targets.triton.ahead import Ahead
from fxscope.targets.triton.ir import Memory, Value
from fxscope.targets.triton.lines import Part
from fxscope.targets.triton.products import Products
from fxscope.targets.triton.reductions import Reductions
from fxscope.targets.triton.schedule import Schedule, may_overlap, traffic
from fxscope.targets.triton.tiles import Tiles


@dataclass
class Source:
    """One kernel, written.

    Attributes:
        args: Memories in the order of the kernel's arguments; a shifted copy is named with its memory.
        grid: Programs along each dimension.
        lines_to_nodes: Line of ``text``, 1-based, to FX node names.
        overlap: It may be started before the kernel ahead of it in the stream has ended; the text waits where it must.
    """

    name: str
    text: str
    args: list[Memory]
    shifted: list[Memory]
    grid: tuple[int, ...]
    schedule: Schedule
    lines_to_nodes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    overlap: bool = False


# Programmatic dependent launch (compute capability 9.0): the next kernel's programs are put in place while this one's last ones run.
OVERLAP = [
    "    # the next kernel may be set up meanwhile; nothing is read or written before the last one has ended",
    "    gdc_launch_dependents()",
    "    gdc_wait()",
]


class Writer(Reductions, Products, Ahead, Tiles):
    """Writes one kernel in the formulation that its schedule names."""

    def write(self, overlap: bool = False, *, part: bool = False) -> Source:
        """The source and how to call it; ``overlap``: see :class:`Source`.

        A ``part`` is a function that another kernel calls with the program's number.
        """
        self.part = part
        forms = {
            "flat": self._flat,
            "row": self._row,
            "loop": self._loop,
            "sums": self._sums,
            "matmul": self._matmul,
            "tiles": self._tiles,
        }
        grid = forms[self.schedule.form]()
        overlap = overlap and self.schedule.early and may_overlap(traffic(self.nest), math.prod(grid))
        arguments = (
            ["program"] * part + [f"{m.name}_shifted_ptr" for m in self.shifted] + [f"{m.name}_ptr" for m in self.args]
        )
        head = ["@triton.jit", f"def {self.name}({', '.join(arguments)}):", f'    """{self._title()}"""']
        constants = self._constants("\n".join(self.lines)) + OVERLAP * overlap
        shift = len(head) + len(constants)
        lines = {number + shift: nodes for number, nodes in self.nodes.items()}
        text = "\n".join([*head, *constants, *self.lines]) + "\n"
        return Source(self.name, text, self.args, self.shifted, grid, self.schedule, lines, overlap)

    def _title(self) -> str:
        nest = self.nest
        if self.flat:
            return f"{nest.col_count} elements; {self.schedule.text()}."
        return f"{nest.row_count} rows of {nest.col_count}; {self.schedule.text()}."

    def _constants(self, body: str) -> list[str]:
        sizes = {
            "N": self._last_size() if self.flat else self.nest.col_count,
            "ROWS": self.nest.row_count,
            "TOTAL": self.nest.col_count,
            "BLOCK": self.schedule.block,
            "TILE": self.schedule.tile,
            "VEC": self.vec,
            "PITCH": self.pitch(),
            "PROGRAMS": self.schedule.programs,
            **self.sizes,
        }
        used = set(re.findall(r"\b[A-Z]+\b", body))
        return [f"    {name}: tl.constexpr = {size}" for name, size in sizes.items() if name in used]

    def _flat(self) -> tuple[int, ...]:
        s, total = self.schedule, self.nest.col_count
        self.put(f"start = {self._program()} * BLOCK")
        self.put("lane = tl.arange(0, BLOCK)")
        part = Part(cols="index")
        if total % s.block == 0:
            self._body(part)
        elif total % self.vec == 0 or total < s.block:
            self.put("mask = lane < TOTAL - start")
            self._body(Part(cols="index", mask="mask"))
        else:
            with self.block("if start + BLOCK <= TOTAL:"):
                self._body(part)
            self.env.clear()
            self.said = ""
            with self.block("else:  # the last block"):
                self.put("mask = lane < TOTAL - start")
                self._body(Part(cols="index", mask="mask"))
        return (-(-total // s.block),)

    def _body(self, part: Part) -> None:
        self._coordinates(part)
        for position in range(len(self.nest.kernel.stores)):
            self.store(position, part)

    def _row(self) -> tuple[int, ...]:
        s, rows = self.schedule, self.nest.row_count
        if not s.programs:
            self._row_index(self._program())
            parts = self._parts(before_loop=False)
            self._phases(parts)
            return (-(-rows // s.tile),)
        self.put(f"pid = {self._program()}")
        if self.two_d:
            return self._row_tiles()
        parts = self._parts(before_loop=True)
        self._accumulators(parts)
        self._hoist(parts)
        prefetched = self._prefetchable() if s.prefetch else []
        if prefetched:
            self._row_names("pid")
            self._window_base("pid", "")
            for value in prefetched:
                for part in parts:
                    self.put(f"{self._var(value, part)}_next = {self._load_text(value, part, 'pid', '')}")
        with self.block("for row in tl.range(pid, ROWS, PROGRAMS):"):
            self._row_names("row")
            self._window_base("row", "")
            if prefetched:
                self._take_prefetched(prefetched, parts)
            if s.ahead:
                self._fetch_ahead()
            self._phases(parts)
        for value in self.nest.partials:
            self._store_partial(value, parts)
        return (s.programs,)

    def _row_tiles(self) -> tuple[int, ...]:
        """A persistent grid over tiles of several rows."""
        for value in self.nest.partials:
            self.put(f"{self.names[value]} = tl.zeros([TILE, BLOCK], {self._accumulator(value)})", value.node)
        with self.block("for top in tl.range(pid * TILE, ROWS, PROGRAMS * TILE):"):
            self.put("row = top + tl.arange(0, TILE)[:, None]")
            if self.nest.row_count % self.schedule.tile:
                self.row_mask = "row < ROWS"
            self._row_names("row")
            self._phases(self._parts(before_loop=False))
        self.put(f"cols = {self._lanes()}[None, :]")
        self._column_names(Part())
        for value in self.nest.partials:
            name = self.names[value]
            self.put(f"{name} = tl.sum({name}, axis=0, keep_dims=True)", value.node)
            n = self.nest.col_count
            self._store_partial(value, [Part(col_mask="cols < N" if n < self.schedule.block else None)], named=True)
        return (self.schedule.programs,)

    def _loop(self) -> tuple[int, ...]:
        s = self.schedule
        self._row_index(self._program())
        stores = range(len(self.nest.kernel.stores))
        full = [i for i in stores if self.nest.target(i)[2] in ("full", "lesser")]
        for level in range(self.last):
            wanted = self._reductions(level)
            ready = [i for i in full if self.nest.level[self.nest.target(i)[0]] == level]
            self.phase = level
            for value in wanted:
                self._loop_start(value)
            with self._column_loop() as part:
                for value in wanted:
                    self._loop_step(value, part)
                for position in ready:  # waits for nothing that a later loop adds up
                    self.store(position, part)
            for value in wanted:
                self._loop_end(value)
        self.phase = self.last
        if last := [i for i in full if self.nest.level[self.nest.target(i)[0]] == self.last]:
            with self._column_loop() as part:
                for position in last:
                    self.store(position, part)
        for position in set(stores) - set(full):
            self.store(position, Part())
        return (-(-self.nest.row_count // s.tile),)

    def _sums(self) -> tuple[int, ...]:
        s, n = self.schedule, self.nest.col_count
        self.put(f"pid = {self._program()}")
        self.put(f"cols = (tl.program_id(1) * BLOCK + {self._lanes()})[None, :]")
        for value in self.nest.partials:
            self.put(f"{self.names[value]} = tl.zeros([TILE, BLOCK], {self._accumulator(value)})", value.node)
        self.two_d = True
        with self.block("for top in tl.range(pid * TILE, ROWS, PROGRAMS * TILE):"):
            self.put("row = top + tl.arange(0, TILE)[:, None]")
            self.row_mask = "row < ROWS"
            masks = ["(row < ROWS)"] + ["(cols < N)"] * bool(n % s.block)
            self.put(f"mask = {' & '.join(masks)}")
            self._row_names("row")
            part = Part(mask="mask", col_mask="cols < N" if n % s.block else None)
            self._column_names(part)
            for position in range(len(self.nest.kernel.stores)):
                if not self.nest.kernel.stores[position][0].partial:
                    self.store(position, part)
            for value in self.nest.partials:
                text = self.need(value.args[0], part)
                self._say(value.node)
                self.put(f"{self.names[value]} += tl.where(mask, {text}, 0)", value.node)
        for value in self.nest.partials:
            name = self.names[value]
            self.put(f"{name} = tl.sum({name}, axis=0, keep_dims=True)", value.node)
            self._store_partial(value, [Part(col_mask="cols < N" if n % s.block else None)], named=True)
        return (s.programs, -(-n // s.block))

    def _row_index(self, pid: str) -> None:
        rows, s = self.nest.row_count, self.schedule
        if not self.two_d:
            self.put(f"row = {pid}")
        else:
            self.put(f"row = {pid} * TILE + tl.arange(0, TILE)[:, None]")
            if rows % s.tile:
                self.row_mask = "row < ROWS"
        self._row_names("row")

    def _parts(self, *, before_loop: bool) -> list[Part]:
        s, n = self.schedule, self.nest.col_count
        if s.window:
            return self._window_parts(before_loop)
        axis = "[None, :]" if self.two_d else ""
        parts = []
        for k in range(s.chunks):
            suffix = f"_c{k}" if k else ""
            shift = f"{k} * BLOCK + " if k else ""
            self.put(
                f"cols{suffix} = {'(' if axis and shift else ''}{shift}{self._lanes()}{')' if axis and shift else ''}{axis}"
            )
            short = n < (k + 1) * s.block
            col_mask = f"cols{suffix} < N" if short else None
            if col_mask and not self.two_d:
                self.put(f"mask{suffix} = {col_mask}")
                mask = col_mask = f"mask{suffix}"
            elif self.two_d and (col_mask or self.row_mask):
                terms = [f"({t})" for t in (self.row_mask, col_mask) if t]
                self.put(f"mask{suffix} = {' & '.join(terms)}")
                mask = f"mask{suffix}"
            else:
                mask = None
            part = Part(suffix, f"cols{suffix}", mask, col_mask, chunk=k)
            self._column_names(part)
            parts.append(part)
        return parts

    def _window_parts(self, before_loop: bool) -> list[Part]:
        row = "pid" if before_loop else "row"
        self.comment("a row starts anywhere: whole 16-byte vectors in the middle, its two ends apart")
        if before_loop:
            self._row_names("pid")
        self.put(f"start = {self._reference_start(row)}")
        self.put("head = ((VEC - start % VEC) % VEC).to(tl.int32)")
        self.put("inner = (N - head) // VEC * VEC")
        if not before_loop:
            self.put("base = (start + head) // VEC * VEC")
        parts = []
        for k in range(self.schedule.chunks):
            suffix = f"_c{k}" if k else ""
            self.put(f"cols{suffix} = {f'{k} * BLOCK + ' if k else ''}{self._lanes()}")
            self.put(f"mask{suffix} = cols{suffix} < inner")
            parts.append(Part(suffix, f"cols{suffix}", f"mask{suffix}", f"mask{suffix}"))
        self.put(f"edge = {self._lanes(self.ends)}")
        self.put("cols_edge = tl.where(edge < VEC, edge, head + inner + edge - VEC)")
        self.put("mask_edge = tl.where(edge < VEC, edge < head, cols_edge < N)")
        return [*parts, Part("_edge", "cols_edge", "mask_edge", "mask_edge", edge=True)]

    def _accumulators(self, parts: list[Part]) -> None:
        for value in self.nest.partials:
            for part in parts:
                size = self.ends if part.edge else "BLOCK"
                self.put(
                    f"{self.names[value]}{part.suffix} = tl.zeros([{size}], {self._accumulator(value)})", value.node
                )

    def _store_partial(self, value: Value, parts: Sequence[Part], named: bool = False) -> None:
        position = next(i for i, stored in enumerate(self.nest.kernel.stores) if stored[0] is value)
        _, access, _ = self.nest.target(position)
        assert access.memory is not None
        for part in parts:
            name = self.names[value] + ("" if named else part.suffix)
            place = self._col_offset(access, part)
            mask = f", mask={part.col_mask}" if part.col_mask else ""
            self.put(
                f"tl.store({self.argument(access.memory)} + pid * {self.nest.col_count} + {place}, {name}{mask})",
                value.node,
            )

    def _hoist(self, parts: list[Part]) -> None:
        for value in self.nest.kernel.values:
            if self._is_hoisted(value):
                for part in parts:
                    self.need(value, part)
