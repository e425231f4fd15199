"""A target's supported ops as data: a TOML table, and every clause of it that a node fails."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.targets.target import Clause

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

LAYOUTS = ("any", "contiguous", "channels_last", "dense")
LIMITS = ("equals", "in", "min", "max", "length", "none", "last")
TENSOR_KEYS = ("dtypes", "ranks", "devices", "dynamic", "layout")


@dataclass(frozen=True, kw_only=True)
class TensorRule:
    """What a tensor may be. None allows anything.

    Attributes:
        ranks: Smallest and largest number of dimensions.
        layout: Allowed memory formats (LAYOUTS).
        none: Whether the argument must be (True) or must not be (False) None; None where either will do.
    """

    dtypes: tuple[str, ...] | None = None
    ranks: tuple[int, int] | None = None
    devices: tuple[str, ...] | None = None
    dynamic: bool = True
    layout: tuple[str, ...] | None = None
    none: bool | None = None

    def clauses(self, where: str, value: Any, *, is_input: bool) -> Iterator[Clause]:
        """Clauses that one tensor fails; ``where`` names it in the sentence."""
        dtype = str(value.dtype).removeprefix("torch.")
        if self.dtypes is not None and dtype not in self.dtypes:
            yield Clause("dtype", f"{where} is {dtype}; allowed: {', '.join(self.dtypes)}")
        if self.ranks is not None and not self.ranks[0] <= value.dim() <= self.ranks[1]:
            yield Clause("rank", f"{where} has {value.dim()} dimensions; allowed: {self.ranks[0]} to {self.ranks[1]}")
        if self.devices is not None and value.device.type not in self.devices:
            yield Clause("device", f"{where} is on {value.device.type}; allowed: {', '.join(self.devices)}")
        sizes = [*value.shape, *value.stride()]
        if any(not isinstance(size, int) for size in sizes):
            if not self.dynamic:
                yield Clause("dynamic-shape", f"{where} has the symbolic shape {tuple(map(str, value.shape))}")
        elif is_input and self.layout is not None and not any(_has_layout(value, name) for name in self.layout):
            yield Clause("layout", f"{where} has strides {tuple(value.stride())}; allowed: {', '.join(self.layout)}")


@dataclass(frozen=True, kw_only=True)
class OpRow:
    """One row of the table.

    Attributes:
        ops: Overloads (``aten.add.Tensor``) or packets (``aten.add``, all its overloads).
        tensors: The rule for every tensor input and output.
        inputs: Rules for single tensor arguments, by schema name; they replace ``tensors`` for that argument.
        attributes: Limits on the other arguments, by schema name: ``{"alpha": {"equals": 1}}``.
    """

    ops: tuple[str, ...]
    tensors: TensorRule
    inputs: dict[str, TensorRule] = field(default_factory=dict)
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: str = ""


@dataclass(frozen=True)
class OpTable:
    """The supported ops of one target.

    Attributes:
        name: The target's name, for messages.
        rows: In the order of the file.
        left_out: Why an op (overload or packet) is not in the table, where that is worth saying.
    """

    name: str
    rows: tuple[OpRow, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> OpTable:
        """Read a TOML table.

        Raises:
            UsageError: The file is missing, is no TOML, or has an unknown key, named with its row.
        """
        try:
            document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot read the table of supported ops: {error}") from error
        return cls.from_dict(document, where=str(path))

    @classmethod
    def from_dict(cls, document: dict[str, Any], where: str = "table") -> OpTable:
        """A table from decoded TOML.

        Raises:
            UsageError: An unknown or malformed key, named with its row.
        """
        _known(document, ("name", "defaults", "op", "left_out"), where)
        defaults = document.get("defaults", {})
        _known(defaults, TENSOR_KEYS, f"{where}: defaults")
        rows = []
        for row in document.get("op", []):
            place = f"{where}: op {row.get('ops', '?')}"
            _known(row, ("ops", "notes", "inputs", "attributes", *TENSOR_KEYS), place)
            if not row.get("ops"):
                raise UsageError(f"{place}: `ops` must be a list of overloads or packets, e.g. ['aten.add.Tensor']")
            merged = {**defaults, **{key: row[key] for key in TENSOR_KEYS if key in row}}
            inputs = {
                name: _rule({**merged, **rule}, f"{place}: inputs.{name}")
                for name, rule in row.get("inputs", {}).items()
            }
            for name, limit in row.get("attributes", {}).items():
                _known(limit, LIMITS, f"{place}: attributes.{name}")
            rows.append(
                OpRow(
                    ops=tuple(row["ops"]),
                    tensors=_rule(merged, place),
                    inputs=inputs,
                    attributes=row.get("attributes", {}),
                    notes=row.get("notes", ""),
                )
            )
        left_out: dict[str, str] = {}
        for row in document.get("left_out", []):
            _known(row, ("ops", "reason"), f"{where}: left_out {row.get('ops', '?')}")
            left_out.update(dict.fromkeys(row["ops"], row["reason"]))
        return cls(document.get("name", Path(where).stem), tuple(rows), left_out)

    def problems(self) -> list[str]:
        """Ops that this PyTorch does not have, and arguments that no op of their row has; for a target's tests."""
        import torch

        found = []
        for row in self.rows:
            names: set[str] = set()
            for text in row.ops:
                item: Any = torch.ops
                for part in text.split("."):
                    item = getattr(item, part, None)
                if item is None:
                    found.append(f"{self.name}: no op {text}")
                    continue
                overloads = [item] if hasattr(item, "_schema") else [getattr(item, name) for name in item.overloads()]
                names |= {argument.name for overload in overloads for argument in overload._schema.arguments}
            found += [
                f"{self.name}: {', '.join(row.ops)} has no argument {name}"
                for name in (*row.inputs, *row.attributes)
                if name not in names
            ]
        return found

    def rows_for(self, target: Any) -> list[OpRow]:
        """Rows that name an overload, itself or by its packet."""
        full = str(target)
        packet = full.rsplit(".", 1)[0]
        return [row for row in self.rows if full in row.ops or packet in row.ops]

    def clauses(self, node: Node) -> tuple[Clause, ...]:
        """Every failing clause of one node; empty where a row of the table allows it.

        Where several rows name the op, the row with the fewest failing clauses speaks.

        Args:
            node: A call_function of an OpOverload with ``meta["val"]``.
        """
        import torch

        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return (Clause("op", f"{node.op} {_name(node.target)} is no ATen overload; lower the graph first"),)
        general = []
        if node.target._schema.is_mutable:
            general.append(Clause("mutation", f"{node.target} writes to its argument; functionalise the graph first"))
        rows = self.rows_for(node.target)
        if not rows:
            full = str(node.target)
            why = self.left_out.get(full) or self.left_out.get(full.rsplit(".", 1)[0])
            return (Clause("op", f"{self.name} has no {full}{f': {why}' if why else ''}"), *general)
        failing = min((list(_row_clauses(row, node)) for row in rows), key=len)
        return (*general, *failing)


