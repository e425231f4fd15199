"""Which nn.Module a node ran in, and the nodes grouped by it.

A printed graph does not say it, but its parameters' names do: what reads a parameter of ``layers.0.mlp`` ran in that module.
A node between two such nodes ran in the module that both share. The first is known, the second a good guess, and the two are
kept apart.
"""

from __future__ import annotations

import re

import msgspec

from fxscope.graph.arguments import node_refs
from fxscope.graph.records import Graph

_OWNED = ("parameter", "buffer", "constant", "input")


class Place(msgspec.Struct, frozen=True):
    """Where a node ran: ``path`` as ``layers.0.mlp`` ("" for the top), ``known`` unless it is inferred from its neighbours."""

    path: str
    known: bool


def adopt_originals(graph: Graph, dynamo: Graph) -> Graph:
    """Give an AOT graph's inputs the names, roles and modules of the Dynamo graph's inputs they came from. Returns the graph.

    AOTAutograd numbers inputs (``primals_7  # PlainAOTInput(idx=6)``); older logs print only the number.
    """
    sources = [node for node in dynamo.nodes if node.op == "placeholder"]
    for node in graph.nodes:
        if node.op != "placeholder" or node.original is not None:
            continue
        match = re.search(r"AOTInput\(idx=(\d+)\)", node.description)
        number = int(match.group(1)) if match else None
        if number is None and (match := re.fullmatch(r"(primals|arg)_?(\d+)(_1)?", node.name)):
            number = int(match.group(2)) - (match.group(1) == "primals")
        if number is None or not 0 <= number < len(sources):
            continue
        source = sources[number]
        shapes = getattr(node.meta, "shape", None), getattr(source.meta, "shape", None)
        if shapes[0] is not None and shapes[1] is not None and len(shapes[0]) != len(shapes[1]):
            continue  # the order is not the one we know: better no name than a wrong one
        node.original = source.original or source.target
        node.module = source.module
        if node.role in ("input", None):
            node.role = source.role
    return graph


def places(graph: Graph) -> dict[str, Place]:
    """Where every node ran."""
    owner: dict[str, str] = {}  # inputs, and what is computed from a single module's inputs alone
    known: dict[str, str] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            if node.module is not None and (node.op == "get_attr" or node.role in _OWNED):
                owner[node.name] = node.module
            continue
        inputs = list(dict.fromkeys(node_refs(node)))
        paths = {owner[name] for name in inputs if name in owner}
        if node.module is not None:
            known[node.name] = node.module
        elif paths and node.op != "output":
            path = _shared(sorted(paths))
            known[node.name] = path
            if len(paths) == 1 and all(name in owner for name in inputs):
                owner[node.name] = path
    return _between(graph, known, owner)


def _between(graph: Graph, known: dict[str, str], owner: dict[str, str]) -> dict[str, Place]:
    compute = [node.name for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    following: list[str | None] = [None] * len(compute)
    after: str | None = None
    for position in range(len(compute) - 1, -1, -1):
        following[position] = after = known.get(compute[position], after)
    result = {
        node.name: Place(owner.get(node.name) or "", node.name in owner)
        for node in graph.nodes
        if node.op in ("placeholder", "get_attr", "output")
    }
    before: str | None = None
    for name, coming in zip(compute, following, strict=True):
        if name in known:
            before = known[name]
            result[name] = Place(before, True)
        elif before is None or coming is None:
            result[name] = Place("", False)
        else:
            result[name] = Place(_shared([before, coming]), False)
    return result


def _shared(paths: list[str]) -> str:
    """The longest module path that all paths lie in."""
    split = [path.split(".") for path in paths]
    common: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)
