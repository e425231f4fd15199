"""What the recorder was asked to do, carried to every process of a run in one environment variable."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Options:
    """Overrides and extras of one recording; the defaults only watch.

    Attributes:
        backend: Use this backend in every ``torch.compile``, whatever the program chose.
        mode: Use this mode in every ``torch.compile``.
        dynamic: Use this ``dynamic=`` in every ``torch.compile``.
        config: Settings by name, forced for every thread; names without a module are torch._dynamo.config's, else
            torch._inductor.config's.
        save_tensors: Keep the first call's inputs and the constants of every graph.
        time_launches: Sample the times of forward and backward callables.
        fusion_log: Keep Inductor's fusion decisions.
    """

    backend: str | None = None
    mode: str | None = None
    dynamic: bool | None = None
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    save_tensors: bool = False
    time_launches: bool = False
    fusion_log: bool = False

    def changed(self) -> dict[str, Any]:
        """The fields that are not at their defaults."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) not in (None, False, {})
            or (field.name == "dynamic" and value is not None)
        }

    def to_json(self) -> str:
        """The text of the environment variable."""
        return json.dumps(self.changed())

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Read the environment variable; unknown fields (another version wrote them) are left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in json.loads(text or "{}").items() if name in known})
