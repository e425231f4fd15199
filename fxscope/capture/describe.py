"""A graph's backend, inputs and constants as plain data, without adding a guard or making a symbol concrete."""

from __future__ import annotations

import sys
from typing import Any


def describe_backend(compiler: Any) -> dict[str, Any]:
    """Name, module, mode and options of the backend behind Dynamo's wrappers."""
    ddp = getattr(getattr(compiler, "__self__", None), "backend_compile_fn", None)
    if ddp is not None:
        compiler = ddp
    name = getattr(compiler, "_compiler_name", None)
    while hasattr(compiler, "_torchdynamo_orig_backend"):
        compiler = compiler._torchdynamo_orig_backend
    name = getattr(compiler, "compiler_name", None) or name or getattr(compiler, "__name__", None)
    inner = getattr(compiler, "compiler_fn", compiler)
    if name is None:
        name = type(compiler).__name__
    keywords = getattr(compiler, "kwargs", None) or {}
    options = getattr(compiler, "config", None) or keywords.get("options")
    mode = keywords.get("mode")
    if mode is None and name == "inductor" and isinstance(options, dict) and options:
        mode = _inductor_mode(options)
    return {
        "backend": str(name),
        "backend_module": getattr(inner, "__module__", None),
        "mode": mode,
        "options": {str(key): plain(value) for key, value in options.items()} if isinstance(options, dict) else None,
        "dynamic": getattr(compiler, "dynamic", None),
        "ddp": ddp is not None,
    }


def _inductor_mode(options: dict[str, Any]) -> str | None:
    """The mode whose settings these are; inductor's wrapper keeps the settings and forgets the name."""
    list_modes = getattr(sys.modules.get("torch._inductor"), "list_mode_options", None)
    modes: dict[str, dict[str, Any]] = list_modes() if list_modes is not None else {}
    fitting = [
        (len(settings), mode)
        for mode, settings in modes.items()
        if settings and all(options.get(key.replace("-", "_")) == value for key, value in settings.items())
    ]
    return max(fitting)[1] if fitting else None


def plain(value: Any) -> Any:
    """The value where JSON has it, else its repr."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return safe_repr(value)


def safe_repr(value: Any) -> str:
    """The repr, or its class where the program's own ``__repr__`` raises: that must not end a recording."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - the text says what it raised
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def describe_inputs(nodes: list[Any]) -> list[dict[str, Any]]:
    """One row per placeholder, in order; fields in fxscope/capture/events.py."""
    rows = []
    for node in nodes:
        if node.op != "placeholder":
            continue
        argument = node.meta.get("grapharg")
        value = node.meta.get("example_value")
        if value is None:
            value = getattr(argument, "fake_tensor", None)
        source = getattr(node, "_dynamo_source", None) or getattr(argument, "source", None)
        rows.append({"name": str(node.target), "source": _source_name(source), **describe_value(value)})
    return rows


def constants(gm: Any) -> dict[str, Any]:
    """What the graph reads by ``get_attr``, by the attribute's name; None for one that is missing."""
    found = {}
    for target in dict.fromkeys(str(node.target) for node in gm.graph.nodes if node.op == "get_attr"):
        value = gm
        for part in target.split("."):
            value = getattr(value, part, None)
        found[target] = value
    return found


def describe_constants(gm: Any) -> list[dict[str, Any]]:
    """One row per tensor among the constants."""
    rows = ({"name": name, **describe_value(value)} for name, value in constants(gm).items())
    return [row for row in rows if row["kind"] == "tensor"]


def _source_name(source: Any) -> str | None:
    name = getattr(source, "name", None)  # a method up to torch 2.9, a property since
    if callable(name):
        name = name()
    return None if name is None else str(name)


def describe_value(value: Any) -> dict[str, Any]:
    """A tensor, a symbolic number, or an object."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    for kind, name in (("symint", "SymInt"), ("symfloat", "SymFloat"), ("symbool", "SymBool")):
        if isinstance(value, getattr(torch, name)):
            return {"kind": kind, "expression": str(value), "hint": _hint(value)}
    return {"kind": "object", "type": type(value).__name__}


def _describe_tensor(tensor: Any) -> dict[str, Any]:
    torch = sys.modules["torch"]
    row: dict[str, Any] = {
        "kind": "tensor",
        "dtype": str(tensor.dtype),
        "shape": [_size(size) for size in tensor.shape],
        "hint": [_hint(size) for size in tensor.shape],
        "device": str(tensor.device),
        "layout": str(tensor.layout),
        "requires_grad": tensor.requires_grad,
        "parameter": isinstance(tensor, torch.nn.Parameter),
        "subclass": None if type(tensor).__name__ in ("Tensor", "Parameter", "FakeTensor") else type(tensor).__name__,
    }
    if tensor.layout == torch.strided and not tensor.is_nested:
        row["stride"] = [_size(size) for size in tensor.stride()]
        row["stride_hint"] = [_hint(size) for size in tensor.stride()]
    return row


def _size(size: Any) -> int | str:
    return size if type(size) is int else str(size)


def _hint(value: Any) -> Any:
    """What a symbolic number was at the first call; None for an unbacked one."""
    if type(value) in (int, float, bool):
        return value
    node = getattr(value, "node", None)
    if node is None or not node.has_hint():
        return None
    return plain(node.hint)
