"""Small device functions that generated kernels call, where Triton's language has none."""

# Triton evaluates annotations, so there are none; `max` and `min` are called as device.max and device.min.
# ruff: noqa: A001, ANN001, ANN201, ANN202, N803, SIM108
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """Largest; NaN wins, as in torch.amax."""
    return tl.reduce(x, axis, _max, keep_dims=keep_dims)


@triton.jit
def min(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """Smallest; NaN wins."""
    return tl.reduce(x, axis, _min, keep_dims=keep_dims)


@triton.jit
def argmax_merge(a, i, b, j):
    """The larger of two values with its index; NaN is largest, of equals the first."""
    first = (a > b) | ((a != a) & (b == b))
    tie = ((a == b) | ((a != a) & (b != b))) & (i < j)
    keep = first | tie
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def argmin_merge(a, i, b, j):
    """The smaller of two values with its index; NaN is smallest, of equals the first."""
    first = (a < b) | ((a != a) & (b == b))
    tie = ((a == b) | ((a != a) & (b != b))) & (i < j)
    keep = first | tie
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def argmax(x, index, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """The largest value and its index."""
    return tl.reduce((x, index), axis, argmax_merge, keep_dims=keep_dims)


@triton.jit
def argmin(x, index, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """The smallest value and its index."""
    return tl.reduce((x, index), axis, argmin_merge, keep_dims=keep_dims)


@triton.jit
def divide(a, b):
    """A / b rounded to nearest; Triton's own division of float32 may be two units in the last place off."""
    if (a + b).dtype == tl.float32:
        quotient = tl.div_rn(a, b)
    else:
        quotient = a / b
    return quotient


@triton.jit
def floor_div(a, b):
    """Division rounded down: of floats as c10's div_floor_floating; of integers, where Triton's ``//`` rounds towards zero."""
    if (a + b).dtype.is_floating():
        zero = (a == b).to((a + b).dtype) * 0
        x = a - zero  # a number becomes a tensor; minus keeps the sign of a zero
        y = b - zero
        rest = libdevice.fmod(x, y)
        quotient = divide(x - rest, y)
        quotient = tl.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
        down = libdevice.floor(quotient)
        down = tl.where(quotient - down > 0.5, down + 1, down)
        plain = divide(x, y)
        down = tl.where(quotient == 0, libdevice.copysign(zero, plain), down)
        result = tl.where(y == 0, plain, down)
    else:
        quotient = a // b
        result = quotient - ((a - quotient * b != 0) & ((a < 0) != (b < 0))).to(tl.int32)
    return result


@triton.jit
def remainder(a, b):
    """Remainder with the sign of the divisor."""
    if (a + b).dtype.is_floating():
        rest = libdevice.fmod(a, b + 0 * a)
    else:
        rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def exp(x):
    """2^(x log2 e) with the hardware's ex2, subnormals flushed."""
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * 1.4426950408889634], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def rcp(x):
    """1 / x to one unit in the last place."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return rcp(1.0 + exp(-x))


@triton.jit
def tanh(x):
    """The hardware's tanh, relative error 2^-11: half of a bfloat16's rounding at most."""
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid_by_tanh(x):
    """0.5 + 0.5 tanh(x / 2): one special-function instruction, absolute error 2^-12."""
    return 0.5 * tanh(0.5 * x) + 0.5


@triton.jit
def erf(x):
    """Error function."""
    return libdevice.erf(x)


@triton.jit
def unpack_bf16(x):
    """bfloat16 to float32, done where it stands: the row stays packed, two elements a register, until then."""
    return tl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x], dtype=tl.float32, is_pure=False, pack=2
    )


@triton.jit
def unpack_fp16(x):
    """float16 to float32, done where it stands."""
    return tl.inline_asm_elementwise(
        "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $2; cvt.f32.f16 $0, lo; cvt.f32.f16 $1, hi; }",
        "=f,=f,r",
        [x],
        dtype=tl.float32,
        is_pure=False,
        pack=2,
    )


@triton.jit
def load_between(pointer, start, limit, fill, BEFORE: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr):
    """BLOCK halves from ``pointer + start`` on, which lies BEFORE elements past 16 bytes, in aligned 64-bit words, cut and joined.

    ``limit`` of them are read, the others are ``fill``; None: all. A word is read only where it holds one that is asked for.
    """
    words = tl.multiple_of((pointer - BEFORE).to(tl.pointer_type(tl.uint64)), 16)
    word = tl.arange(0, BLOCK // 4)
    words = words + start // 4 + word + BEFORE // 4
    cut: tl.constexpr = BEFORE % 4
    if limit is None:
        low = tl.load(words, eviction_policy=POLICY)
        if cut:
            high = tl.load(words + 1, eviction_policy=POLICY)
    else:
        low = tl.load(words, mask=word * 4 < limit, other=0, eviction_policy=POLICY)
        if cut:
            high = tl.load(words + 1, mask=word * 4 + 4 - cut < limit, other=0, eviction_policy=POLICY)
    if cut:
        low = (low >> (16 * cut)) | (high << (64 - 16 * cut))
    kind: tl.constexpr = pointer.dtype.element_ty
    a = low.to(tl.uint16).to(kind, bitcast=True)
    b = (low >> 16).to(tl.uint16).to(kind, bitcast=True)
    c = (low >> 32).to(tl.uint16).to(kind, bitcast=True)
    d = (low >> 48).to(tl.uint16).to(kind, bitcast=True)
    halves = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    if limit is not None:
        halves = tl.where(tl.arange(0, BLOCK) < limit, halves, tl.full(halves.shape, fill, tl.float32).to(kind))
    return halves


@triton.jit
def fetch(pointers):
    """Ask for the cache lines at these addresses to be brought into the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def wrap(i, n):
    """I modulo n for i < 2n: one subtraction and one unsigned minimum."""
    return tl.minimum(i.to(tl.uint32), (i - n).to(tl.uint32)).to(tl.int32)


@triton.jit
def shifted_copies(source_ptr, target_ptr, N: tl.constexpr, PITCH: tl.constexpr, BLOCK: tl.constexpr):
    """Row k of the target is the source from its element k on: whatever a row's shift, its weights start on 16 bytes."""
    shift = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source_ptr + shift + cols, mask=shift + cols < N, other=0)
    tl.store(target_ptr + shift * PITCH + cols, values, mask=cols < PITCH)
