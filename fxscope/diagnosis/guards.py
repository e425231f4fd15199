"""What one failed guard says: the finding id of its cause, and the user's name for what was checked."""

from __future__ import annotations

import re

import msgspec

from fxscope.recording.recompiles import source_name
from fxscope.recording.records import FailedGuard


class GuardCause(msgspec.Struct, frozen=True, kw_only=True):
    """One failed guard, understood.

    Attributes:
        ids: Finding ids, the cause first. A size that changed is ``dynamic-size`` here; only the story of the whole frame
            can tell whether dynamic shapes were off, or whether the code fixed the size again.
        name: What was checked, as the user writes it: ``x``, ``self.calls``, ``cfg['lr']``.
        dim: The dimension, for sizes and strides.
    """

    ids: tuple[str, ...]
    name: str
    dim: int | None = None


_LOCAL = re.compile(r"L\['(\w+)'\]")
_GLOBAL = re.compile(r"G\['([\w.]+)'\]")
_PARAMETER = re.compile(r"\._?(parameters|buffers)\b|\._parameters\[|\._buffers\[|\.(weight|bias)$")
_INDEX_NAME = re.compile(r"(^|_)(idx|index|id|num|number|layer|block|depth|level|stage|rank|i)$")
_ZERO_ONE = re.compile(r"^[01]$")

# A tensor that lies on the stack where a graph breaks has no name of the user's.
CROSSING = "the tensor that crosses the graph break"
_OF_TENSORS = frozenset({"size", "stride", "rank", "dtype", "device", "requires_grad", "dispatch_key"})

TWO_SIZES = re.compile(r"^(\S+)\.size\(\)\[(\d+)\] == (\S+)\.size\(\)\[(\d+)\]$")
# Guards on mark_dynamic and its kin: a tensor is marked in some calls only.
MARKED = re.compile(r"\b_dynamo_\w+_indices\b|\b_has_dynamo_dim_marking\b")

_BY_KIND = {
    "stride": ("layout",),
    "rank": ("tensor-rank", "dynamic-size"),
    "dtype": ("dtype-or-device",),
    "device": ("dtype-or-device",),
    "requires_grad": ("grad-mode",),
    "grad_mode": ("grad-mode",),
    "autocast": ("autocast",),
    "function_mode": ("function-mode",),
    "default_device": ("function-mode",),
    "backend": ("new-compile-each-call",),
    "length": ("container-size",),
    "keys": ("container-size",),
    "none": ("none-or-tensor",),
    "aliasing": ("tensor-aliasing",),
    "string": ("changing-number",),
    "bool": ("changing-number",),
    "number": ("changing-number",),
    "value": ("changing-number",),
}


def name_of(source: str | None) -> str:
    """A guard's source as the user writes it: ``L['self']._modules['head'].scale`` -> ``self.head.scale``."""
    text = source or ""
    text = _LOCAL.sub(r"\1", text)
    text = re.sub(r"G\['__import_(\w+)'\]", _imported, text)
    text = _GLOBAL.sub(r"\1", text)
    text = re.sub(
        r"\._(?:modules|parameters|buffers)\['(\w+)'\]", lambda m: f"[{m[1]}]" if m[1].isdigit() else f".{m[1]}", text
    )
    text = re.sub(r"\.__dict__\['(\w+)'\]", r".\1", text).removeprefix("__main__.")
    text = re.sub(r"^___from_numpy\((.*)\)", r"\1", text)
    text = re.sub(r"\.__closure__\[\d+\]\.cell_contents", "", text)
    text = re.sub(r"^args\[(\d+)\]$", r"argument \1", text)
    return re.sub(r"\.(size|stride)\(\)(\[\d+\])?$", "", text)


def _imported(match: re.Match[str]) -> str:
    """Dynamo's name for a module, ``__import_torch_dot_nn``; the program's own globals need none."""
    return match[1].replace("_dot_", ".")


def guarded_source(guard: FailedGuard) -> str:
    """The source that a guard checks; of arithmetic over one number, that number: ``((-1)*t) == (-0.2)`` -> ``L['t']``."""
    source = guard.source or ""
    if source.startswith("(") and guard.kind == "number" and not (guard.expected or "").startswith(("!", "<", ">")):
        numbers = set(re.findall(r"(?<![\w.'\"])[A-Za-z_]\w*(?:\.\w+|\[[^\]]*\])*(?![\w(])", source))
        return source_name(numbers.pop()) if len(numbers) == 1 else source
    return source


def cause_of_guard(guard: FailedGuard, *, resumed: bool = False) -> GuardCause:
    """The cause of one failed guard.

    Args:
        guard: The guard.
        resumed: The frame resumes behind a graph break.
    """
    source = guarded_source(guard)
    text = guard.guard
    name = name_of(source)
    if missing := re.match(r"^(?:KeyError|IndexError) on (.+?)(?:\[[^\[]*\])?$", text):
        name = name_of(missing[1])
    if "___stack" in source or "___stack" in text:
        if guard.kind in _OF_TENSORS:  # a tensor crosses the break: its size, and no number, is what changed
            ids = ("dynamic-size",) if guard.kind == "size" else _ids(guard, source, name, text)
            return GuardCause(ids=(*ids, "break-value"), name=f"{CROSSING} ({name})", dim=guard.index)
        return GuardCause(ids=("break-value",), name=name or "a value", dim=guard.index)
    if (
        text.startswith("'NoneType' object")
        or "found <class 'NoneType'>" in text
        or re.search(r"\bis (not )?None\b|== None$", text)
    ):
        attribute = bool(re.search(r"\.\w+$", source)) and not source.startswith("G[")
        return GuardCause(ids=("none-or-tensor", "changing-attribute") if attribute else ("none-or-tensor",), name=name)
    if MARKED.search(text):
        return GuardCause(ids=("dynamic-size",), name="" if name.startswith("_has_dynamo") else name)
    if guard.kind == "attribute" and (made := re.match(r"['\"](\w+)['\"]", guard.expected or "")):
        name = f"{name}.{made[1]}"
    ids = _ids(guard, source, name, text)
    if resumed and ids[0] == "changing-number" and guard.kind in ("number", "bool", "string"):
        ids = ("break-value", *ids)
    return GuardCause(ids=tuple(dict.fromkeys(ids)), name=name, dim=guard.index)


