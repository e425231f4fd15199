"""Looks into the compile caches (artifacts ``fx_graph_cache_*`` and ``aotautograd_cache_*``)."""

from __future__ import annotations

import re

_NAME = re.compile(r"^(?:inductor_)?(.*?)(?:_bundled)?_cache_(hit|miss|bypass)$")
_NAMES = {"fx_graph": "fx_graph", "aotautograd": "aot_autograd", "precompile": "precompile", "dynamo": "dynamo"}
_FIELD = re.compile(
    r'"(cache_bypass_reason|cache_bypass_exception_type|cache_status_detailed|reason)":\s*"((?:[^"\\]|\\.)*)"'
)
HEAD = 4096  # bytes that are read; a miss goes on with the whole key of the cache, a hundred kilobytes and more


def read_cache_event(name: str, text: str) -> tuple[str, str, str | None]:
    """Cache, outcome (hit, miss, bypass) and reason of one event."""
    found = _NAME.match(name)
    cache, outcome = (found[1], found[2]) if found else (name, "miss")
    fields = dict(_FIELD.findall(text))
    reason = fields.get("cache_bypass_reason") or fields.get("reason") or fields.get("cache_bypass_exception_type")
    if reason is None and outcome == "miss":
        reason = fields.get("cache_status_detailed")
    return _NAMES.get(cache, cache), outcome, reason and reason.replace('\\"', '"').replace("\\n", " ")
