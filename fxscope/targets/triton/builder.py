"""The small language in which rules say what an ATen op computes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fxscope.targets.triton.ir import Axes, Dims, Incompatible, Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HALF = (torch.bfloat16, torch.float16)
EXPRESSIONS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("expressions.toml").read_text("utf-8"))
POINTWISE = {
    packet: promote for promote in ("arith", "float", "compare", "bool", "bit") for packet in EXPRESSIONS[promote]
}


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that a value of this PyTorch dtype is held in while it is computed on."""
    return torch.float32 if dtype in HALF else dtype


def literal(value: Any, dtype: torch.dtype | None = None) -> str:
    """A Python number as Triton source, for an expression of ``dtype``."""
    if dtype == torch.bool or (isinstance(value, bool) and dtype is None):
        return str(bool(value))
    if dtype is not None:
        value = float(value) if dtype.is_floating_point else int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value) if value >= 0 else f"({value!r})"


@dataclass(eq=False)
class Ref:
    """A value seen through views: the same number at the same axes, in other dimensions."""

    value: Value
    dims: Dims
    build: Builder

    @property
    def dtype(self) -> torch.dtype:
        """Torch dtype."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.build.axes.shape(self.dims)

    def __add__(self, other: Any) -> Ref:
        return self.build.map("{0} + {1}", self, other)

    def __sub__(self, other: Any) -> Ref:
        return self.build.map("{0} - {1}", self, other)

    def __mul__(self, other: Any) -> Ref:
        return self.build.map("{0} * {1}", self, other)

    def __rsub__(self, other: Any) -> Ref:
        return self.build.map("{1} - {0}", self, other)

    def __truediv__(self, other: Any) -> Ref:
        return self.build.map("{0} / {1}", self, other)

    def __neg__(self) -> Ref:
        return self.build.map("-{0}", self)

    __radd__ = __add__
    __rmul__ = __mul__


class Builder:
    """Makes the values of one FX node, whose name they carry."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.values: list[Value] = []
        self.node = ""
        self.partial = False  # sums become one partial sum per program

    def add(self, op: Any, dtype: torch.dtype, dims: Dims, *, name: str = "", **fields: Any) -> Ref:
        """Append a value."""
        name = f"{self.node}_{name}" if name else self.node
        value = Value(name=name, op=op, dtype=dtype, dims=dims, node=self.node, **fields)
        self.values.append(value)
        return Ref(value, dims, self)

    # -- numbers and coordinates

    def const(self, value: Any, dtype: torch.dtype, shape: Sequence[int] = ()) -> Ref:
        """The same number everywhere."""
        return self.add("const", dtype, self.axes.fresh(tuple(shape)), expr=literal(value, dtype))

    def index(self, ref: Ref, dim: int, name: str = "index") -> Ref:
        """The coordinate along one dimension, int64."""
        axes = self.axes.flat(ref.dims[dim])
        strides, step = {}, 1
        for axis in reversed(axes):
            strides[axis] = step
            step *= self.axes.sizes[axis]
        dims = tuple(axes if d == dim % len(ref.dims) else () for d in range(len(ref.dims)))
        return self.add("index", torch.int64, dims, strides=strides, name=name)

    def arange(self, length: int, start: int, step: int, dtype: torch.dtype) -> Ref:
        """start, start + step, ..."""
        dims = self.axes.fresh((length,))
        strides = {axis: step for axes in dims for axis in axes}
        ref = self.add("index", torch.int64, dims, strides=strides, offset=start, name="range")
        return self.cast(ref, dtype)

    # -- pointwise

    def map(
        self,
        expr: str,
        *args: Any,
        dtype: torch.dtype | None = None,
        fast: str | None = None,
        approx: str | None = None,
        name: str = "",
    ) -> Ref:
        """A pointwise expression of the dtype of its first value, or of ``dtype``. Numbers among ``args`` are written into it."""
        refs = [arg for arg in args if isinstance(arg, Ref)]
        kind = refs[0].dtype if refs else dtype
        result = dtype or kind
        assert result is not None
        filled, count = [], 0
        for arg in args:
            if isinstance(arg, Ref):
                filled.append("{" + str(count) + "}")
                count += 1
            else:
                filled.append(literal(arg, kind))
        texts = {
            key: text and text.format(*filled) for key, text in (("expr", expr), ("fast", fast), ("approx", approx))
        }
        values = tuple(ref.value for ref in refs)
        return self.add("map", result, self.broadcast(refs), args=values, name=name, **texts)

    def broadcast(self, refs: Sequence[Ref]) -> Dims:
        """The dimensions of a pointwise result."""
        rank = max((len(ref.dims) for ref in refs), default=0)
        dims: list[tuple[int, ...]] = [()] * rank
        for ref in refs:
            for d, axes in enumerate(ref.dims, rank - len(ref.dims)):
                if axes and dims[d]:
                    self.axes.unify(dims[d], axes)
                elif axes:
                    dims[d] = axes
        return tuple(dims)

    def cast(self, ref: Ref, dtype: torch.dtype, *, rounded: bool = False, name: str = "") -> Ref:
        """Change the dtype. A cast that the program wrote (``rounded``) rounds to half precision where it does."""
        if ref.dtype == dtype and not rounded:
            return ref
        source, target = compute_dtype(ref.dtype), compute_dtype(dtype)
        name = name or ("" if rounded else "cast")
        if dtype == torch.bool:
            return self.map("{0} != 0", ref, dtype=dtype, name=name) if source != dtype else ref
        if rounded and dtype in HALF and ref.dtype != dtype:
            half = str(dtype).replace("torch.", "tl.")
            return self.map(f"{{0}}.to({half}).to(tl.float32)", ref, dtype=dtype, name=name)
        expr = "{0}" if source == target else f"{{0}}.to({triton_dtype(target)})"
        return self.map(expr, ref, dtype=dtype, name=name)

    def op(self, packet: str, *args: Any, dtype: torch.dtype | None = None, name: str = "") -> Ref:
        """A pointwise op of ``expressions.toml`` by its packet, with PyTorch's type promotion; ``dtype`` overrides the result's."""
        promote = POINTWISE[packet]
        operands = [_stand_in(arg) for arg in args]
        common = _result_type(operands)
        if promote == "float" and not common.is_floating_point:
            common = torch.get_default_dtype()
        if promote == "bool":
            common = torch.bool
        cast = [self.cast(arg, common) if isinstance(arg, Ref) else arg for arg in args]
        result = dtype or (torch.bool if promote in ("compare", "bool") else common)
        fast = EXPRESSIONS["fast"].get(packet)
        expr = EXPRESSIONS[promote][packet]
        if not any(isinstance(arg, Ref) for arg in cast):
            raise Incompatible("an op on numbers alone")
        return self.map(expr, *cast, dtype=result, fast=fast, approx=EXPRESSIONS["approx"].get(packet), name=name)

    def where(self, condition: Ref, one: Any, other: Any, name: str = "") -> Ref:
        """``one`` where the condition holds, else ``other``; both are promoted."""
        common = _result_type([_stand_in(one), _stand_in(other)])
        one, other = (self.cast(arg, common) if isinstance(arg, Ref) else literal(arg, common) for arg in (one, other))
        filled = [arg if isinstance(arg, str) else "{}" for arg in (one, other)]
        text = f"tl.where({{0}}, {', '.join(filled)})"
        for position in range(1, 3):
            text = text.replace("{}", "{" + str(position) + "}", 1)
        refs = [self.cast(condition, torch.bool), *(arg for arg in (one, other) if isinstance(arg, Ref))]
        values = tuple(ref.value for ref in refs)
        return self.add("map", common, self.broadcast(refs), args=values, expr=text, name=name)

    # -- reductions

    def reduce(
        self, kind: str, ref: Ref, dims: Sequence[int], *, keepdim: bool = True, name: str = "", partial: bool = False
    ) -> Ref:
        """Reduce dimensions: ``sum``, ``max``, ``min``, ``argmax`` or ``argmin``; ``pick`` by the method of that name."""
        rank = len(ref.dims)
        gone = {d % rank for d in dims} if rank else set()
        reduced = tuple(axis for d in sorted(gone) for axis in ref.dims[d])
        kept = tuple(() if d in gone else axes for d, axes in enumerate(ref.dims) if keepdim or d not in gone)
        dtype = torch.int64 if kind.startswith("arg") else ref.dtype
        if not reduced:
            if kind.startswith("arg"):
                return Ref(self.const(0, dtype).value, kept, self)
            return Ref(self.map("{0}", ref, name=name).value, kept, self)
        if set(self.axes.flat(reduced)) - set(self.axes.all(ref.value.dims)):
            ref = self.widen(ref)
        name = name or kind
        return self.add(
            "reduce", dtype, kept, args=(ref.value,), expr=kind, reduced=reduced, partial=partial, name=name
        )

    def widen(self, ref: Ref, name: str = "wide") -> Ref:
        """The same number along axes that the value does not know, of an expanded one: the kernel runs over them too."""
        wide = self.map("{0}", ref, name=name)
        wide.value.dims = ref.dims
        return Ref(wide.value, ref.dims, self)

    def pick(self, ref: Ref, dim: int, at: Ref, name: str = "picked") -> Ref:
        """Per row its element at the column ``at`` (of the same rank, size 1 along ``dim``); 0 where there is no such column.

        A row reduction by what it means; where others run over the row, it is one more load (``Picks``).
        """
        column = self.index(ref, dim)
        if not ref.dims[dim]:
            return self.where(
                self.map("{0} == {1}", column, at, dtype=torch.bool, name=f"{name}_hit"), ref, 0, name=name
            )
        self.broadcast([ref, at])
        picked = self.reduce("pick", ref, [dim], name=name)
        picked.value.args = (ref.value, column.value, at.value)
        return picked

    def sum(self, ref: Ref, dims: Sequence[int], *, keepdim: bool = True, name: str = "", partial: bool = False) -> Ref:
        """Sum; booleans and integers become int64."""
        if not ref.dtype.is_floating_point:
            ref = self.cast(ref, torch.int64)
        return self.reduce("sum", ref, dims, keepdim=keepdim, name=name, partial=partial or self.partial)

    def mean(self, ref: Ref, dims: Sequence[int], *, keepdim: bool = True, name: str = "mean") -> Ref:
        """Mean."""
        total = self.sum(ref, dims, keepdim=keepdim, name=name + "_sum" if name else "")
        return self.map("{0} * {1}", total, 1.0 / self.count(ref, dims), name=name)

    def count(self, ref: Ref, dims: Sequence[int]) -> int:
        """Elements along dimensions."""
        return math.prod(ref.shape[d] for d in dims) if ref.shape else 1

    # -- views

    def squeeze(self, ref: Ref, dims: Sequence[int]) -> Ref:
        """Drop dimensions of size 1."""
        gone = {d % max(len(ref.dims), 1) for d in dims}
        return Ref(ref.value, tuple(a for d, a in enumerate(ref.dims) if d not in gone or a), self)

    def reshape(self, ref: Ref, shape: Sequence[int]) -> Ref:
        """The same elements in order, in another shape.

        Raises:
            Incompatible: The two shapes cut the elements in ways that do not nest.
        """
        dims = self.axes.fresh(tuple(shape))
        self.axes.unify(self.axes.all(ref.dims), self.axes.all(dims))
        return Ref(ref.value, dims, self)

    def expand(self, ref: Ref, shape: Sequence[int]) -> Ref:
        """Broadcast to a shape."""
        dims = [*self.axes.fresh(tuple(shape)[: len(shape) - len(ref.dims)])]
        for size, axes in zip(tuple(shape)[len(dims) :], ref.dims, strict=True):
            dims.append(axes if axes or size in (1, -1) else (self.axes.new(size),))
        return Ref(ref.value, tuple(dims), self)


def triton_dtype(dtype: torch.dtype) -> str:
    """``torch.float32`` as ``tl.float32``."""
    return "tl.int1" if dtype == torch.bool else "tl." + str(dtype).removeprefix("torch.")


def _stand_in(arg: Any) -> Any:
    """Something that ``torch.result_type`` sees as it would see the value."""
    return torch.empty((0,) * len(arg.dims), dtype=arg.dtype, device="meta") if isinstance(arg, Ref) else arg


def _result_type(args: Sequence[Any]) -> torch.dtype:
    args = [arg for arg in args if arg is not None]
    common = args[0]
    for arg in args[1:]:
        dtype = torch.result_type(common, arg)
        rank = max((x.dim() for x in (common, arg) if isinstance(x, torch.Tensor)), default=0)
        weak = not any(isinstance(x, torch.Tensor) for x in (common, arg))
        common = arg if weak else torch.empty((0,) * rank, dtype=dtype, device="meta")
    return torch.result_type(common, common)
