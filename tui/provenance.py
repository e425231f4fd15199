"""Which graph nodes a generated kernel computes: from Inductor's maps where they were logged, else from its comments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_DEFINED = re.compile(r"^(\w+) = async_compile\.\w+\(|^(\w*extern_kernels\.\w+)\(")
_NODE = re.compile(r"^#\s+%(\w+)\s*:.*= call_")
_NAME = re.compile(r"\b(?:triton|cpp|extern_kernels)[._]\w+")


class Provenance:
    """Kernels and nodes of one generated module.

    Attributes:
        nodes_of: Kernel name to node names of the post-grad graph.
        lines_of: Node name to line numbers (from 1) that define or call its kernel, of several the one that computes least.
    """

    def __init__(self, code: str, maps: Mapping[str, Sequence[str]] | None = None) -> None:
        self.nodes_of: dict[str, list[str]] = {}
        self.lines_of: dict[str, list[int]] = {}
        self._lines = code.split("\n")
        self._from_comments()
        for kernel, nodes in (maps or {}).items():
            self.nodes_of[kernel.split(":")[0]] = list(nodes)
        self._place()

    def _from_comments(self) -> None:
        found: list[str] = []
        for line in self._lines:
            if line.startswith("#"):
                node = _NODE.match(line)
                if node:
                    found.append(node[1])
            elif line.strip():
                kernel = _DEFINED.match(line)
                if kernel and found:
                    self.nodes_of[kernel[1] or kernel[2]] = found
                found = []

    def _place(self) -> None:
        places: dict[str, list[int]] = {}
        for number, line in enumerate(self._lines, 1):
            if not line.startswith("#"):
                for match in _NAME.finditer(line):
                    places.setdefault(match.group(), []).append(number)
        for kernel, nodes in sorted(self.nodes_of.items(), key=lambda item: -len(item[1])):
            for node in nodes:
                if kernel in places:
                    self.lines_of[node] = list(dict.fromkeys(places[kernel]))

    def nodes_at(self, number: int) -> list[str]:
        """Nodes of the kernel that a line (from 1) calls, or lies in."""
        for at in range(min(number, len(self._lines)) - 1, -1, -1):
            line = self._lines[at]
            for match in _NAME.finditer(line):
                if match.group() in self.nodes_of:
                    return self.nodes_of[match.group()]
            if at < number - 1 and line.startswith(("''')", "def ", "class ", "# kernel path")):
                break
        comment = _NODE.match(self._lines[number - 1]) if 0 < number <= len(self._lines) else None
        return [comment[1]] if comment else []
