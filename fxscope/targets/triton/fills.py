"""What masked-off elements hold, so that a reduction needs no second mask where they are neutral anyway."""

from __future__ import annotations

import math
import re

from fxscope.targets.triton.ir import Value
from fxscope.targets.triton.nest import Nest

SCALED = re.compile(r"^\{0\} \* (\d[\d.]*(?:e[+-]?\d+)?)$")
ZERO_KEEPING = ("{0} * {0}", "-{0}", "tl.abs({0})")


class Fills:
    """For each masked load 0 or -inf, chosen so that as many reductions as possible come out neutral."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self._assume({})
        tops = [v for v in nest.reductions if v.expr == "max" and v.dtype.is_floating_point]
        loads = [
            v for v in nest.kernel.values if v.op == "load" and nest.kinds[v] == "full" and v.dtype.is_floating_point
        ]
        under = [load for load in loads if any(load in top.with_sources() for top in tops)]
        best = self._neutral()
        for trial in (under, under[:1]):
            self._assume(dict.fromkeys(trial, -math.inf))
            count = self._neutral()
            if count > best:
                return
        self._assume({})

    def _assume(self, fill: dict[Value, float]) -> None:
        self.fill = fill
        self._known: dict[Value, float | None] = {}
        for value in self.nest.kernel.values:  # what a value is computed from stands before it
            self._known[value] = self._at(value)

    def _neutral(self) -> int:
        wanted = {"sum": 0.0, "max": -math.inf}
        return sum(self.at(v.args[0]) == wanted.get(v.expr, math.nan) for v in self.nest.reductions)

    def text(self, load: Value) -> str:
        """The load's ``other``."""
        return 'float("-inf")' if self.fill.get(load, 0.0) else "0"

    def at(self, value: Value) -> float | None:
        """What a value is where the columns' mask is off; None where that is not known."""
        return self._known[value]

    def _at(self, value: Value) -> float | None:
        kind = self.nest.kinds[value]
        if value.op == "load" and kind in ("full", "col"):
            return self.fill.get(value, 0.0)
        if value.op != "map" or kind not in ("full", "col"):
            return None
        args = [self.at(arg) for arg in value.args]
        first = args[0]
        scaled = SCALED.match(value.expr)
        if value.expr == "{0}" or value.expr.startswith("{0}.to(tl.float") or (scaled and float(scaled[1]) > 0):
            return first
        if value.expr in ZERO_KEEPING or value.expr.startswith("tl.maximum({0}, 0"):
            return 0.0 if first == 0.0 else None
        if value.expr == "tl.exp({0})":
            return 0.0 if first == -math.inf else None
        if value.expr == "{0} * {1}":
            return 0.0 if args == [0.0, 0.0] else None
        if value.expr in ("{0} + {1}", "{0} - {1}"):
            if args == [0.0, 0.0]:
                return 0.0
            # A row's maximum is subtracted: where that is infinite or NaN, so is the row's own result.
            shift = value.args[1].op == "reduce" and value.args[1].expr == "max"
            return -math.inf if first == -math.inf and (args[1] == 0.0 or (shift and "-" in value.expr)) else None
        return None
