"""Reductions in a kernel's source: over a row held in registers, and over a row read block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fxscope.targets.triton.builder import compute_dtype, triton_dtype
from fxscope.targets.triton.ir import Value
from fxscope.targets.triton.lines import Part
from fxscope.targets.triton.values import Values

ADDED = ("sum", "pick")


class Reductions(Values):
    """Writes a row's reductions level by level, then what depends on them."""

    def _reductions(self, level: int) -> list[Value]:
        return [v for v in self.nest.reductions if self.nest.level[v] == level + 1]

    def _phases(self, parts: list[Part]) -> None:
        self.points.clear()
        self._early_rows(parts[0])
        if self.schedule.chunks > 1 and self.schedule.live == "repack":
            self._load_packed(parts)
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
        self.load_picked(part)

    def _load_packed(self, parts: list[Part]) -> None:
        """Load all chunks of the row before the first is unpacked: they are on their way together."""
        for part in parts:
            for value in self.nest.kernel.values:
                wanted = value.op == "load" and self.nest.kinds[value] == "full" and self._packed(value)
                names = {self.names[known] for known, suffix in self.raw if suffix == part.suffix}
                if wanted and not part.edge and self.names[value] not in names:
                    self.put(f"{self._var(value, part)} = {self._load_text(value, part, 'row', '')}", value.node)
                    self.raw[self._key(value, part)] = self._var(value, part)

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

    def _reduce_part(self, value: Value, part: Part, texts: list[str]) -> None:
        """Append what a part of the row contributes; chunks are first added up element by element."""
        arg = value.args[0]
        text = self._reduced(value, part)
        axis = "axis=1, keep_dims=True" if self.two_d else "axis=0"
        if self.nest.kinds[arg] in ("row", "scalar"):
            text = f"tl.broadcast_to({text}, {'[TILE, BLOCK]' if self.two_d else f'[{self.ends}]' if part.edge else '[BLOCK]'})"
        elif self.nest.kinds[arg] == "col" and self.two_d:
            text = f"tl.broadcast_to({text}, [TILE, BLOCK])"
        if part.mask and not self._is_neutral(value):
            text = f"tl.where({part.mask}, {text}, {self._identity(value)})"
        if self.schedule.chunks > 1 and not part.edge:
            name = f"{self.names[value]}_chunk"
            if texts:
                text = f"{name} + {text}" if value.expr in ADDED else _best(value.expr, name, text)
                texts.pop()
            self.put(f"{name} = {text}", value.node)
            if self.schedule.live == "reread":
                self._drop(part)
            text = name
        if value.expr in ADDED:
            texts.append(f"tl.sum({text}, {axis})")
        elif value.expr in ("max", "min"):
            texts.append(f"device.{value.expr}({text}, {axis})")
        else:
            where = part.cols if not self.two_d else f"tl.broadcast_to({part.cols}, [TILE, BLOCK])"
            texts.append(f"device.{value.expr}({text}, {where}, {axis})[1]")

    def _reduced(self, value: Value, part: Part) -> str:
        """What is reduced; of a pick among no other reductions the row with 0 everywhere else."""
        texts = [self.need(arg, part) for arg in value.args]
        self._say(value.node)
        return texts[0] if value.expr != "pick" else f"tl.where({texts[1]} == {texts[2]}, {texts[0]}, 0)"

    def _is_neutral(self, value: Value) -> bool:
        """Whether the elements behind the mask leave a reduction as it is."""
        return self.fills.at(value.args[0]) == {"sum": 0.0, "max": -math.inf}.get(value.expr, math.nan)

    def _identity(self, value: Value) -> str:
        dtype = value.args[0].dtype
        kind = value.expr.removeprefix("arg")
        if kind in ADDED:
            return "0"
        if dtype.is_floating_point:
            return 'float("-inf")' if kind == "max" else 'float("inf")'
        info = torch.iinfo(dtype) if dtype != torch.bool else None
        return str((info.min if kind == "max" else info.max) if info else int(kind == "min"))

    def _accumulator(self, value: Value) -> str:
        return triton_dtype(compute_dtype(value.dtype))

    @contextmanager
    def _column_loop(self) -> Iterator[Part]:
        n, s = self.nest.col_count, self.schedule
        axis = "[None, :]" if self.two_d else ""
        kept = {k: v for k, v in self.env.items() if self.nest.kinds[k[0]] in ("row", "scalar")}
        with self.block("for first in tl.range(0, N, BLOCK):"):
            self.put(f"cols = {'(' if axis else ''}first + {self._lanes()}{')' if axis else ''}{axis}")
            col_mask = "cols < N" if n % s.block else None
            mask = None
            if col_mask or self.row_mask:
                self.put(f"mask = {' & '.join(f'({t})' for t in (self.row_mask, col_mask) if t)}")
                mask = "mask"
            part = Part(mask=mask, col_mask="mask" if col_mask and not self.two_d else col_mask)
            self._column_names(part)
            self.env, self.raw = dict(kept), {}
            self.points.clear()
            yield part
        self.points.clear()
        self.env = kept

    def _shape(self) -> str:
        return "[TILE, BLOCK]" if self.two_d else "[BLOCK]"

    def _loop_start(self, value: Value) -> None:
        name, shape = self.names[value], self._shape()
        dtype = self._accumulator(value.args[0])
        if value.expr in ADDED:
            self.put(f"{name} = tl.zeros({shape}, {dtype})", value.node)
        else:
            self.put(f"{name} = tl.full({shape}, {self._identity(value)}, {dtype})", value.node)
        if value.expr.startswith("arg"):
            self.put(f"{name}_best = {name}", value.node)
            self.put(
                f"{name} = tl.full({shape}, {self._behind()}, tl.int{64 if self.nest.wide_columns() else 32})",
                value.node,
            )

    def _loop_step(self, value: Value, part: Part) -> None:
        name = self.names[value]
        text = self._reduced(value, part)
        if part.mask:
            text = f"tl.where({part.mask}, {text}, {self._identity(value)})"
        if value.expr in ADDED:
            self.put(f"{name} += {text}", value.node)
        elif value.expr in ("max", "min"):
            self.put(f"{name} = tl.{value.expr}imum({name}, {text}, propagate_nan=tl.PropagateNan.ALL)", value.node)
        else:
            place = f"tl.broadcast_to(tl.where({part.cols} < N, {part.cols}, {self._behind()}), {self._shape()})"
            merge = f"device.{value.expr}_merge({name}_best, {name}, tl.broadcast_to({text}, {self._shape()}), {place})"
            self.put(f"{name}_best, {name} = {merge}", value.node)

    def _behind(self) -> int:
        """A column's number that is behind all others."""
        return 2**63 - 1 if self.nest.wide_columns() else 2**31 - 1

    def _loop_end(self, value: Value) -> None:
        name = self.names[value]
        axis = "axis=1, keep_dims=True" if self.two_d else "axis=0"
        if value.expr in ADDED:
            self.put(f"{name} = tl.sum({name}, {axis})", value.node)
        elif value.expr in ("max", "min"):
            self.put(f"{name} = device.{value.expr}({name}, {axis})", value.node)
        else:
            self.put(f"{name} = device.{value.expr}({name}_best, {name}, {axis})[1]", value.node)
        self.env[(value, "")] = name


def _best(kind: str, one: str, other: str) -> str:
    return f"tl.{kind}imum({one}, {other}, propagate_nan=tl.PropagateNan.ALL)"


def _combined(kind: str, texts: list[str]) -> str:
    """The reduction of a row from those of its parts."""
    if kind in ADDED:
        return " + ".join(texts)
    out = texts[0]
    for text in texts[1:]:
        out = _best(kind, out, text)
    return out
