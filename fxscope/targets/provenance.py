"""Which graph nodes each of Inductor's kernels computes, as Inductor itself tells while it compiles."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_MAPPINGS = "inductor_provenance_tracking_node_mappings"
_DEFINED = re.compile(r"^(\w+) = async_compile\.")
_NAME = re.compile(r"\w+(?:\.\w+)*(?=\()")
_END = "'''"


class _Listener(logging.Handler):
    """Takes the mapping out of the structured trace."""

    def __init__(self, nodes_of: dict[str, tuple[str, ...]]) -> None:
        super().__init__()
        self.nodes_of = nodes_of

    def emit(self, record: logging.LogRecord) -> None:
        artifact = getattr(record, "metadata", {}).get("artifact")
        if isinstance(artifact, Mapping) and artifact.get("name") == _MAPPINGS:
            found = json.loads(record.__dict__.get("payload") or "{}").get("cppCodeToPost") or {}
            self.nodes_of.update({name.split(":")[0]: tuple(nodes) for name, nodes in found.items()})


@contextmanager
def kernel_nodes() -> Iterator[dict[str, tuple[str, ...]]]:
    """While it is open, what Inductor compiles fills the dict: kernel name to names of post-grad nodes.

    It stays empty where this torch does not track them.
    """
    import torch._inductor.config as config

    found: dict[str, tuple[str, ...]] = {}
    settings: dict[str, Any] = {}
    if hasattr(config.trace, "provenance_tracking_level"):
        settings["trace.provenance_tracking_level"] = 1
    log, listener = logging.getLogger("torch.__trace"), _Listener(found)
    log.addHandler(listener)
    try:
        with config.patch(settings):
            yield found
    finally:
        log.removeHandler(listener)


def lines_to_nodes(code: str, nodes_of: Mapping[str, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Per line of Inductor's code, from 1, the nodes of the kernel that it defines, is part of, or calls."""
    lines: dict[int, tuple[str, ...]] = {}
    inside: tuple[str, ...] = ()
    for number, line in enumerate(code.split("\n"), 1):
        defined = _DEFINED.match(line)
        if defined:
            inside = nodes_of.get(defined[1], ())
        called = () if inside else next((nodes_of[m] for m in _NAME.findall(line) if m in nodes_of), ())
        if inside or called:
            lines[number] = inside or called
        if line.startswith(_END):
            inside = ()
    return lines
