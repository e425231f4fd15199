"""Coordinates and addresses in a kernel's source."""

from __future__ import annotations

import math

from fxscope.targets.triton.lines import Lines, Part
from fxscope.targets.triton.nest import INT32, Access


class Places(Lines):
    """Writes where things are."""

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
                wide = any(abs(a.cols[last]) * sizes[last] > INT32 for a in odd)
                self.put("first = start % N" if wide else "first = (start % N).to(tl.int32)")
                size = sizes[last]
                if size % self.schedule.block == 0:
                    self.put(f"index_{d} = first + lane")
                elif size >= self.schedule.block and not wide:
                    self.put(f"index_{d} = device.wrap(first + lane, N)")
                else:
                    self.put(f"index_{d} = (first + lane) % N")
            else:
                text = f"index // {inner}" if inner > 1 else "index"
                self.put(f"index_{d} = {text}" + (f" % {sizes[d]}" if d else ""))

    def _linear(self, access: Access) -> bool:
        return self.nest.linear(access)

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
        terms = self._row_terms(access, row)
        if access.offset and access.memory is not None:
            terms.append(str(access.offset))
        return " + ".join(terms)

    def _row_terms(self, access: Access, row: str) -> list[str]:
        names = [row] if len(self.nest.rows) == 1 else [f"row_{d}" for d in range(len(self.nest.rows))]
        return [self._term(n, stride) for n, stride in zip(names, access.rows, strict=True) if stride]

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
