"""Formulations of kernels whose programs hold whole rows: with a program per row, and with programs that run down the rows."""

from __future__ import annotations

import math
from dataclasses import replace

from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import (
    SMS,
    Live,
    Schedule,
    Weights,
    column_vectors,
    half_inputs,
    power_of_two,
    ragged,
    traffic,
    vector,
)


def rows(nest: Nest, fast: bool, hints: bool) -> list[Schedule]:
    """Of a kernel without sums over its rows."""
    n, size = nest.col_count, traffic(nest)
    block = power_of_two(n)
    window = ragged(nest) and n >= 64 and _plain(nest)
    half = half_inputs(nest)
    one = Schedule("row", block, window=window, fast=fast, hints=hints)
    if nest.row_count == 1 and block <= 4096:
        return [replace(one, warps=max(1, min(8, block // 256)), window=False)]
    if block <= 512:
        tiles = [t for t in (1, 2, 4, 8, 16) if 256 <= t * block <= 4096] or [16]
        warps = [1, 2, 4]
        plain = [replace(one, warps=w, tile=t, window=False) for t in tiles for w in warps if 32 * w <= t * block]
        return sorted(plain, key=lambda s: abs(s.tile * s.block - 1024) + s.warps) or [
            replace(one, warps=1, tile=16, window=False)
        ]
    if size < 2**21:
        lanes = [w for w in (1, 2, 4, 8, 16, 32) if 8 <= block // (32 * w) <= 32] or [32]
        return [replace(one, warps=w) for w in sorted(lanes, key=lambda w: abs(w - max(1, block // 512)))]
    spans = (32, 16, 64) if window else (32, 16) if half else (16, 8, 32)  # elements a thread
    lanes = list(dict.fromkeys(max(1, min(32, block // (32 * span))) for span in spans))
    base = [replace(one, warps=w) for w in lanes]
    lives: list[Live] = ["keep", "repack"] if half else ["keep", "reread"]
    out = [replace(s, live=live) for s in base for live in lives]
    if half:
        out += [replace(s, live="reread") for s in base[:2]]
    out += [replace(s, maxnreg=r, live=live) for s in base for r in _registers(s) for live in lives[: 1 + half]]
    if not window and block <= 8192:
        out += [replace(s, tile=2, live=live) for s in base[:2] for live in lives]
    if window and column_vectors(nest):
        shifted = [replace(s, weights="shifted") for s in out if s.live != "reread" or not half]
        groups = _residues(nest)
        hoisted = [
            replace(
                one,
                warps=w,
                programs=p * SMS // groups * groups,
                weights="hoist",
                prefetch=f,
                live="repack" if half else "keep",
            )
            for w in (8, 16, 32)
            for p in (1, 2)
            for f in (False, True)
            if 8 <= block // (32 * w) <= 64
        ]
        cut = _cut(one, half)
        ahead = [s for s in hoisted if s.prefetch]
        if half:
            hoisted += [replace(s, ahead=True) for s in hoisted if not s.prefetch]
            ahead += [replace(s, programs=3 * SMS // groups * groups) for s in ahead if s.programs > SMS]
            if len(column_vectors(nest)) > 1:  # in float16 both vectors and the next row do not fit
                ahead += [replace(s, weights="split") for s in ahead]
            wide = [s for s in ahead if s.warps == 16 and s.block >= 8192]
            hoisted += ahead + [replace(s, block=s.block // c, chunks=c) for s in wide for c in (2, 4)]
        hoisted = list(dict.fromkeys(hoisted))
        out = [*shifted, *cut, *base, *hoisted]
    return out + [replace(s, hints=False) for s in out[:2] if hints]


def _cut(one: Schedule, half: bool) -> list[Schedule]:
    """Wide rows in parts: each is unpacked, used and forgotten before the next, so that more programs fit a multiprocessor."""
    if one.block < 8192:
        return []
    lives: list[Live] = ["repack"] if half else ["keep", "reread"]
    shapes = ((4, 8, None), (8, 4, None)) if half else ((16, 4, None), (8, 4, 128))
    return [
        replace(one, block=one.block // cuts, chunks=cuts, warps=warps, maxnreg=cap, live=live, weights="shifted")
        for warps, cuts, cap in shapes
        for live in lives
    ]


def persistent(nest: Nest, fast: bool, hints: bool) -> list[Schedule]:
    """Of a kernel that adds up something over its rows: few programs, each with sums of its own."""
    n = nest.col_count
    block = power_of_two(n)
    window = ragged(nest) and n >= 64 and _plain(nest)
    half = half_inputs(nest)
    rows = nest.row_count
    groups = _residues(nest) if window else 1
    per_sm = [1, 2, 3, 4] if block <= 4096 else [1, 2]
    if block <= 1024:
        tiles = [
            (t, w) for t, w in ((4096 // block, 8), (2048 // block, 4), (1024 // block, 2), (8192 // block, 8)) if t > 1
        ]
        spread = [
            replace(Schedule("row", block, w, tile=t, fast=fast, hints=hints), programs=p)
            for t, w in tiles
            for p in (4 * SMS, 8 * SMS)
        ]
        return [replace(s, programs=min(s.programs, -(-rows // s.tile))) for s in spread]
    warps = [w for w in (4, 8, 16, 32) if 8 <= block // (32 * w) <= 64] or [4]
    lives: list[Live] = ["repack", "reread"] if half else ["keep", "reread"]
    vectors: list[Weights] = ["hoist", "reload"] if column_vectors(nest) else ["reload"]
    if window and column_vectors(nest):
        vectors.append("shifted")
        if hints and block > 4096:  # where nothing else came within 2 % of the best, and half of it spills
            vectors, warps = ["shifted"], [w for w in warps if w in (8, 16)] or warps
    out = []
    for w in warps:
        for k in per_sm:
            programs = max(min(k * SMS, rows) // groups * groups, groups)
            for live in lives:
                for weights in vectors:
                    cuts = [1, 2, 4] if block >= 8192 and (live == "reread" or (live == "repack" and window)) else [1]
                    out += [
                        Schedule(
                            "row",
                            block // c,
                            w,
                            window=window,
                            programs=programs,
                            live=live,
                            weights=weights,
                            fast=fast,
                            hints=hints,
                            chunks=c,
                        )
                        for c in cuts
                    ]
    if window and hints:
        packed_or_whole = [s for s in out if s.live == "repack" or (s.live != "keep" and s.chunks == 1)]
        out += [replace(s, hints=False) for s in packed_or_whole if s.weights == "shifted"]
    preferred = [s for s in out if s.warps * 32 * 16 == block and s.programs >= 2 * SMS // groups * groups]
    rest = [s for s in out if s not in preferred]
    if half and block > 4096:  # one or two programs a multiprocessor: while one computes, nobody loads
        rest += [replace(s, ahead=True) for s in out if s.warps <= 8]
    sums = len(nest.partials) * block  # half of the registers hold 2**15
    if sums == 2**15 and column_vectors(nest):
        rest += _thin(nest, out[0])
    ordered = [*preferred, *rest]
    return sorted(ordered, key=lambda s: not _lean(s, half, sums)) if block >= 16384 else ordered


def _lean(schedule: Schedule, half: bool, sums: int) -> bool:
    """Of a row of 16 K elements and more: whether it is the kind that compiled to the fewest spilled registers, mostly none."""
    s = schedule
    crowded = sums >= 2**15
    if crowded and (s.window or not half or s.block * s.chunks > 2**14):
        return s.chunks >= 8
    return (
        s.live == "reread" and s.warps == 8 and s.chunks == 4 - 2 * crowded and s.ahead == half and s.weights != "hoist"
    )


def _thin(nest: Nest, one: Schedule) -> list[Schedule]:
    """Where the sums over the rows fill half of the registers: in small parts, so that one or another spills nothing.

    With 8 warps and parts of 2,048 elements, or 16 warps whose threads hold 8 bytes of a part.
    """
    n, block = power_of_two(nest.col_count), 32 * 16 * vector(nest) // 2
    groups = _residues(nest) if one.window else 1
    programs = max(min(SMS, nest.row_count) // groups * groups, groups)
    weights: Weights = "shifted" if one.window else "reload"
    lean = replace(one, live="reread", weights=weights, programs=programs)
    wide = replace(lean, block=2048, chunks=n // 2048, warps=8)
    thin = replace(lean, block=block, chunks=n // block, warps=16, ahead=True)
    eights = [wide, replace(wide, ahead=True)]
    sixteens = [thin, replace(thin, ahead=False), replace(thin, weights="reload")]
    return list(dict.fromkeys([*eights, *sixteens] if one.window else [*sixteens, *eights]))


def _registers(schedule: Schedule) -> list[int]:
    """Register caps that let one more program onto a multiprocessor (65,536 registers, in units of 8 per thread)."""
    span = schedule.block // (32 * schedule.warps)
    caps = [65536 // (32 * schedule.warps * programs) // 8 * 8 for programs in (2, 3, 4, 6)]
    return [cap for cap in caps if span + 8 <= cap <= 3 * span + 40][:2] if span >= 16 else []


def _residues(nest: Nest) -> int:
    """How many rows on, a row starts at the same place within 16 bytes again."""
    return vector(nest) // math.gcd(nest.col_count, vector(nest))


def _plain(nest: Nest) -> bool:
    """Whether a row can be cut into a middle and ends: one column dimension, nothing but sums and extremes."""
    return len(nest.cols) == 1 and all(not v.expr.startswith("arg") for v in nest.reductions)
