"""Writes a kernel's Triton source: one loop nest, one formulation, the names and lines of the graph it came from."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from fxscope.targets.triton.builder import HALF, compute_dtype, triton_dtype
from fxscope.targets.triton.fills import Fills
from fxscope.targets.triton.ir import Memory, Value
from fxscope.targets.triton.nest import Access, Nest
from fxscope.targets.triton.schedule import BIG, Schedule, vector

RESERVED = {
    "row", "cols", "mask", "tl", "device", "libdevice", "triton", "torch", "start", "head", "inner", "base", "lane", "first", "pid", "top",
    "N", "ROWS", "TOTAL", "BLOCK", "TILE", "VEC", "PITCH", "PROGRAMS", "max", "min", "sum", "abs", "range", "float",
    *keyword.kwlist,
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One tensor's worth of columns: its names, masks, and whether it is the ragged ends of a row."""

    suffix: str = ""
    cols: str = "cols"
    mask: str | None = None
    col_mask: str | None = None
    edge: bool = False


@dataclass
class Source:
    """One kernel, written.

    Attributes:
        args: Memories in the order of the kernel's arguments; a shifted copy is named with its memory.
        grid: Programs along each dimension.
        lines_to_nodes: Line of ``text``, 1-based, to FX node names.
    """

    name: str
    text: str
    args: list[Memory]
    shifted: list[Memory]
    grid: tuple[int, ...]
    schedule: Schedule
    lines_to_nodes: dict[int, tuple[str, ...]] = field(default_factory=dict)


