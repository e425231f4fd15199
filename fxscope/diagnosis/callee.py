"""What a graph break names: the function, method, type or operator in its context and explanation."""

from __future__ import annotations

import re

import msgspec

from fxscope.recording.records import GraphBreak


class Callee(msgspec.Struct, frozen=True, kw_only=True):
    """What was called.

    Attributes:
        module: Module of a skipped function, "" where the text has none.
        name: Qualified name as a reader knows it: ``time.perf_counter``, ``print``, ``aten.nonzero.default``.
        file: File of a skipped function, "" where unknown.
        native: Torch found no Python source for it.
    """

    module: str = ""
    name: str = ""
    file: str = ""
    native: bool = False


_SKIPPED = re.compile(r"module: (.+?), qualname: (.*?), skip reason: (.*)", re.DOTALL)
_INLINE = re.compile(r"qualname: (.*?), name: (.*?), filename: `(.*?)`", re.DOTALL)
_IN_FILE = re.compile(r"the function `(.*?)` in file `(.*?)`")
_PATTERNS = (
    re.compile(r"builtin (\w+) \["),
    re.compile(r"method: <\w*Logger [^>]*>\.(\w+)"),
    re.compile(r"enter a `(.+?)` context manager"),
    re.compile(r"call_method \w+\((?:<class ')?([\w.]*)(?:'>)?\) (\w+)"),
    re.compile(r"trace method `(\w+)` of class `(.+?)`"),
    re.compile(r"numpy function: <(?:function|cyfunction|built-in function|ufunc) '?([\w.]+)"),
    re.compile(r"builtin operator `(.+?)`"),
    re.compile(r"unsupported operator: ([\w.:]+)"),
    re.compile(r"<(?:function|bound method) ([\w.<>]+)"),
    re.compile(r"^((?:aten|prims|[a-z_]\w*)\.[\w.]+)$"),
    re.compile(r"^(\w+)\(.*\)$", re.DOTALL),
)


def callee_of(found: GraphBreak) -> Callee:
    """What the break is about; empty where its text names nothing."""
    text = found.context or found.reason
    if skipped := _SKIPPED.search(text):
        module, name, reason = skipped[1], skipped[2].strip(), skipped[3]
        module = "" if module == "<unknown module>" else module
        where = re.search(r"\((/?[^()]*\.py|/[^()]*)\)", reason)
        full = name if module in ("", "builtins", "None") or name.startswith(module + ".") else f"{module}.{name}"
        return Callee(module=module, name=full, file=where[1] if where else "", native="C extension" in reason)
    if inline := _INLINE.search(text):
        within = _IN_FILE.search(found.explanation)
        return Callee(name=inline[1].strip(), file=within[2] if within else inline[3])
    for pattern in _PATTERNS:
        for source in (found.context, found.explanation):
            if match := pattern.search(source):
                groups = [group for group in match.groups() if group]
                if pattern.pattern.startswith("trace method"):
                    return Callee(name=f"{groups[1]}.{groups[0]}")
                if pattern.pattern.startswith("call_method"):
                    return Callee(name=".".join(groups) if len(groups) == 2 else f"Tensor.{groups[-1]}")
                if "Logger" in pattern.pattern:
                    return Callee(module="logging", name=f"logging.Logger.{groups[0]}")
                return Callee(name=re.sub(r"^.*<locals>\.", "", groups[0]))
    return Callee()
