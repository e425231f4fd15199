"""What automatic dynamism (PGO) marks as dynamic, compile by compile: instants named ``automatic_dynamic`` among the phase events.

Torch writes one per size or number that differs from what its profile has (``torch/_dynamo/pgo.py``, ``update_automatic_dynamic``),
into the compile that takes the consequence. They lie among ten thousands of other phase events, so they are looked for by their text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxscope.recording.process import without_attempt
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from fxscope.recording.records import Recompile
    from fxscope.recording.state import State
    from fxscope.trace.index import LogIndex

_NEEDLE = b'"automatic_dynamic"'


def recompiles_in_time(state: State) -> list[Recompile]:
    """Recompile records in order of time, each with what automatic dynamism marks as dynamic in it."""
    rows = sorted(state.recompiles, key=lambda row: row.started)
    by_key = {without_attempt(row.key): row for row in rows}
    for log, index in enumerate(state.logs) if rows else ():
        begin = state.searched.get(log, 0)
        # The last event of a log that grows may be torn; the next look begins with it.
        state.searched[log] = end = max(0, len(index) - 1)
        for number in index.mentioning(index.numbers("chromium_event", begin, end), _NEEDLE):
            event = index.event(number)
            key = state.process(log, event).key_at(event.envelope, number)
            found = by_key.get(without_attempt(key or ""))
            told = _told(index, number) if found is not None else ""
            if found is not None and told and not _known(found.pgo, told):
                found.pgo.append(told)
    return rows


def _known(pgo: list[str], told: str) -> bool:
    """Said already; of a tensor with other dimensions the strides follow its sizes under the same name."""
    source = told.partition(": ")[0]
    return told in pgo or (source.endswith(".size()") and any(each.startswith(source + ": ") for each in pgo))


def _told(index: LogIndex, number: int) -> str:
    """``L['x'].size()[1]: 16 -> 20``; "" for an instant that is not of that form."""
    try:
        value: Any = decode_json(index.text(number).encode("utf-8", "replace"))
    except BadEnvelope:
        return ""  # a torn payload; the event itself is counted where it is indexed
    facts = value.get("args") if isinstance(value, dict) and value.get("name") == "automatic_dynamic" else None
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str):
        return ""
    dim = facts.get("dim_changed")
    what = "stride" if str(facts.get("reason")).startswith("stride") else "size"
    if dim == "all":  # another number of dimensions: every size, and with them every stride
        return f"{facts['name']}.size(): {facts.get('cached')} -> {facts.get('new')}"
    place = f".{what}()[{dim}]" if isinstance(dim, int) and not isinstance(dim, bool) else ""
    return f"{facts['name']}{place}: {facts.get('cached')} -> {facts.get('new')}"
