"""The story of one code object that was compiled more than once: what changed from entry to entry."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import msgspec

from fxscope.recording.records import FailedGuard, LimitHit, Recompile
from fxscope.source import SourceLine

_RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d{1,9})$")

_ENTRY = re.compile(r"/\d+(?:_\d+)?")


def resumed(function: str) -> tuple[str, int] | None:
    """The user's function, and the line behind which it resumes after a graph break; None for any other frame."""
    found = _RESUME.match(function)
    return (found[1], int(found[2])) if found else None


def plain_function(function: str) -> str:
    """The user's name of a function, of a resumed one too."""
    found = resumed(function)
    return found[0] if found else function


def code_of(recompile: Recompile) -> str:
    """Key of a recompile's code object: ``r1:0/3#2`` -> ``r1:0``."""
    return _ENTRY.sub("", recompile.key.partition("#")[0])


class Change(msgspec.Struct, kw_only=True):
    """Why one recompile happened.

    Attributes:
        index: Position in ``recording.recompiles``.
        ids: Finding ids, sharpened by the frame's whole story.
        line: The user's line that fixed a size, where the log says.
        use: How often the process had begun anew (``torch.compiler.reset()``): an id that comes again says so, one that is new does not.
    """

    index: int
    recompile: Recompile
    guard: FailedGuard
    ids: tuple[str, ...]
    name: str
    dim: int | None = None
    line: SourceLine | None = None
    use: int = 1

    @property
    def what(self) -> tuple[str, str, int | None, str]:
        """Cause, name, dimension and code object: a line with several breaks resumes in several pieces of one name, each with a story."""
        return (self.ids[0], self.name, self.dim, f"{code_of(self.recompile)}#{self.use}")


class Frame(msgspec.Struct, kw_only=True):
    """One code object that was compiled more than once.

    Attributes:
        place: File and line that the user can change: the function, or the call into a library.
        places: All such places; more than one means that unrelated objects share the code.
        limit: The limit hit, None where it was not.
        strings: Names of containers whose items are known to be strings.
        values: The values that were guarded for, by name, in order, each once.
        refused: A recompile was refused.
        caller: The user's function that calls into the library, where the code object is a library's.
        inner: Other library code calls the function, so that its arguments are in no line of the user's.
    """

    function: str
    file: str
    line: int
    place: tuple[str, int]
    places: list[tuple[str, int]] = msgspec.field(default_factory=list)
    changes: list[Change] = msgspec.field(default_factory=list)
    limit: LimitHit | None = None
    limit_index: int = -1
    seconds: float = 0.0
    rank: int | None = None
    strings: frozenset[str] = frozenset()
    values: dict[str, list[str]] = msgspec.field(default_factory=dict)
    refused: bool = False
    caller: str = ""
    inner: bool = False

    @property
    def resumed(self) -> bool:
        """The frame resumes behind a graph break."""
        return resumed(self.function) is not None

    @property
    def name(self) -> str:
        """The function's name as its user knows it."""
        return plain_function(self.function)

    def settle(self) -> None:
        """Fill ``values`` and ``refused`` from ``changes``, in one pass: a story may have ten thousand."""
        values: dict[str, dict[str, None]] = defaultdict(dict)
        for change in self.changes:
            if change.guard.expected is not None:
                values[change.name][change.guard.expected] = None
        self.values = {name: list(each) for name, each in values.items()}
        self.refused = any(change.recompile.outcome == "refused" for change in self.changes)

    @property
    def limited(self) -> bool:
        """The frame ran into the recompile limit."""
        return self.limit is not None or self.refused

    @property
    def storm(self) -> bool:
        """Recompiles that reach the limit, or that grow: five or more of one cause."""
        if self.limited:
            return True
        counts = Counter(change.what for change in self.changes)
        return bool(counts) and max(counts.values()) >= 5
