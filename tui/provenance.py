"""Which graph nodes a generated kernel computes, from the comments that Inductor writes above it and from its mapping artifact."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_DEFINED = re.compile(r"^(\w+) = async_compile\.\w+\(|^(\w*extern_kernels\.\w+)\(")
_NODE = re.compile(r"^#\s+%(\w+)\s*:.*= call_")
_NAME = re.compile(r"\b(?:triton|cpp|extern_kernels)[._]\w+")
MAPPING = "inductor_provenance_tracking_node_mappings"
OLD_MAPPING = "inductor_triton_kernel_to_post_grad_nodes"


class Provenance:
    """Kernels and nodes of one generated module.

    Attributes:
        nodes_of: Kernel name to node names of the post-grad graph.
        lines_of: Node name to line numbers (from 1) of the calls and definitions of its kernels.
    """

    def __init__(self, code: str, mapping: str = "") -> None:
        self.nodes_of: dict[str, list[str]] = {}
        self.lines_of: dict[str, list[int]] = {}
        self._lines = code.split("\n")
        self._from_comments()
        self._from_mapping(mapping)
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

    def _from_mapping(self, text: str) -> None:
        try:
            decoded = json.loads(text) if text else {}
        except ValueError:
            return  # a torn payload: the comments are still there
        table = decoded.get("cppCodeToPost", decoded) if isinstance(decoded, Mapping) else {}
        for kernel, nodes in table.items() if isinstance(table, Mapping) else ():
            if isinstance(nodes, list):
                self.nodes_of.setdefault(kernel.split(":")[0], [str(node) for node in nodes])

    def _place(self) -> None:
        for number, line in enumerate(self._lines, 1):
            if line.startswith("#"):
                continue
            for match in _NAME.finditer(line):
                for node in self.nodes_of.get(match.group(), ()):
                    lines = self.lines_of.setdefault(node, [])
                    if not lines or lines[-1] != number:
                        lines.append(number)

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
