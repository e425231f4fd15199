"""What tests expect that were written on torch 2.13 and run on another: its version, and where lines of torch's own went."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import Any

TORCH = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
# Lines of torch 2.13, by their text; the first line of that text is meant.
_LINES = {
    ("optimizer.py", 79): ("optim/optimizer.py", "torch._dynamo.graph_break()"),
    ("adam.py", 214): ("optim/adam.py", "@_use_grad_for_differentiable"),
}
# What a version does otherwise than ../shared/cases/truth.json says, from that version on.
_SINCE: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    # torch resumes behind the LSTM instead of giving the function up
    "66": ((2, 15), {"expect": ["rnn-module"], "measured": {"graphs": 2}}),
}


def truth_of_torch(truth: dict[str, Any]) -> dict[str, Any]:
    """The truth about ../shared/cases, measured on torch 2.13, as it holds for the installed torch."""
    here = {case: told for case, (version, told) in _SINCE.items() if case in truth and version <= TORCH}
    return truth | {
        case: truth[case] | told | {"measured": truth[case]["measured"] | told["measured"]}
        for case, told in here.items()
    }


def guard_of_torch(guard: str) -> str:
    """What torch 2.13 says of a failed guard as the installed torch says it: before, it named no backends."""
    return guard if TORCH >= (2, 13) else re.sub(r"Cached backend: .+ New backend: .+ (?=If this is)", "", guard)


def line_of_torch(file: str, line: int) -> int:
    """The line of the installed torch that torch 2.13 has at ``line``; a line of any other file as it is."""
    if (file, line) not in _LINES:
        return line
    path, wanted = _LINES[file, line]
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    lines = (Path(found.origin).parent / path).read_text("utf-8").splitlines()
    return 1 + [text.strip() for text in lines].index(wanted)
