"""A git-like gutter: one short string per node that shows, beside a list of nodes, where values come from and go to.

Each live value has a lane from the node that makes it to its last user. The work is linear in nodes and edges, because no row is
wider than ``lanes``; a value that finds no lane is counted at the row instead.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from fxscope.graph.arguments import node_refs
from fxscope.graph.records import Graph, Node

NODE, VERTICAL, HORIZONTAL = "●", "│", "─"
INPUT = "○"


def gutter(graph: Graph, lanes: int = 8, inputs: bool = False, nodes: Sequence[Node] | None = None) -> list[str]:
    """One cell per node, in order, each at most ``2 * lanes + 1`` characters wide but for the count of what has no lane.

    Args:
        graph: The graph.
        lanes: Most values shown at once; further ones are counted as ``+n``.
        inputs: Give placeholders and constants lanes too. They live long and would fill the gutter, so by default they do not.
        nodes: The rows, where they are not all the graph's nodes (a filtered view): edges between other nodes are left out.

    Returns:
        Strings such as ``│ ●─╯``: ``●`` the node, ``╯`` and ``╰`` a value's last use here, ``┤`` and ``├`` one of several.
    """
    rows = graph.nodes if nodes is None else list(nodes)
    shown = {node.name for node in rows if inputs or node.op not in ("placeholder", "get_attr")}
    reads = [[name for name in dict.fromkeys(node_refs(node)) if name in shown] for node in rows]
    last: dict[str, int] = {}
    for row, names in enumerate(reads):
        last.update(dict.fromkeys(names, row))
    lane_of: dict[str, int] = {}
    occupied: list[bool] = [False] * lanes
    free = list(range(lanes))
    result: list[str] = []
    for row, node in enumerate(rows):
        if node.name not in shown:
            result.append(_plain(occupied, INPUT if node.op != "output" else NODE))
            continue
        operands = [lane_of[name] for name in reads[row] if name in lane_of]
        hidden = sum(1 for name in reads[row] if name not in lane_of)
        ending = {lane_of.pop(name) for name in reads[row] if last[name] == row and name in lane_of}
        # Stay in the lane of a value that ends here, so that chains are straight lines.
        lane = min(ending) if ending else None
        for used in ending:
            occupied[used] = False
            if used != lane:
                heapq.heappush(free, used)
        if lane is None and free:
            lane = heapq.heappop(free)
        lives = node.name in last
        result.append(_row(occupied, lane, operands, ending, hidden))
        if lane is not None:
            if lives:
                lane_of[node.name] = lane
                occupied[lane] = True
            else:
                heapq.heappush(free, lane)
    return result


def _plain(occupied: list[bool], mark: str) -> str:
    width = max((lane + 1 for lane, taken in enumerate(occupied) if taken), default=0)
    return "".join(f"{VERTICAL if occupied[lane] else ' '} " for lane in range(width)) + mark


def _row(occupied: list[bool], lane: int | None, operands: list[int], ending: set[int], hidden: int) -> str:
    ends = [*operands, *([lane] if lane is not None else [])]
    low, high = min(ends, default=0), max(ends, default=-1)
    width = max([high + 1, *(position + 1 for position, taken in enumerate(occupied) if taken)])
    cells: list[str] = []
    for position in range(width):
        cells.append(_cell(position, occupied, lane, operands, ending, low, high))
        joined = low <= position < high
        cells.append(HORIZONTAL if joined else " ")
    text = "".join(cells).rstrip()
    if lane is None:
        text = f"{text} {NODE}"  # every lane is taken: the node stands beside them
    return f"{text}+{hidden}" if hidden else text


def _cell(
    position: int, occupied: list[bool], lane: int | None, operands: list[int], ending: set[int], low: int, high: int
) -> str:
    if position == lane:
        return NODE
    if position in operands:
        if position in ending:
            return "╰" if position == low else "╯" if position == high else "┴"
        return "├" if position == low else "┤" if position == high else "┼"
    if occupied[position]:
        return VERTICAL
    return HORIZONTAL if low < position < high else " "
