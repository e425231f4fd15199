"""How kinds of nodes look in a drawing, and text that is always a valid dot label."""

from __future__ import annotations

from collections.abc import Mapping

from fxscope.graph.cost import classes, short_name
from fxscope.graph.records import Node

# Kind -> fill colour and what the legend says. Dark text has at least 7:1 contrast on each.
KINDS: dict[str, tuple[str, str]] = {
    "input": ("#cfe2f3", "input"),
    "parameter": ("#fce5cd", "parameter or buffer"),
    "tangent": ("#ead1dc", "tangent"),
    "saved": ("#d9d2e9", "saved for backward"),
    "symbol": ("#f3f3f3", "symbolic size"),
    "constant": ("#eeeeee", "constant"),
    "matmul": ("#f4b6a6", "matrix product, convolution, attention"),
    "pointwise": ("#d9ead3", "pointwise"),
    "reduction": ("#ffe599", "reduction, normalisation"),
    "view": ("#ffffff", "view"),
    "copy": ("#d0e0e3", "copy, indexing, creation"),
    "call": ("#e6e6fa", "other call"),
    "group": ("#f9f9f9", "collapsed module"),
    "output": ("#cccccc", "output"),
}
HIGHLIGHTS = ("#e69138", "#3d85c6", "#6aa84f", "#a64d79", "#cc0000", "#674ea7", "#45818e", "#bf9000")


def kind_of(node: Node) -> str:
    """The kind that sets a node's colour."""
    if node.op == "output":
        return "output"
    if node.op in ("placeholder", "get_attr"):
        return {"buffer": "parameter", None: "constant"}.get(node.role, node.role or "constant")
    if node.symbol is not None:
        return "symbol"
    return classes().get(short_name(node), "call")


class Quoted:
    """A dot string that is complete: pydot writes it as it is, without looking for what it should quote."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def quoted(text: str) -> Quoted:
    """A dot string that shows exactly ``text``; line breaks stay line breaks.

    Outside record labels, which we never use, only the backslash and the quote have a meaning. Control characters, which
    graphviz refuses or drops, become spaces.
    """
    lines = text.split("\n")
    if not all(map(str.isprintable, lines)):
        lines = ["".join(char if char.isprintable() else " " for char in line) for line in lines]
    escaped = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return Quoted(f'"{escaped}"')


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` characters, the end replaced by an ellipsis; the full text goes into the tooltip."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def colour_of(labels: Mapping[str, str]) -> dict[str, str]:
    """A colour for each highlight label, in order of appearance."""
    unique = dict.fromkeys(labels.values())
    return {label: HIGHLIGHTS[position % len(HIGHLIGHTS)] for position, label in enumerate(unique)}
