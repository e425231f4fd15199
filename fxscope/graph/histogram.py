"""How often a graph calls what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fxscope.graph.records import Graph


def all_graphs(graph: Graph) -> Iterator[Graph]:
    """A graph and every graph nested in it, outermost first."""
    yield graph
    for nested in graph.subgraphs.values():
        yield from all_graphs(nested)


def short_target(target: str) -> str:
    """A target without the words that every one of its kind has: ``aten.add.Tensor``, ``F.relu``, ``relu``, ``+``'s ``add``."""
    for prefix, instead in (
        ("torch.ops.", ""),
        ("torch.nn.functional.", "F."),
        ("torch._C._nn.", "F."),
        ("operator.", ""),
        ("torch.", ""),
    ):
        if target.startswith(prefix):
            return instead + target[len(prefix) :]
    return target


def histogram(graph: Graph, nested: bool = True) -> list[tuple[str, int]]:
    """Targets of calls with their number, most frequent first, then by name; methods as ``.view``.

    Args:
        graph: The graph.
        nested: Count the graphs of higher-order operators too.
    """
    counts: Counter[str] = Counter()
    for each in all_graphs(graph) if nested else (graph,):
        for node in each.nodes:
            if node.op == "call_method":
                counts[f".{node.target}"] += 1
            elif node.op in ("call_function", "call_module"):
                counts[node.target] += 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
