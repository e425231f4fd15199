"""The artifacts of a recording, written out as files: for ``fxscope artifacts``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from fxscope.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from fxscope.recording.recording import Recording

_UNSAFE = re.compile(r"[^A-Za-z0-9._=+-]+")
_CARRIERS = {
    "dynamo_output_graph": ".py",
    "dynamo_cpp_guards_str": ".txt",
    "dynamo_guards": ".json",
    "inductor_pre_grad_graph": ".py",
    "inductor_post_grad_graph": ".py",
    "inductor_output_code": ".py",
    "aot_joint_graph": ".py",
    "aot_forward_graph": ".py",
    "aot_backward_graph": ".py",
    "aot_inference_graph": ".py",
    "compiled_autograd_graph": ".py",
    "optimize_ddp_split_graph": ".py",
    "optimize_ddp_split_child": ".py",
    "exported_program": ".py",
    "graph_dump": ".txt",
    "dump_file": ".py",
    "artifact": ".txt",
}
_PYTHON = re.compile(
    r"_graph$|runnable|_forward$|_backward$|_wrapper$|_(?:pro|epi)logue$|orchestration$|_(?:pre|post)_grad$"
)


def safe_name(text: str) -> str:
    """A name that stays one plain file in its folder, whatever a log calls it: no separators, no dots in front, no length."""
    name = _UNSAFE.sub("_", text).lstrip(".")[:100]
    return name or "_"


def write_artifacts(recording: Recording, folder: Path) -> tuple[int, int]:
    """Write every payload but the phase events below ``folder``, one sub-folder per compile; count and bytes.

    Raises:
        UsageError: The folder cannot be written.
    """
    number = total = 0
    try:
        for event, kind in recording.events():
            if kind not in _CARRIERS:
                continue
            try:
                decoded = recording.event(event)
            except UsageError:
                continue  # a broken envelope; the notes count it
            if "has_payload" not in decoded.envelope:
                continue
            value = decoded.value
            name = str(value.get("name") or kind) if isinstance(value, dict) else kind
            suffix = _suffix(kind, name, value.get("encoding") if isinstance(value, dict) else None)
            key = recording.key_of(event)
            place = folder / ("outside" if key is None else safe_name(key.replace("!", "ca").replace("/", "-")))
            place.mkdir(parents=True, exist_ok=True)
            written = recording.text(event).encode("utf-8", "replace")
            (place / f"{number:05d}_{safe_name(name)}{suffix}").write_bytes(written)
            number += 1
            total += len(written)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    return number, total


def _suffix(kind: str, name: str, encoding: object) -> str:
    if os.path.splitext(name)[1] in (".py", ".json", ".txt", ".cpp", ".h", ".svg"):
        return ""
    if kind == "artifact":
        return ".json" if encoding == "json" else ".py" if _PYTHON.search(name) else ".txt"
    return _CARRIERS[kind]