class Writer:
    """Writes one kernel. ``comments``: per FX node the line of the program it came from."""

    def __init__(self, nest: Nest, schedule: Schedule, name: str, comments: Mapping[str, str]) -> None:
        self.nest, self.schedule, self.name, self.comments = nest, schedule, name, comments
        self.lines: list[str] = []
        self.nodes: dict[int, tuple[str, ...]] = {}
        self.indent = 1
        self.env: dict[tuple[Value, str], str] = {}
        self.raw: dict[tuple[Value, str], str] = {}
        self.args: list[Memory] = []
        self.shifted: list[Memory] = []
        self.said = ""
        self.phase = 0
        self.row_mask: str | None = None
        self.names = self._names()
        self.absorbed: dict[Value, bool] = {}
        self.last = max((nest.level[v] for v in nest.kernel.values), default=0)
        self.flat = schedule.form == "flat"
        self.two_d = schedule.tile > 1
        self.vec = vector(nest)
        self.fills = Fills(nest)

    # -- entry

    def write(self) -> Source:
        """The source and how to call it."""
        grid = {"flat": self._flat, "row": self._row, "loop": self._loop, "sums": self._sums}[self.schedule.form]()
        arguments = [f"{m.name}_shifted_ptr" for m in self.shifted] + [f"{m.name}_ptr" for m in self.args]
        head = ["@triton.jit", f"def {self.name}({', '.join(arguments)}):", f'    """{self._title()}"""']
        constants = self._constants("\n".join(self.lines))
        shift = len(head) + len(constants)
        lines = {number + shift: nodes for number, nodes in self.nodes.items()}
        text = "\n".join([*head, *constants, *self.lines]) + "\n"
        return Source(self.name, text, self.args, self.shifted, grid, self.schedule, lines)

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
        }
        import re

        used = set(re.findall(r"\b[A-Z]+\b", body))
        return [f"    {name}: tl.constexpr = {size}" for name, size in sizes.items() if name in used]

    def _last_size(self) -> int:
        return self.nest.cols[-1] if self.nest.cols else 1

    def pitch(self) -> int:
        """Elements from one shifted copy to the next."""
        return -(-self.nest.col_count // 64) * 64

    def _names(self) -> dict[Value, str]:
        taken = set(RESERVED)
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
            base = name = "".join(c if c.isalnum() else "_" for c in name)
            count = 1
            while name in taken:
                name = f"{base}_{count}"
                count += 1
            taken.add(name)
            names[value] = name
            if value.op == "load":
                by_load[key] = name
        return names

    # -- lines

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

    # -- forms

    def _flat(self) -> tuple[int, ...]:
        s, total = self.schedule, self.nest.col_count
        wide = ".to(tl.int64)" if self.nest.int64() else ""
        self.put(f"start = tl.program_id(0){wide} * BLOCK")
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

    def _coordinates(self, part: Part) -> None:
        """Names for the coordinates that some access needs one by one."""
        sizes = self.nest.cols
        if not self.flat or len(sizes) < 2:
            return
        accesses = [self.nest.access(v) for v in self.nest.kernel.values if v.op in ("load", "index")]
        accesses += [self.nest.target(i)[1] for i in range(len(self.nest.kernel.stores))]
        odd = [a for a in accesses if not self._linear(a)]
        needed = {d for a in odd for d, stride in enumerate(a.cols) if stride}
        last = len(sizes) - 1
        only_last = all(d == last or not a.cols[d] for a in odd for d in range(len(sizes)))
        if needed - ({last} if only_last else set()):
            self.put("index = start + lane")
        for d in sorted(needed):
            inner = math.prod(sizes[d + 1 :])
            if d == last and only_last:
                self.put("first = (start % N).to(tl.int32)")
                size = sizes[last]
                if size % self.schedule.block == 0:
                    self.put(f"index_{d} = first + lane")
                elif size >= self.schedule.block:
                    self.put(f"index_{d} = device.wrap(first + lane, N)")
                else:
                    self.put(f"index_{d} = (first + lane) % N")
            else:
                text = f"index // {inner}" if inner > 1 else "index"
                self.put(f"index_{d} = {text}" + (f" % {sizes[d]}" if d else ""))

    def _linear(self, access: Access) -> bool:
        step = 1
        for stride, size in zip(reversed(access.cols), reversed(self.nest.cols), strict=True):
            if stride != step:
                return False
            step *= size
        return True

    def _row(self) -> tuple[int, ...]:
        s, rows = self.schedule, self.nest.row_count
        if not s.programs:
            self._row_index("tl.program_id(0)" + (".to(tl.int64)" if self.nest.int64() else ""))
            parts = self._parts(before_loop=False)
            self._phases(parts)
            return (-(-rows // s.tile),)
        wide = ".to(tl.int64)" if self.nest.int64() else ""
        self.put(f"pid = tl.program_id(0){wide}")
        if self.two_d:
            return self._row_tiles()
        parts = self._parts(before_loop=True)
        self._accumulators(parts)
        if s.weights == "hoist":
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
        self.put("cols = tl.arange(0, BLOCK)[None, :]")
        self._column_names(Part())
        for value in self.nest.partials:
            name = self.names[value]
            self.put(f"{name} = tl.sum({name}, axis=0, keep_dims=True)", value.node)
            n = self.nest.col_count
            self._store_partial(value, [Part(col_mask="cols < N" if n < self.schedule.block else None)], named=True)
        return (self.schedule.programs,)

    def _loop(self) -> tuple[int, ...]:
        s = self.schedule
        self._row_index("tl.program_id(0)" + (".to(tl.int64)" if self.nest.int64() else ""))
        for level in range(self.last):
            wanted = self._reductions(level)
            self.phase = level
            for value in wanted:
                self._loop_start(value)
            with self._column_loop() as part:
                for value in wanted:
                    self._loop_step(value, part)
            for value in wanted:
                self._loop_end(value)
        self.phase = self.last
        full = [i for i in range(len(self.nest.kernel.stores)) if self.nest.target(i)[2] in ("full", "lesser")]
        if full:
            with self._column_loop() as part:
                for position in full:
                    self.store(position, part)
        for position in range(len(self.nest.kernel.stores)):
            if position not in full:
                self.store(position, Part())
        return (-(-self.nest.row_count // s.tile),)

    def _sums(self) -> tuple[int, ...]:
        s, n = self.schedule, self.nest.col_count
        wide = ".to(tl.int64)" if self.nest.int64() else ""
        self.put(f"pid = tl.program_id(0){wide}")
        self.put("cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]")
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

    # -- rows and columns

    def _row_index(self, pid: str) -> None:
        rows, s = self.nest.row_count, self.schedule
        if not self.two_d:
            self.put(f"row = {pid}")
        else:
            self.put(f"row = {pid} * TILE + tl.arange(0, TILE)[:, None]")
            if rows % s.tile:
                self.row_mask = "row < ROWS"
        self._row_names("row")

    def _row_names(self, row: str) -> None:
        sizes = self.nest.rows
        if len(sizes) < 2:
            return
        for d in range(len(sizes)):
            inner = math.prod(sizes[d + 1 :])
            text = f"{row} // {inner}" if inner > 1 else row
            self.put(f"row_{d} = {text}" + (f" % {sizes[d]}" if d else ""))

    def _column_names(self, part: Part) -> None:
        sizes = self.nest.cols
        if len(sizes) < 2:
            return
        for d in range(len(sizes)):
            inner = math.prod(sizes[d + 1 :])
            text = f"{part.cols} // {inner}" if inner > 1 else part.cols
            self.put(f"{part.cols}_{d} = {text}" + (f" % {sizes[d]}" if d else ""))

    def _parts(self, *, before_loop: bool) -> list[Part]:
        s, n = self.schedule, self.nest.col_count
        if s.window:
            return self._window_parts(before_loop)
        axis = "[None, :]" if self.two_d else ""
        parts = []
        for k in range(s.chunks):
            suffix = f"_{k}" if k else ""
            shift = f"{k} * BLOCK + " if k else ""
            self.put(
                f"cols{suffix} = {'(' if axis and shift else ''}{shift}tl.arange(0, BLOCK){')' if axis and shift else ''}{axis}"
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
            part = Part(suffix, f"cols{suffix}", mask, col_mask)
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
            suffix = f"_{k}" if k else ""
            self.put(f"cols{suffix} = {f'{k} * BLOCK + ' if k else ''}tl.arange(0, BLOCK)")
            self.put(f"mask{suffix} = cols{suffix} < inner")
            parts.append(Part(suffix, f"cols{suffix}", f"mask{suffix}", f"mask{suffix}"))
        self.put("edge = tl.arange(0, 2 * VEC)")
        self.put("cols_edge = tl.where(edge < VEC, edge, head + inner + edge - VEC)")
        self.put("mask_edge = tl.where(edge < VEC, edge < head, cols_edge < N)")
        return [*parts, Part("_edge", "cols_edge", "mask_edge", "mask_edge", edge=True)]

    def _reference(self) -> Access:
        accesses = [
            self.nest.access(v) for v in self.nest.kernel.values if v.op == "load" and self.nest.kinds[v] == "full"
        ]
        accesses += [
            access for _, access, kind in map(self.nest.target, range(len(self.nest.kernel.stores))) if kind == "full"
        ]
        return next(a for a in accesses if a.cols == (1,))

    def _reference_start(self, row: str) -> str:
        return self._row_offset(self._reference(), row) or "0"

    def _window_base(self, row: str, suffix: str) -> None:
        if self.schedule.window:
            self.put(f"base{suffix} = ({self._reference_start(row)} + head) // VEC * VEC")

    def _row_offset(self, access: Access, row: str) -> str:
        names = [row] if len(self.nest.rows) == 1 else [f"row_{d}" for d in range(len(self.nest.rows))]
        terms = [self._term(n, stride) for n, stride in zip(names, access.rows, strict=True) if stride]
        if access.offset and access.memory is not None:
            terms.append(str(access.offset))
        return " + ".join(terms)

    def _term(self, name: str, stride: int) -> str:
        if stride == 1:
            return name
        if not self.flat and stride == self.nest.col_count:
            return f"{name} * N"
        return f"{name} * {stride}" if stride > 0 else f"{name} * ({stride})"

    def _col_offset(self, access: Access, part: Part) -> str:
        sizes = self.nest.cols
        if self.flat:
            if self._linear(access):
                return "start + lane"
            if len(sizes) == 1:
                return self._term("(start + lane)", access.cols[0])
            names = [f"index_{d}" for d in range(len(sizes))]
        elif len(sizes) == 1:
            name = part.cols
            if self.schedule.window and not part.edge:
                name = f"head + {part.cols}" if access.cols[0] == 1 else f"(head + {part.cols})"
            names = [name]
        else:
            names = [f"{part.cols}_{d}" for d in range(len(sizes))]
        return " + ".join(self._term(n, stride) for n, stride in zip(names, access.cols, strict=True) if stride)

    def _pointer(self, access: Access, part: Part, row: str = "row", suffix: str = "") -> str:
        assert access.memory is not None
        memory = access.memory
        row_part, col_part = self._row_offset(access, row), self._col_offset(access, part)
        if self.schedule.window and any(access.rows) and access.cols == (1,) and not part.edge:
            reference = self._reference()
            if (access.rows, access.offset) == (reference.rows, reference.offset):
                return f"{self.argument(memory)} + base{suffix} + {part.cols}"
            same = zip((*access.rows, access.offset), (*reference.rows, reference.offset), strict=True)
            if all((a - b) % self.vec == 0 for a, b in same):
                return f"{self.argument(memory)} + ({row_part} + head) // VEC * VEC + {part.cols}"
        terms = [t for t in (row_part, col_part) if t]
        return " + ".join([self.argument(memory), *terms])

    # -- phases

    def _reductions(self, level: int) -> list[Value]:
        return [v for v in self.nest.reductions if self.nest.level[v] == level + 1]

    def _phases(self, parts: list[Part]) -> None:
        self._early_rows(parts[0])
        for level in range(self.last):
            self.phase = level
            pieces: dict[Value, list[str]] = {}
            for part in parts:
                for value in self._reductions(level):
                    self._reduce_part(value, part, pieces.setdefault(value, []))
            for value, texts in pieces.items():
                self._say(value.node)
                self.put(f"{self.names[value]} = {_combined(value.expr, texts)}", value.node)
                self.env[(value, "")] = self.names[value]
            self._forget()
        self.phase = self.last
        self._write_row(parts)
        if self.schedule.programs:
            self.env = {
                k: v for k, v in self.env.items() if self.nest.kinds[k[0]] == "scalar" or self._is_hoisted(k[0])
            }

    def _early_rows(self, part: Part) -> None:
        """Load what there is one of per row first: its latency would stand behind every reduction."""
        if self.two_d:
            return
        for value in self.nest.kernel.values:
            if value.op == "load" and self.nest.kinds[value] == "row" and self.last:
                self.need(value, part)

    def _write_row(self, parts: list[Part]) -> None:
        stores = [i for i in range(len(self.nest.kernel.stores)) if not self.nest.kernel.stores[i][0].partial]
        for part in parts:
            for position in stores:
                if self.nest.target(position)[2] in ("full", "lesser"):
                    self.store(position, part)
            for value in self.nest.partials:
                text = self.need(value.args[0], part)
                self._say(value.node)
                if self.two_d and part.mask:
                    text = f"tl.where({part.mask}, {text}, 0)"
                self.put(f"{self.names[value]}{part.suffix} += {text}", value.node)
            if self.schedule.chunks > 1 and self.schedule.live == "reread":
                self._drop(part)
        for position in stores:
            if self.nest.target(position)[2] not in ("full", "lesser"):
                self.store(position, parts[0])

    def _drop(self, part: Part) -> None:
        """Forget a part of the row, so that no later part keeps its registers."""
        keep = {
            k: v for k, v in self.env.items() if k[1] != part.suffix or self.nest.kinds[k[0]] not in ("full", "col")
        }
        self.env = {**keep, **{k: v for k, v in self.env.items() if self._is_hoisted(k[0])}}

    def _forget(self) -> None:
        """After a reduction: drop the row, keep what is to be kept."""
        if self.schedule.live == "keep":
            return
        self.env = {
            k: v
            for k, v in self.env.items()
            if self.nest.kinds[k[0]] not in ("full", "col") or (self._is_hoisted(k[0]) and k in self.raw)
        }
        if self.schedule.live == "reread":
            self.raw = {k: v for k, v in self.raw.items() if self._is_hoisted(k[0])}
        self.env = {k: v for k, v in self.env.items() if k not in self.raw}

    def _is_hoisted(self, value: Value) -> bool:
        return self.schedule.weights == "hoist" and value.op == "load" and self.nest.kinds[value] == "col"

    def _reduce_part(self, value: Value, part: Part, texts: list[str]) -> None:
        """Append what a part of the row contributes; chunks are first added up element by element."""
        arg = value.args[0]
        text = self.need(arg, part)
        self._say(value.node)
        axis = "axis=1, keep_dims=True" if self.two_d else "axis=0"
        if self.nest.kinds[arg] in ("row", "scalar"):
            text = (
                f"tl.broadcast_to({text}, {'[TILE, BLOCK]' if self.two_d else '[2 * VEC]' if part.edge else '[BLOCK]'})"
            )
        elif self.nest.kinds[arg] == "col" and self.two_d:
            text = f"tl.broadcast_to({text}, [TILE, BLOCK])"
        if part.mask and not self._is_neutral(value):
            text = f"tl.where({part.mask}, {text}, {self._identity(value)})"
        if self.schedule.chunks > 1 and not part.edge:
            name = f"{self.names[value]}_chunk"
            if texts:
                text = f"{name} + {text}" if value.expr == "sum" else _best(value.expr, name, text)
                texts.pop()
            self.put(f"{name} = {text}", value.node)
            if self.schedule.live == "reread":
                self._drop(part)
            text = name
        if value.expr == "sum":
            texts.append(f"tl.sum({text}, {axis})")
        elif value.expr in ("max", "min"):
            texts.append(f"device.{value.expr}({text}, {axis})")
        else:
            where = part.cols if not self.two_d else f"tl.broadcast_to({part.cols}, [TILE, BLOCK])"
            texts.append(f"device.{value.expr}({text}, {where}, {axis})[1]")

    def _is_neutral(self, value: Value) -> bool:
        """Whether the elements behind the mask leave a reduction as it is."""
        return self.fills.at(value.args[0]) == {"sum": 0.0, "max": -math.inf}.get(value.expr)

    def _identity(self, value: Value) -> str:
        dtype = value.args[0].dtype
        kind = value.expr.removeprefix("arg")
        if kind == "sum":
            return "0"
        if dtype.is_floating_point:
            return 'float("-inf")' if kind == "max" else 'float("inf")'
        info = torch.iinfo(dtype) if dtype != torch.bool else None
        return str((info.min if kind == "max" else info.max) if info else int(kind == "min"))

    def _accumulator(self, value: Value) -> str:
        return triton_dtype(compute_dtype(value.dtype))

    def _accumulators(self, parts: list[Part]) -> None:
        for value in self.nest.partials:
            for part in parts:
                size = "2 * VEC" if part.edge else "BLOCK"
                self.put(
                    f"{self.names[value]}{part.suffix} = tl.zeros([{size}], {self._accumulator(value)})", value.node
                )

    def _store_partial(self, value: Value, parts: Sequence[Part], named: bool = False) -> None:
        position = next(i for i, stored in enumerate(self.nest.kernel.stores) if stored[0] is value)
        _, access, _ = self.nest.target(position)
        assert access.memory is not None
        for part in parts:
            name = self.names[value] + ("" if named else part.suffix)
            if len(self.nest.cols) > 1 and not named:
                pass
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

    def _prefetchable(self) -> list[Value]:
        return [v for v in self.nest.kernel.values if v.op == "load" and self.nest.kinds[v] == "full"]

    def _take_prefetched(self, values: list[Value], parts: list[Part]) -> None:
        done: set[str] = set()
        self.comment("this row was loaded a round ago; load the next one now")
        for value in values:
            for part in parts:
                name = self._var(value, part)
                if name not in done:
                    self.put(f"{name} = {name}_next")
                    done.add(name)
                self._loaded(value, part, name)
        self.put("next_row = row + PROGRAMS")
        self._row_names("next_row")
        self._window_base("next_row", "_next")
        done.clear()
        for value in values:
            for part in parts:
                name = self._var(value, part)
                if name not in done:
                    self.put(f"{name}_next = {self._load_text(value, part, 'next_row', '_next')}")
                    done.add(name)
        self._row_names("row")

    # -- loops over columns

    @contextmanager
    def _column_loop(self) -> Iterator[Part]:
        n, s = self.nest.col_count, self.schedule
        axis = "[None, :]" if self.two_d else ""
        kept = {k: v for k, v in self.env.items() if self.nest.kinds[k[0]] in ("row", "scalar")}
        with self.block("for first in tl.range(0, N, BLOCK):"):
            self.put(f"cols = {'(' if axis else ''}first + tl.arange(0, BLOCK){')' if axis else ''}{axis}")
            col_mask = "cols < N" if n % s.block else None
            mask = None
            if col_mask or self.row_mask:
                self.put(f"mask = {' & '.join(f'({t})' for t in (self.row_mask, col_mask) if t)}")
                mask = "mask"
            part = Part(mask=mask, col_mask="mask" if col_mask and not self.two_d else col_mask)
            self._column_names(part)
            self.env, self.raw = dict(kept), {}
            yield part
        self.env = kept

    def _shape(self) -> str:
        return "[TILE, BLOCK]" if self.two_d else "[BLOCK]"

    def _loop_start(self, value: Value) -> None:
        name, shape = self.names[value], self._shape()
        dtype = self._accumulator(value.args[0])
        if value.expr == "sum":
            self.put(f"{name} = tl.zeros({shape}, {dtype})", value.node)
        else:
            self.put(f"{name} = tl.full({shape}, {self._identity(value)}, {dtype})", value.node)
        if value.expr.startswith("arg"):
            self.put(f"{name}_best = {name}", value.node)
            self.put(f"{name} = tl.full({shape}, {2**31 - 1}, tl.int32)", value.node)

    def _loop_step(self, value: Value, part: Part) -> None:
        name = self.names[value]
        text = self.need(value.args[0], part)
        self._say(value.node)
        if part.mask:
            text = f"tl.where({part.mask}, {text}, {self._identity(value)})"
        if value.expr == "sum":
            self.put(f"{name} += {text}", value.node)
        elif value.expr in ("max", "min"):
            self.put(f"{name} = tl.{value.expr}imum({name}, {text}, propagate_nan=tl.PropagateNan.ALL)", value.node)
        else:
            place = f"tl.broadcast_to(tl.where({part.cols} < N, {part.cols}, {2**31 - 1}), {self._shape()})"
            merge = f"device.{value.expr}_merge({name}_best, {name}, tl.broadcast_to({text}, {self._shape()}), {place})"
            self.put(f"{name}_best, {name} = {merge}", value.node)

    def _loop_end(self, value: Value) -> None:
        name = self.names[value]
        axis = "axis=1, keep_dims=True" if self.two_d else "axis=0"
        if value.expr == "sum":
            self.put(f"{name} = tl.sum({name}, {axis})", value.node)
        elif value.expr in ("max", "min"):
            self.put(f"{name} = device.{value.expr}({name}, {axis})", value.node)
        else:
            self.put(f"{name} = device.{value.expr}({name}_best, {name}, {axis})[1]", value.node)
        self.env[(value, "")] = name

    # -- values

    def _say(self, node: str) -> None:
        text = self.comments.get(node, "")
        if text and text != self.said:
            self.comment(text)
            self.said = text

    def _key(self, value: Value, part: Part) -> tuple[Value, str]:
        return value, part.suffix if self.nest.kinds[value] in ("full", "col") and not self.flat else ""

    def _var(self, value: Value, part: Part) -> str:
        return self.names[value] + self._key(value, part)[1]

    def need(self, value: Value, part: Part) -> str:
        """The name of a value (or its literal), computing it first where that has not happened."""
        if value.op == "const":
            return value.expr
        key = self._key(value, part)
        if key in self.env:
            return self.env[key]
        if value.op == "load":
            text = self._load(value, part)
        elif value.op == "index":
            text = self._index(value, part)
        else:
            args = [self.need(arg, part) for arg in value.args]
            expr = self._expression(value)
            if expr == "{0}":
                text = args[0]
            else:
                if all(_is_literal(arg) for arg in value.args):
                    dtype = triton_dtype(compute_dtype(value.args[0].dtype))
                    args = [f"tl.full([1], {arg}, {dtype})" for arg in args]
                self._say(value.node)
                text = self._var(value, part)
                self.put(f"{text} = {expr.format(*args)}", value.node)
        self.env[key] = text
        return text

    def _expression(self, value: Value) -> str:
        if not self.schedule.fast or compute_dtype(value.dtype) != torch.float32:
            return value.expr
        if value.approx and self._is_absorbed(value):
            return value.approx
        return value.fast or value.expr

    def _is_absorbed(self, value: Value) -> bool:
        """Whether only the value's absolute error counts: on every way to a store something is added to it."""
        if value in self.absorbed:
            return self.absorbed[value]
        self.absorbed[value] = False
        users = [v for v in self.nest.kernel.values if value in v.args]
        stored = any(v is value for v, _, _ in self.nest.kernel.stores)
        self.absorbed[value] = bool(users) and not stored and all(self._absorbs(user, value) for user in users)
        return self.absorbed[value]

    def _absorbs(self, user: Value, value: Value) -> bool:
        if user.op != "map":
            return False
        if user.expr in ("{0} + {1}", "{0} - {1}", "{1} - {0}") and len(user.args) == 2:
            other = user.args[1 - user.args.index(value)]
            if self.nest.kinds[other] == "full" and other.op == "load":
                return True
        passes = user.expr in ("{0}", "{0} * {1}", "libdevice.tanh({0})", "-{0}") or user.expr.startswith(
            "tl.maximum({0}, 0"
        )
        return passes and self._is_absorbed(user)

    def _index(self, value: Value, part: Part) -> str:
        access = self.nest.access(value)
        terms = [t for t in (self._row_offset(access, "row"), self._col_offset(access, part)) if t]
        if value.offset:
            terms.append(str(value.offset))
        name = self._var(value, part)
        self._say(value.node)
        self.put(f"{name} = {' + '.join(terms) or '0'}", value.node)
        return name

    def _load(self, value: Value, part: Part) -> str:
        name = self._var(value, part)
        key = self._key(value, part)
        twin = next(
            (
                k
                for k in (*self.raw, *self.env)
                if k[0].op == "load" and k[1] == key[1] and self.names[k[0]] == self.names[value]
            ),
            None,
        )
        if twin is not None and twin in self.env:
            return self.env[twin]
        if (twin or key) in self.raw:
            self.raw[key] = self.raw[twin or key]
        else:
            self.put(f"{name} = {self._load_text(value, part, 'row', '')}", value.node)
            return self._loaded(value, part, name)
        return self._unpack(value, part, self.raw[key])

    def _loaded(self, value: Value, part: Part, name: str) -> str:
        """After a load: note where the row lives, packed or not."""
        key = self._key(value, part)
        if self._packed(value):
            self.raw[key] = name
            return self._unpack(value, part, name)
        if value.dtype in HALF and self.schedule.prefetch and self.nest.kinds[value] == "full":
            self.put(f"{name}_wide = {name}.to(tl.float32)")
            name = f"{name}_wide"
        self.env[key] = name
        return name

    def _packed(self, value: Value) -> bool:
        return (
            self.schedule.live == "repack"
            and value.dtype in HALF
            and (self.nest.kinds[value] == "full" or self._is_hoisted(value))
        )

    def _unpack(self, value: Value, part: Part, name: str) -> str:
        wide = f"{name}_wide"
        half = "bf16" if value.dtype == torch.bfloat16 else "fp16"
        convert = f"{name}.to(tl.float32)" if part.edge else f"device.unpack_{half}({name})"
        self.put(f"{wide} = {convert}", value.node)
        self.env[self._key(value, part)] = wide
        return wide

    def _load_text(self, value: Value, part: Part, row: str, suffix: str) -> str:
        access = self.nest.access(value)
        kind = self.nest.kinds[value]
        assert access.memory is not None
        mask = {
            "full": part.mask,
            "col": part.mask if self.flat else part.col_mask,
            "row": part.mask if self.flat else self.row_mask,
        }.get(kind)
        if suffix and kind == "full":
            mask = f"{mask} & (next_row < ROWS)" if mask else "next_row < ROWS"
        pointer = self._pointer(access, part, row, suffix)
        if (
            kind == "col"
            and self.schedule.weights == "shifted"
            and not part.edge
            and access.cols == (1,)
            and not access.offset
        ):
            if access.memory not in self.shifted:
                self.shifted.append(access.memory)
            pointer = f"{access.memory.name}_shifted_ptr + head * PITCH + {part.cols}"
        options = f", mask={mask}, other={self.fills.text(value)}" if mask else ""
        policy = self._policy(value)
        if policy:
            options += f', eviction_policy="{policy}"'
        wide = value.dtype in HALF and not self._packed(value) and not (self.schedule.prefetch and kind == "full")
        return f"tl.load({pointer}{options})" + (".to(tl.float32)" if wide else "")

    def _policy(self, value: Value) -> str:
        s = self.schedule
        if self.nest.kinds[value] != "full" or value.memory is None:
            return ""
        last = "evict_last" if s.hints and self.nest.big(value.memory) >= BIG else ""
        if s.live == "reread" and self.last and s.form == "row":
            if self.phase < self.last:
                return last if not s.window else "evict_last"
            return "" if s.window else "evict_first"
        return last

    # -- stores

    def store(self, position: int, part: Part) -> None:
        """Write one result."""
        value, access, kind = self.nest.target(position)
        assert access.memory is not None
        text = self.need(value, part)
        if access.memory.dtype != compute_dtype(value.dtype) and not _is_literal(value):
            text = f"{text}.to({triton_dtype(access.memory.dtype)})"
        mask = part.mask if kind != "row" or self.flat else self.row_mask
        if kind == "lesser":
            mask = " & ".join([*([f"({mask})"] if mask else []), *self._once(access, part)]) or None
        pointer = self._pointer(access, part)
        if kind == "lesser":  # a store takes the shape of its pointers
            pointer += (
                " + 0 * lane" if self.flat else f" + 0 * (row + {part.cols})" if self.two_d else f" + 0 * {part.cols}"
            )
        self._say(value.node)
        if kind == "full" and self.nest.kinds[value] == "scalar":
            shape = f"[{'TILE, ' if self.two_d else ''}{'2 * VEC' if part.edge else 'BLOCK'}]"
            literal = _is_literal(value)
            text = (
                f"tl.full({shape}, {text}, {triton_dtype(access.memory.dtype)})"
                if literal
                else f"tl.broadcast_to({text}, {shape})"
            )
        self.put(f"tl.store({pointer}, {text}{f', mask={mask}' if mask else ''})", value.node)

    def _once(self, access: Access, part: Part) -> list[str]:
        """Conditions under which one element of the nest alone writes a place that many share."""
        out = []
        names = ["row"] if len(self.nest.rows) == 1 else [f"row_{d}" for d in range(len(self.nest.rows))]
        for name, stride in zip(names, access.rows, strict=True):
            if not stride:
                out.append(f"({name} == 0)")
        sizes = self.nest.cols
        for d, stride in enumerate(access.cols):
            if not stride:
                if self.flat:
                    inner = math.prod(sizes[d + 1 :])
                    out.append(f"((start + lane) // {inner} % {sizes[d]} == 0)")
                elif len(sizes) == 1:
                    head = "head + " if self.schedule.window and not part.edge else ""
                    out.append(f"({head}{part.cols} == 0)")
                else:
                    out.append(f"({part.cols}_{d} == 0)")
        return out


def _best(kind: str, one: str, other: str) -> str:
    return f"tl.{kind}imum({one}, {other}, propagate_nan=tl.PropagateNan.ALL)"


def _combined(kind: str, texts: list[str]) -> str:
    """The reduction of a row from those of its parts."""
    if kind == "sum":
        return " + ".join(texts)
    out = texts[0]
    for text in texts[1:]:
        out = _best(kind, out, text)
    return out


def _is_literal(value: Value) -> bool:
    """Whether ``need`` gives a number's text."""
    while value.op == "map" and value.expr == "{0}":
        value = value.args[0]
    return value.op == "const"