def _row_clauses(row: OpRow, node: Node) -> Iterator[Clause]:
    import torch

    arguments = schema_arguments(node)
    for name, argument in arguments.items():
        rule = row.inputs.get(name, row.tensors)
        if rule.none is not None and (argument is None) != rule.none:
            yield Clause("attribute", f"{name} must{'' if rule.none else ' not'} be None")
        tensors: list[Any] = []
        torch.fx.node.map_arg(argument, tensors.append)
        for used in tensors:
            value = used.meta.get("val")
            if value is None:
                yield Clause("no-meta", f"{name} ({used.name}) has no meta['val']; propagate shapes first")
            elif isinstance(value, torch.Tensor):
                yield from rule.clauses(f"{name} ({used.name})", value, is_input=True)
            elif isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and not rule.dynamic:
                yield Clause("dynamic-shape", f"{name} is the symbol {value}")
    value = node.meta.get("val")
    if value is None:
        yield Clause("no-meta", f"{node.name} has no meta['val']; propagate shapes first")
    for index, output in enumerate(value if isinstance(value, tuple | list) else (value,)):
        if isinstance(output, torch.Tensor):
            where = f"output {index}" if isinstance(value, tuple | list) else "the output"
            yield from row.tensors.clauses(where, output, is_input=False)
    for name, limit in row.attributes.items():
        if name not in arguments:  # another op of the row has it; `problems` finds names that none has
            continue
        text = limit_text(limit, arguments[name], _rank(node))
        if text:
            yield Clause("attribute", f"{name} {text}")