def _ids(guard: FailedGuard, source: str, name: str, text: str) -> tuple[str, ...]:
    kind = guard.kind
    if name.endswith(".training") or text.replace("not ", "").split(" ")[0].endswith(".training"):
        return ("train-eval",)
    if kind == "size":
        return _size(guard, source)
    if kind == "shape":
        return _shape(text)
    if text.startswith("GLOBAL_STATE changed") or kind == "global_state":
        return _global_state(text)
    if "___check_metadata_" in text:  # of a tensor subclass: what its __tensor_flatten__ gives beside the tensors
        return ("tensor-type",)
    if kind == "dispatch_key":
        return _dispatch_key(guard)
    if kind == "type":
        return _type(guard, source, text)
    if kind == "identity":
        other = re.fullmatch(r"\S+ is (?:not )?([A-Za-z_][\w.\[\]'\"]*)", text)
        aliased = other is not None and other[1] not in ("True", "False", "Ellipsis", "NotImplemented")
        return ("tensor-aliasing",) if aliased else _identity(source, text)
    if kind == "attribute":
        return ("changing-attribute",)
    if re.search(r"\b(KeyError|IndexError) on\b|dict\.keys\(", text):
        return _container(text)
    if kind in ("length", "keys"):
        return _container(source)
    if kind in ("number", "string", "bool", "value"):
        return _value(source, name, kind)
    return _BY_KIND.get(kind, ("other-guard",))


def _global_state(text: str) -> tuple[str, ...]:
    """Every part that changed: ``GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled``."""
    parts = text.partition("changed: ")[2].split()
    ids = ["grad-mode" for part in parts if "grad" in part] + ["autocast" for part in parts if "autocast" in part]
    return tuple(dict.fromkeys(ids)) or ("global-state",)


def changed_keys(guard: FailedGuard) -> set[str]:
    """Dispatch keys that one of the two tensors has and the other has not."""
    return set(re.findall(r"\w+", guard.expected or "")) ^ set(re.findall(r"\w+", guard.actual or ""))


def _dispatch_key(guard: FailedGuard) -> tuple[str, ...]:
    changed = changed_keys(guard)
    if any("FuncTorch" in key or key.startswith("Python") for key in changed):
        return ("tensor-type",)  # wrapped by vmap or grad, or a subclass
    return ("grad-mode",) if any("Autograd" in key or "ADInplace" in key for key in changed) else ("dtype-or-device",)


def _size(guard: FailedGuard, source: str) -> tuple[str, ...]:
    if "Guard failed on a parameter" in guard.guard and not _PARAMETER.search(source):
        return ("shared-code", "dynamic-size")  # a parameter that is handed in: its sizes never become dynamic
    if _PARAMETER.search(source):
        return ("shared-code",)
    if _ZERO_ONE.match(guard.actual or "") or _ZERO_ONE.match(guard.expected or ""):
        return ("size-zero-one", "dynamic-size")
    return ("dynamic-size",)


def _shape(text: str) -> tuple[str, ...]:
    if "0/1 specialization" in text or re.match(r"^2 <= [\w.\[\]'\"]+\.(size|stride)\(\)\[\d+\]$", text):
        return ("size-zero-one",)
    return ("shape-expression",)


def _type(guard: FailedGuard, source: str, text: str) -> tuple[str, ...]:
    if source == "L['self']" or source.endswith(".__code__"):
        return ("shared-code",)
    kinds = f"{guard.expected} {guard.actual}"
    if "NoneType" in kinds:
        return ("none-or-tensor",)
    if re.search(r"ensor|Parameter|\b(float|int|bool|complex)\b|ndarray", kinds + text):
        return ("tensor-type",)
    return ("object-identity",)


def _identity(source: str, text: str) -> tuple[str, ...]:
    if source.endswith(".__code__"):
        return ("object-identity", "shared-code")
    if re.search(r"type=<class '(NoneType|bool)'>", text):
        return ("none-or-tensor",) if "NoneType" in text else ("changing-attribute",)
    if source.startswith("L['self']") and source.count("[") == 1 and "." not in source:
        return ("shared-code", "object-identity")
    return ("object-identity",)


def _container(source: str) -> tuple[str, ...]:
    if " object at 0x" in source:
        return ("object-identity", "container-size")
    if re.search(r"_(modules|parameters|buffers)\b", source):
        return ("shared-code", "container-size")
    return ("container-size",)


def _value(source: str, name: str, kind: str) -> tuple[str, ...]:
    if source.endswith(".cell_contents"):
        return ("changing-number",)  # a variable that a function closes over
    attribute = bool(re.search(r"\.\w+$|\.__dict__\['\w+'\]$", source))
    if source.startswith("G["):
        return ("changing-attribute", "changing-global") if attribute else ("changing-global",)
    if attribute:
        owner_is_module = source.startswith("L['self']")
        indexed = owner_is_module and kind == "number" and _INDEX_NAME.search(name.rpartition(".")[2])
        return ("changing-attribute", "shared-code") if indexed else ("changing-attribute",)
    if ".param_groups" in source:
        return ("changing-number",)
    if re.match(r"L\['self'\]\.", source):
        return ("changing-attribute", "changing-number")
    return ("changing-number",)
