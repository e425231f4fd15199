"""Tensors that a recording kept (``fxscope run --save-tensors``): inputs of a graph's first call, and its constants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxscope.errors import MissingError, UnreadableError
from fxscope.names import EVENT_GRAPH, TENSOR_DIR

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile


def recorded_tensors(recording: Recording, compile_: Compile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs (for ``make_inputs(tensors=...)``) and constants (for ``rebuild(constants=...)``) by name; empty where none were kept.

    Safetensors files hold numbers alone; one that the log names outside the recording's own folder is not opened.

    Raises:
        MissingError: The package safetensors is absent.
        UnreadableError: The file is there and broken.
    """
    path = tensor_file(recording, compile_)
    if path is None:
        return {}, {}
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise MissingError("reading recorded tensors needs safetensors: pip install safetensors") from None
    try:
        values = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UnreadableError(f"cannot read the recorded tensors {path}: {error}") from error
    inputs = {name[6:]: value for name, value in values.items() if name.startswith("input:")}
    constants = {name[9:]: value for name, value in values.items() if name.startswith("constant:")}
    return inputs, constants


def tensor_file(recording: Recording, compile_: Compile) -> Path | None:
    """The file that the compile's ``fxscope.graph`` event names, if it lies where recordings keep tensors."""
    folder = (Path(recording.path) / TENSOR_DIR).resolve()
    for artifact in recording.artifacts:
        if artifact.name != EVENT_GRAPH or artifact.compile_key != compile_.key:
            continue
        try:
            payload = json.loads(recording.text(artifact.event))
        except ValueError:
            continue  # a torn event: as if the tensors were not recorded
        named = payload.get("tensors") if isinstance(payload, dict) else None
        if isinstance(named, str):
            path = (Path(recording.path) / named).resolve()
            if path.is_relative_to(folder) and path.is_file():
                return path
    return None
