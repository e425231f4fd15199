"""Filters of tables: what the user typed, and finding the rows that pass, quick at 50,000 of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .virtual_table import RowProvider

Field = Callable[[int, str], bool]  # row and what must be in it (in small letters) -> whether it is


class Filter(NamedTuple):
    """A parsed filter: everything must hold; ``!`` in front inverts the whole; capitals in a word make it exact.

    Attributes:
        words: What must occur anywhere in a row.
        fields: Field and what must be in it: ``type:tensor``.
        inverse: Show the rows that do not pass.
    """

    words: tuple[str, ...]
    fields: tuple[tuple[str, str], ...] = ()
    inverse: bool = False

    @classmethod
    def parse(cls, query: str, fields: Mapping[str, Field] = {}) -> Filter:
        """Read what the user typed; ``name:word`` is about a field where the table has one of that name."""
        inverse = query.startswith("!")
        words: list[str] = []
        about: list[tuple[str, str]] = []
        for word in (query[1:] if inverse else query).split():
            name, colon, rest = word.partition(":")
            if colon and name.lower() in fields:
                about += [(name.lower(), rest.lower())] if rest else []  # "type:" alone: still typing
            else:
                words.append(word)
        return cls(tuple(words), tuple(about), inverse)

    @property
    def asks(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.words or self.fields)


def fields_of(provider: RowProvider) -> Mapping[str, Field]:
    """The fields of a table that filters can be about."""
    fields: Mapping[str, Field] = getattr(provider, "fields", {})
    return fields


class Haystack:
    """What the filters of one provider search, made once by whichever thread comes first."""

    def __init__(self, provider: RowProvider) -> None:
        self.provider = provider
        self._texts: list[str] = []
        self._making = Lock()

    def texts(self, cancelled: Callable[[], bool]) -> list[str]:
        """The text of each row in small letters; too few of them only where cancelled."""
        provider = self.provider
        with self._making:
            if len(self._texts) != provider.count():
                texts: list[str] = []
                for index in range(provider.count()):
                    if index % 2048 == 0 and cancelled():
                        return texts
                    texts.append(provider.text(index).lower())
                self._texts = texts
        return self._texts

    def matching(self, wanted: Filter, cancelled: Callable[[], bool]) -> list[int]:
        """Numbers of the rows that pass."""
        texts = self.texts(cancelled)
        rows = list(range(len(texts)))
        for number, word in enumerate(wanted.words):
            small = word.lower()
            if number:
                rows = [row for row in rows if small in texts[row]]
            else:
                rows = [row for row, text in enumerate(texts) if small in text]
            if word != small:
                rows = [row for row in rows if word in self.provider.text(row)]
        fields = fields_of(self.provider)
        for name, word in wanted.fields:
            holds = fields[name]
            rows = [row for row in rows if holds(row, word)]
        if wanted.inverse:
            passed = set(rows)
            rows = [row for row in range(len(texts)) if row not in passed]
        return rows
