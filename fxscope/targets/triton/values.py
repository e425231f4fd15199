"""Loads, expressions and stores in a kernel's source."""

from __future__ import annotations

import torch

from fxscope.targets.triton.builder import HALF, compute_dtype, triton_dtype
from fxscope.targets.triton.ir import Value
from fxscope.targets.triton.lines import Part
from fxscope.targets.triton.nest import Access
from fxscope.targets.triton.places import Places
from fxscope.targets.triton.schedule import BIG, column_vectors, elements_before


class Values(Places):
    """Writes values when they are needed, each once."""

    def _is_hoisted(self, value: Value) -> bool:
        if value.op != "load" or self.nest.kinds[value] != "col":
            return False
        weights = self.schedule.weights
        return weights == "hoist" or (weights == "split" and value is column_vectors(self.nest)[0])

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
        elif value in self.nest.picks:
            text = self._pick(value, part)
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

    def _pick(self, value: Value, part: Part) -> str:
        """A row's element at a column that the row names: computed there alone, without a pass over the row."""
        at = self.need(value.args[2], part)
        self._say(value.node)
        found = self._found(value, at)
        text = self._there(value.args[0], value, part)
        self._say(value.node)
        name = self.names[value]
        self.put(f"{name} = tl.where({found}, {text}, 0)", value.node)
        return name

    def _found(self, pick: Value, at: str) -> str:
        """The name of the condition that the row has such a column."""
        key = (pick, pick)
        if key not in self.points:
            self.points[key] = f"{self.names[pick]}_found"
            self.put(f"{self.points[key]} = ({at} >= 0) & ({at} < {self.nest.col_count})", pick.node)
        return self.points[key]

    def _there(self, value: Value, pick: Value, part: Part) -> str:
        """The name of a value at the column that ``pick`` picks."""
        if value.op == "const":
            return value.expr
        if self.nest.kinds[value] in ("row", "scalar"):
            return self.need(value, part)
        key = (value, pick)
        if key in self.points:
            return self.points[key]
        text = f"{self.names[value]}_there"
        if value.op in ("load", "index"):
            at = self.need(pick.args[2], part)
            mask = " & ".join([self._found(pick, at), *([f"({self.row_mask})"] if self.row_mask else [])])
            terms = self._place_there(value, pick, at)
            if value.op == "load":
                assert value.memory is not None
                load = f"tl.load({' + '.join([self.argument(value.memory), *terms])}, mask={mask}, other=0)"
                self.put(f"{text} = {load}{'.to(tl.float32)' if value.dtype in HALF else ''}", value.node)
            else:
                self.put(f"{text} = {' + '.join([*terms, str(value.offset)])}", value.node)
        else:
            args = [self._there(arg, pick, part) for arg in value.args]
            expr = self._expression(value)
            if expr == "{0}":
                text = args[0]
            else:
                self._say(value.node)
                self.put(f"{text} = {expr.format(*args)}", value.node)
        self.points[key] = text
        return text

    def _place_there(self, value: Value, pick: Value, at: str) -> list[str]:
        """Terms of the offset of a load, or of the number of an index, at the column that ``pick`` picks."""
        access, steps = self.nest.access(value), self.nest.access(pick.args[1]).cols
        wide = f"{at}.to(tl.int64)"
        terms = [self._row_offset(access, "row")]
        for step, size, stride in zip(steps, self.nest.cols, access.cols, strict=True):
            if stride:
                name = wide if len(steps) == 1 else f"({wide} // {step} % {size})"
                terms.append(self._term(name, stride))
        return [term for term in terms if term]

    def load_picked(self, part: Part) -> None:
        """Load what is picked, ahead of the passes over the row: behind them its latency would stand alone."""
        for pick in self.nest.picks:
            waiting: list[Value] = [pick.args[0]]
            seen: set[Value] = set()
            while waiting and not self.nest.level[pick.args[2]]:
                value = waiting.pop()
                if value.op == "load" and self.nest.kinds[value] in ("full", "col"):
                    self._there(value, pick, part)
                waiting += [arg for arg in value.args if arg not in seen and self.nest.kinds[arg] in ("full", "col")]
                seen.update(value.args)

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
            "scalar": part.mask if not self.nest.cols else None,  # of a single element a block has its own pointers
        }.get(kind)
        if self.schedule.form == "tiles":
            mask = self._tile_mask(access, part)
        if suffix and kind == "full":
            mask = f"{mask} & (next_row < ROWS)" if mask else "next_row < ROWS"
        pointer = self._pointer(access, part, row, suffix)
        if (
            kind == "col"
            and self.schedule.weights in ("shifted", "split")
            and not self._is_hoisted(value)
            and not part.edge
            and access.cols == (1,)
            and not access.offset
        ):
            if access.memory not in self.shifted:
                self.shifted.append(access.memory)
            pointer = f"{access.memory.name}_shifted_ptr + head * PITCH + {part.cols}"
        policy = self._policy(value)
        before = elements_before(self.nest, value) if self.schedule.words else 0
        if before:
            return self._between_text(value, part, before, policy) + (
                ".to(tl.float32)" if not self._packed(value) else ""
            )
        options = f", mask={mask}, other={self.fills.text(value)}" if mask else ""
        if policy:
            options += f', eviction_policy="{policy}"'
        wide = value.dtype in HALF and not self._packed(value) and not (self.schedule.prefetch and kind == "full")
        return f"tl.load({pointer}{options})" + (".to(tl.float32)" if wide else "")

    def _tile_mask(self, access: Access, part: Part) -> str | None:
        """The mask of what a load of a tile varies over: the rows of its last dimension, its columns, or both."""
        rows, cols = bool(access.rows[-1]), any(access.cols)
        if rows and cols:
            return part.mask
        return self.row_mask if rows else part.col_mask if cols else None

    def _between_text(self, value: Value, part: Part, before: int, policy: str) -> str:
        """A load of a tensor that starts between 16-byte boundaries."""
        access = self.nest.access(value)
        assert access.memory is not None
        pointer = self.argument(access.memory) + (f" + {access.offset}" if access.offset else "")
        n, block = self.nest.col_count, self.schedule.block
        if self.flat:
            start, limit = "start", "TOTAL - start" if n % block else "None"
        else:
            ahead = [f"{part.chunk} * BLOCK"] * bool(part.chunk)
            start = " + ".join([*self._row_terms(access, "row"), *ahead]) or "0"
            rest = " - ".join(["N", *ahead])
            limit = rest if n < (part.chunk + 1) * block else "None"
            if self.row_mask:
                limit = f"tl.where({self.row_mask}, {rest}, 0)"
        fill = self.fills.text(value)
        return f'device.load_between({pointer}, {start}, {limit}, {fill}, {before}, BLOCK, "{policy}")'

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
            shape = f"[{'TILE, ' if self.two_d else ''}{self.ends if part.edge else 'BLOCK'}]"
            literal = _is_literal(value)
            text = (
                f"tl.full({shape}, {text}, {triton_dtype(access.memory.dtype)})"
                if literal
                else f"tl.broadcast_to({text}, {shape})"
            )
        self.put(f"tl.store({pointer}, {text}{f', mask={mask}' if mask else ''})", value.node)


def _is_literal(value: Value) -> bool:
    """Whether ``need`` gives a number's text."""
    while value.op == "map" and value.expr == "{0}":
        value = value.args[0]
    return value.op == "const"
