"""The list of what a rebuilt graph may call, and nothing else: single functions, operators, tensor methods and attributes.

``callables.json`` holds the names. They take and give tensors, numbers, shapes and dtypes; none touches files, modules,
processes, storages or pickles. A name that is not there is refused, whatever it is. This module imports no torch.
"""

from __future__ import annotations

import functools
import json
import re
from importlib import resources

from fxscope.errors import UsageError
from fxscope.graph.dtypes import TORCH_NAMES

METHODS = "torch.Tensor"
PROPERTIES = "torch.Tensor properties"
OPERATOR_SPACES = ("torch.ops.aten", "torch.ops.prims", "torch.ops.higher_order")
LAYOUTS = ("strided", "sparse_coo", "jagged")
MEMORY_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
# How a graph prints a device, as an object and as a string.
DEVICE = re.compile(r"""(?:torch\.)?device\((?:type=)?'([a-z]+)(?::\d+)?'(?:, *index=\d+)?\)""")
DEVICE_STRING = re.compile(r"(cpu|cuda|xpu|mps|hpu|xla|mtia|npu|meta)(?::\d+)?")
# Functions of torch that only steer torch itself: a rebuilt graph leaves them out, with the value None.
NO_OPS = (
    "torch._C._log_api_usage_once",
    "torch._functorch.vmap.lazy_load_decompositions",
    "torch._functorch.predispatch.lazy_load_decompositions",
)
# Operators with kernels for CUDA alone: elsewhere fxscope.graph.standins runs in their place.
CUDA_ONLY = tuple(
    f"torch.ops.aten._scaled_dot_product_{kind}_attention{direction}.default"
    for kind in ("efficient", "flash", "cudnn")
    for direction in ("", "_backward")
)
# Operators whose CPU kernels write through the indices they are given: fxscope.graph.standins clamps these first.
GUARDED = tuple(
    f"torch.ops.aten.{name}_backward.default"
    for name in (
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
    )
)


@functools.cache
def _groups() -> dict[str, frozenset[str]]:
    text = resources.files(__package__).joinpath("callables.json").read_text("utf-8")
    return {group: frozenset(names) for group, names in json.loads(text).items()}


@functools.cache
def _mangled() -> dict[str, str]:
    """How torch.fx prints a function that is not reached through ``torch``: ``math_sqrt`` for ``math.sqrt``."""
    names = {
        re.sub(r"\W+", "_", f"{group}.{name}"): f"{group}.{name}"
        for group in ("operator", "math", METHODS)
        for name in _groups()[group]
    }
    return {f"builtins_{name}": name for name in _groups()["builtins"]} | names


@functools.cache
def allowed_names() -> frozenset[str]:
    """Every bare name in the list: the public vocabulary of graphs."""
    return frozenset(name for names in _groups().values() for name in names)


def group_of(target: str) -> tuple[str, str]:
    """The group and the name of a function in the list; an operator's overload stays with its name (``add.Tensor``).

    Raises:
        UsageError: It is not in the list.
    """
    group, _, name = target.rpartition(".")
    if ".".join(target.split(".")[:4]) + ".default" in GUARDED and target not in GUARDED:
        raise refused(target)  # an out= variant would go around the guard
    for space in OPERATOR_SPACES:
        if target.startswith(space + "."):
            parts = target[len(space) + 1 :].split(".")
            if len(parts) <= 2 and parts[0] in _groups()[space] and all(map(_plain_overload, parts[1:])):
                return space, ".".join(parts)
            raise refused(target)
    if not group:
        plain = re.sub(r"_\d+$", "", name)
        for candidate in (name, plain):
            if candidate in _groups()["builtins"]:
                return "builtins", candidate
            if candidate in _mangled():
                return group_of(_mangled()[candidate])
    elif group != PROPERTIES and group != "builtins" and name in _groups().get(group, ()):
        return group, name
    raise refused(target)


def _plain_overload(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_")


def check_method(name: str) -> str:
    """The name of a tensor method, if it is in the list.

    Raises:
        UsageError: It is not.
    """
    if name in _groups()[METHODS]:
        return name
    raise refused(f"the method .{name}()")


def check_property(name: str) -> str:
    """The name of a tensor attribute that may be read, if it is in the list.

    Raises:
        UsageError: It is not.
    """
    if name in _groups()[PROPERTIES]:
        return name
    raise refused(f"the attribute .{name}")


def is_constant_of_torch(text: str) -> bool:
    """``torch.float32``, ``torch.strided``, ``torch.channels_last``: a dtype, a layout or a memory format."""
    name = text.removeprefix("torch.")
    return name != text and (name in TORCH_NAMES or name in LAYOUTS + MEMORY_FORMATS)


def is_arithmetic(text: str) -> bool:
    """Whether a text can only be arithmetic over symbols: it names no attribute of anything, and quotes nothing."""
    return bool(re.fullmatch(r"[\w\s()+\-*/%,.<>=]+", text)) and not re.search(r"[A-Za-z_]\s*\.", text)


def refused(what: str) -> UsageError:
    """The error for something that is not in the list."""
    return UsageError(
        f"refused to rebuild the graph: it uses {what}, which is not among the operators and tensor functions that "
        "fxscope runs from a recording"
    )
