"""Moving through a graph along its edges: definitions, uses, neighbourhoods. Everything is linear in what it returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from fxscope.graph.arguments import node_refs
from fxscope.graph.records import Graph, Node


class Navigator:
    """Def-use steps over one graph.

    Args:
        graph: The graph; edges are read once, so make a new Navigator when it changes.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.by_name = graph.by_name()
        self._inputs: dict[str, tuple[str, ...]] = {}

    def inputs(self, name: str) -> tuple[str, ...]:
        """Nodes that this one reads, in order of its arguments, each once."""
        if name not in self._inputs:
            names = dict.fromkeys(node_refs(self.by_name[name]))
            self._inputs[name] = tuple(found for found in names if found in self.by_name)
        return self._inputs[name]

    def users(self, name: str) -> tuple[str, ...]:
        """Nodes that read this one, in order of execution, each once."""
        return tuple(self.by_name[name].users)

    def first_use(self, name: str) -> str | None:
        """The first node that reads this one."""
        users = self.by_name[name].users
        return users[0] if users else None

    def last_use(self, name: str) -> str | None:
        """The last node that reads this one; after it the value is free."""
        users = self.by_name[name].users
        return users[-1] if users else None

    def next_use(self, name: str, after: str) -> str | None:
        """The use of ``name`` that follows the node ``after``; None at the last one."""
        position = self.by_name[after].index
        return next((user for user in self.by_name[name].users if self.by_name[user].index > position), None)

    def previous_use(self, name: str, before: str) -> str | None:
        """The use of ``name`` that precedes the node ``before``; None at the first one."""
        position = self.by_name[before].index
        return next((user for user in reversed(self.by_name[name].users) if self.by_name[user].index < position), None)

    def ancestors(self, names: Iterable[str], hops: int | None = None) -> dict[str, int]:
        """Everything that flows into the named nodes, with the number of steps; the nodes themselves have 0."""
        return self._reach(names, self.inputs, hops)

    def descendants(self, names: Iterable[str], hops: int | None = None) -> dict[str, int]:
        """Everything that the named nodes flow into, with the number of steps."""
        return self._reach(names, self.users, hops)

    def around(self, names: Iterable[str], hops: int) -> list[str]:
        """Nodes within ``hops`` steps in either direction, in order of execution."""

        def both(name: str) -> tuple[str, ...]:
            return self.inputs(name) + self.users(name)

        return sorted(self._reach(names, both, hops), key=lambda name: self.by_name[name].index)

    def path(self, start: str, end: str) -> list[str] | None:
        """A shortest chain of uses from one node to another, both included; None where none flows."""
        steps = self.descendants([start])
        if end not in steps:
            return None
        chain = [end]
        while chain[-1] != start:
            here = steps[chain[-1]]
            chain.append(next(name for name in self.inputs(chain[-1]) if steps.get(name) == here - 1))
        return chain[::-1]

    def from_source(self, file: str, line: int) -> list[Node]:
        """Nodes that came from one line of the user's program; a file may be given by the end of its path."""
        return [
            node
            for node in self.graph.nodes
            if node.source is not None and node.source.line == line and node.source.file.endswith(file)
        ]

    @staticmethod
    def _reach(names: Iterable[str], step: Callable[[str], Iterable[str]], hops: int | None) -> dict[str, int]:
        distance = dict.fromkeys(names, 0)
        queue = deque(distance)
        while queue:
            name = queue.popleft()
            if hops is not None and distance[name] >= hops:
                continue
            for neighbour in step(name):
                if neighbour not in distance:
                    distance[neighbour] = distance[name] + 1
                    queue.append(neighbour)
        return distance
