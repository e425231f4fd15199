"""Which guards of a compiled entry failed later."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fxscope.recording.records import FailedGuard, Guard, Recompile

from .store import Snapshot

_KIND_TYPES = {
    "size": ("TENSOR_MATCH", "SHAPE_ENV", "LAMBDA_GUARD"),
    "stride": ("TENSOR_MATCH",),
    "dtype": ("TENSOR_MATCH",),
    "device": ("TENSOR_MATCH",),
    "length": ("LENGTH", "SEQUENCE_LENGTH", "DICT_LENGTH"),
    "type": ("TYPE_MATCH", "TENSOR_MATCH"),
    "identity": ("ID_MATCH",),
    "number": ("EQUALS_MATCH", "CONSTANT_MATCH"),
    "string": ("EQUALS_MATCH", "CONSTANT_MATCH"),
    "grad_mode": ("GRAD_MODE", "GLOBAL_STATE"),
    "global_state": ("GLOBAL_STATE",),
}
_WORD = re.compile(r"\w+")


def failures(
    guards: Sequence[tuple[Guard, int]], snapshot: Snapshot, key: str
) -> dict[int, list[tuple[Recompile, FailedGuard]]]:
    """Which guards of an entry failed later, by number: matched by what they check, then by the kind of check.

    Thousands of recompiles may name one of tens of thousands of guards each, so the time grows with their sum.
    """
    found: dict[int, list[tuple[Recompile, FailedGuard]]] = {}
    compile_ = snapshot.compile(key)
    if compile_ is None:
        return found
    names = {key, compile_.id, key.split("_", 1)[0], compile_.id.split("_", 1)[0]}
    finder: _Finder | None = None
    for record in snapshot.recompiles:
        if record.rank != compile_.rank:
            continue
        for failed in record.failed:
            if failed.entry not in names:
                continue
            finder = finder or _Finder(guards)
            at = finder.find(failed)
            if at is not None:
                found.setdefault(at, []).append((record, failed))
    return found


class _Finder:
    """Guards by the words of their checks and by what they look at."""

    def __init__(self, guards: Sequence[tuple[Guard, int]]) -> None:
        self.guards = {number: guard for number, (guard, _) in enumerate(guards) if guard.type}
        self.by_word: dict[str, list[int]] = {}
        self.by_source: dict[str, list[int]] = {}
        for number, guard in self.guards.items():
            self.by_source.setdefault(guard.source, []).append(number)
            for word in dict.fromkeys(_WORD.findall(guard.expression)):
                self.by_word.setdefault(word, []).append(number)
        self._known: dict[str, int | None] = {}

    def find(self, failed: FailedGuard) -> int | None:
        """The guard that a failure is about."""
        if failed.guard not in self._known:
            self._known[failed.guard] = self._containing(failed.guard)
        if (at := self._known[failed.guard]) is not None:
            return at
        same = self.by_source.get(failed.source or "\0", [])
        wanted = _KIND_TYPES.get(failed.kind, ())
        for number in same:
            if self.guards[number].type in wanted:
                return number
        if same:
            return same[0]
        if failed.kind in ("grad_mode", "global_state"):
            return next((number for number, guard in self.guards.items() if guard.type in wanted), None)
        return None

    def _containing(self, text: str) -> int | None:
        """The first guard whose check holds this text."""
        if not text:
            return None
        # The words at both ends of the text may be parts of longer ones; those between stand in the check as they are.
        inner = [self.by_word.get(word, []) for word in _WORD.findall(text)[1:-1]]
        candidates = min(inner, key=len) if inner else self.guards
        return next((number for number in candidates if text in self.guards[number].expression), None)