def limit_text(limit: dict[str, Any], value: Any, rank: int | None) -> str | None:
    """What is wrong with an attribute, or None. Limits hold for every element of a list.

    Args:
        limit: Keys of LIMITS.
        value: The argument.
        rank: Dimensions of the first tensor argument, for ``last``.
    """
    if "none" in limit:
        if (value is None) != limit["none"]:
            return f"is {value}; it must{'' if limit['none'] else ' not'} be None"
        if value is None:
            return None
    each = list(value) if isinstance(value, list | tuple) else [value]
    if "length" in limit and len(each) != limit["length"]:
        return f"has {len(each)} elements; allowed: {limit['length']}"
    if "last" in limit and rank is not None:
        at = [item + rank if isinstance(item, int) and item < 0 else item for item in each]
        if (at == [rank - 1]) != limit["last"]:
            return f"is {value}; it must{'' if limit['last'] else ' not'} be the last of {rank} dimensions"
    for item in each:
        if "equals" in limit and not _same(item, limit["equals"]):
            return f"is {value}; allowed: {limit['equals']}"
        if "in" in limit and not any(_same(item, allowed) for allowed in limit["in"]):
            return f"is {value}; allowed: {', '.join(map(str, limit['in']))}"
        if ("min" in limit or "max" in limit) and not isinstance(item, int | float):
            return f"is {value}; a number known at compile time is needed"
        if "min" in limit and item < limit["min"]:
            return f"is {value}; at least {limit['min']}"
        if "max" in limit and item > limit["max"]:
            return f"is {value}; at most {limit['max']}"
    return None


def schema_arguments(node: Node) -> dict[str, Any]:
    """Arguments of an OpOverload node by schema name, defaults filled in; nodes stand for themselves."""
    schema = node.target._schema.arguments
    arguments = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    arguments.update({argument.name: value for argument, value in zip(schema, node.args, strict=False)})
    arguments.update(node.kwargs)
    return {argument.name: arguments[argument.name] for argument in schema if argument.name in arguments}


def _same(value: Any, allowed: Any) -> bool:
    """TOML has no dtype or None: a text stands for what prints so."""
    if isinstance(allowed, str):
        return str(value).removeprefix("torch.") == allowed
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    return isinstance(value, int | float) and bool(value == allowed)


def _rank(node: Node) -> int | None:
    for used in node.all_input_nodes:
        value = used.meta.get("val")
        if hasattr(value, "dim"):
            rank: int = value.dim()
            return rank
    return None


def _has_layout(value: Any, name: str) -> bool:
    import torch

    if name == "any":
        return True
    if name == "channels_last":
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        return value.dim() in formats and bool(value.is_contiguous(memory_format=formats[value.dim()]))
    if name == "dense":  # every element of the storage range once, in any order of dimensions
        expected = 1
        for size, stride in sorted(zip(value.shape, value.stride(), strict=True), key=lambda pair: (pair[1], pair[0])):
            if size == 1:
                continue
            if stride != expected:
                return False
            expected *= size
        return True
    return bool(value.is_contiguous())


def _rule(table: dict[str, Any], where: str) -> TensorRule:
    _known(table, (*TENSOR_KEYS, "none"), where)
    ranks = table.get("ranks")
    if ranks is not None and (len(ranks) != 2 or ranks[0] > ranks[1]):
        raise UsageError(f"{where}: `ranks` must be [smallest, largest], not {ranks}")
    layout = table.get("layout")
    if layout is not None and (unknown := [name for name in layout if name not in LAYOUTS]):
        raise UsageError(f"{where}: unknown layout {unknown[0]}; one of {', '.join(LAYOUTS)}")
    return TensorRule(
        dtypes=tuple(table["dtypes"]) if "dtypes" in table else None,
        ranks=(ranks[0], ranks[1]) if ranks is not None else None,
        devices=tuple(table["devices"]) if "devices" in table else None,
        dynamic=table.get("dynamic", True),
        layout=tuple(layout) if layout is not None else None,
        none=table.get("none"),
    )


def _known(table: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise UsageError(f"{where}: unknown key `{key}`; one of {', '.join(keys)}")


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))
