"""What a persistent program does for its next row while it computes this one."""

from __future__ import annotations

from fxscope.targets.triton.ir import Value
from fxscope.targets.triton.lines import Part
from fxscope.targets.triton.schedule import power_of_two
from fxscope.targets.triton.values import Values

LINE = 128  # bytes of a cache line


class Ahead(Values):
    """Writes loads of the next row, or requests that bring its lines into the cache."""

    def _fetch_ahead(self) -> None:
        """Bring the next row's lines into the cache while this one is computed."""
        self.comment("the next row on its way into the cache")
        self.put("next_row = tl.minimum(row + PROGRAMS, ROWS - 1)")
        self._row_names("next_row")
        for memory, value in {v.memory: v for v in self._prefetchable()}.items():
            access = self.nest.access(value)
            if memory is None or access.cols != (1,):
                continue
            step = LINE // memory.dtype.itemsize
            count = power_of_two(-(-self.nest.col_count // step))
            place = [self.argument(memory), self._row_offset(access, "next_row")]
            place.append(f"tl.minimum(tl.arange(0, {count}) * {step}, N - 1)")
            self.put(f"device.fetch({' + '.join(term for term in place if term)})", value.node)
        self._row_names("row")

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
