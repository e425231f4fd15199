"""``--save-tensors``: the values of a graph's constants, and of its inputs at the first call, as safetensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from fxscope.capture.describe import constants
from fxscope.capture.launches import Entry, like
from fxscope.capture.recorder import ACTIVE
from fxscope.capture.tracelog import warn
from fxscope.names import TENSOR_DIR


def tensor_file(entry: Entry) -> str:
    """Where an entry's values go, relative to the recording: ``tensors/<pid>-<graph>-<compile id>.safetensors``."""
    return f"{TENSOR_DIR}/{os.getpid()}-{entry.graph}-{entry.id.replace('/', '_').replace('!', 'a')}.safetensors"


def saving(function: Callable[..., Any], gm: Any, entry: Entry) -> Callable[..., Any]:
    """The compiled function, which at its first call writes ``input:<name>`` and ``constant:<name>`` tensors."""
    names = [str(node.target) for node in gm.graph.nodes if node.op == "placeholder"]
    values = {f"constant:{name}": value for name, value in constants(gm).items()}
    path = tensor_file(entry)
    pending = True

    def first(*args: Any, **kwargs: Any) -> Any:
        nonlocal pending
        if pending:
            pending = False
            values.update({f"input:{name}": value for name, value in zip(names, args, strict=False)})
            _write(path, values)
            values.clear()
        return function(*args, **kwargs)

    return like(first, function)


def _write(relative: str, values: dict[str, Any]) -> None:
    try:
        from safetensors.torch import save_file

        torch = sys.modules["torch"]
        plain = {}
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                if value.layout == torch.strided and not value.is_complex() and not value.is_nested:
                    # A copy of its own: safetensors refuses tensors that share memory.
                    plain[name] = value.detach().to("cpu", copy=True).contiguous()
            elif isinstance(value, bool | int | float):
                plain[name] = torch.tensor(value)
        for recorder in list(ACTIVE):
            if recorder.options.save_tensors:
                path = os.path.join(recorder.folder, relative)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                save_file(plain, path)
    except Exception as error:  # noqa: BLE001 - the call must go on
        warn(f"cannot save tensors to {relative}: {type(error).__name__}: {error}")
