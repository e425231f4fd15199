"""`device` and `libdevice` for Triton's interpreter, in numpy: the same functions, named alike."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from fxscope.targets.triton import device as compiled


def _wrap(data: Any, dtype: Any) -> Any:
    data = np.asarray(data)
    kind = tl.block_type(dtype, list(data.shape)) if data.ndim else dtype
    return tl.core.tensor(TensorHandle(data if data.ndim else data.reshape(1), dtype), kind)


def _data(x: Any) -> Any:
    if not isinstance(x, tl.core.tensor):
        return np.asarray(getattr(x, "value", x))
    data = x.handle.data
    return data if x.type.is_block() else data.reshape(())


def _dtype(*args: Any) -> Any:
    kinds = [x.dtype for x in args if isinstance(x, tl.core.tensor)]
    return next((k for k in kinds if k == tl.float64), kinds[0])


def _elementwise(function: Any) -> Any:
    def call(*args: Any) -> Any:
        dtype = _dtype(*args)
        kind = next(_data(a).dtype for a in args if isinstance(a, tl.core.tensor) and a.dtype == dtype)
        with np.errstate(all="ignore"):
            result = function(*(_data(a).astype(kind) for a in args))
        return _wrap(np.asarray(result).astype(kind), dtype)

    return call


def _vector(function: Any) -> Any:
    each = np.vectorize(function, otypes=[np.float64])
    return lambda x: each(x.astype(np.float64)) if x.size else x


def _arg(best: Any) -> Any:
    def call(x: Any, index: Any, axis: int, keep_dims: bool = False) -> Any:
        values, places = _data(x), np.broadcast_to(_data(index), _data(x).shape)
        extreme = best(values, axis=axis, keepdims=True)
        hit = (
            np.where(np.isnan(extreme), np.isnan(values), values == extreme)
            if values.dtype.kind == "f"
            else values == extreme
        )
        found = np.min(np.where(hit, places, np.iinfo(places.dtype).max), axis=axis, keepdims=keep_dims)
        return _wrap(extreme if keep_dims else np.squeeze(extreme, axis), x.dtype), _wrap(found, index.dtype)

    return call


def _merge(sign: int) -> Any:
    def call(a: Any, i: Any, b: Any, j: Any) -> Any:
        x, y, m, n = _data(a), _data(b), _data(i), _data(j)
        with np.errstate(all="ignore"):
            first = (sign * x > sign * y) | ((x != x) & (y == y))
            keep = first | (((x == y) | ((x != x) & (y != y))) & (m < n))
        return _wrap(np.where(keep, x, y), a.dtype), _wrap(np.where(keep, m, n), i.dtype)

    return call


def _reduce(function: Any) -> Any:
    return lambda x, axis, keep_dims=False: _wrap(function(_data(x), axis=axis, keepdims=keep_dims), x.dtype)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _remainder(a: Any, b: Any) -> Any:
    rest = np.fmod(a, b)  # np.remainder gives a zero the sign of b
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _unpack(x: Any) -> Any:
    return x.to(tl.float32)


_unary = {
    "expm1": np.expm1, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "erf": _vector(math.erf),
    "erfc": _vector(math.erfc), "floor": np.floor, "ceil": np.ceil, "nearbyint": np.rint, "trunc": np.trunc,
}  # fmt: skip
libdevice = SimpleNamespace(
    **{name: _elementwise(function) for name, function in _unary.items()},
    fmod=_elementwise(np.fmod),
    copysign=_elementwise(np.copysign),
    atan2=_elementwise(np.arctan2),
    pow=_elementwise(np.power),
)
device = SimpleNamespace(
    max=_reduce(np.max),
    min=_reduce(np.min),
    argmax=_arg(np.max),
    argmin=_arg(np.min),
    argmax_merge=_merge(1),
    argmin_merge=_merge(-1),
    divide=_elementwise(np.divide),
    floor_div=_elementwise(np.floor_divide),
    remainder=_elementwise(_remainder),
    exp=_elementwise(np.exp),
    rcp=_elementwise(lambda x: 1 / x),
    sigmoid=_elementwise(_sigmoid),
    tanh=_elementwise(np.tanh),
    sigmoid_by_tanh=_elementwise(_sigmoid),
    erf=_elementwise(_vector(math.erf)),
    unpack_bf16=_unpack,
    unpack_fp16=_unpack,
    wrap=lambda i, n: i % n,
    fetch=lambda pointers: None,  # there is no cache
    load_between=compiled.load_between.fn,
)


def round_to_bfloat16() -> None:
    """Let the interpreter round to bfloat16 to nearest even, as every GPU does; it truncates, and takes whole numbers for bits."""
    from triton.runtime.interpreter import InterpreterBuilder

    cast = InterpreterBuilder.cast_impl
    if getattr(cast, "rounds", False):
        return

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar == tl.bfloat16 or target.scalar != tl.bfloat16:
            return cast(self, source, target)
        numbers = np.ascontiguousarray(source.data, dtype=np.float32)
        bits = numbers.view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return TensorHandle(np.where(np.isnan(numbers), 0x7FC0, rounded).astype(np.uint16), target.scalar)

    cast_impl.rounds = True  # type: ignore[attr-defined]
    InterpreterBuilder.cast_impl = cast_impl


def multiply_bfloat16() -> None:
    """Let the interpreter multiply bfloat16 matrices as numbers; by itself it multiplies their bits."""
    from triton.runtime.interpreter import InterpreterBuilder

    dot = InterpreterBuilder.create_dot
    if getattr(dot, "widens", False):
        return

    def wide(tensor: Any) -> Any:
        if tensor.dtype.scalar != tl.bfloat16:
            return tensor
        return TensorHandle((tensor.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, wide(a), wide(b), *rest)

    create_dot.widens = True  # type: ignore[attr-defined]
    InterpreterBuilder.create_dot = create_dot


def count_with_scalars() -> None:
    """Let the interpreter count with a scalar, which is an array of one number: Triton 3.6 converts it as NumPy 2.5 no longer does."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor
    if getattr(patch, "counts", False):
        return

    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    patched.counts = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patched


def spread_truth() -> None:
    """Let the interpreter spread a comparison of scalars as truth values; it makes whole numbers of them, no mask since Triton 3.9."""
    from triton.runtime.interpreter import InterpreterBuilder

    splat = InterpreterBuilder.create_splat
    if getattr(splat, "keeps_truth", False):
        return

    def create_splat(self: Any, kind: Any, value: Any) -> Any:
        if value.data.dtype == np.bool_:
            value = TensorHandle(value.data, tl.int1)
        return splat(self, kind, value)

    create_splat.keeps_truth = True  # type: ignore[attr-defined]
    InterpreterBuilder.create_splat = create_splat
