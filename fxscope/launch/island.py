"""One island of a graph with the inputs it gets when the whole graph runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.passes.aten import to_aten
from fxscope.passes.partition import partition
from fxscope.passes.split import boundary, extract
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from fxscope.targets.target import Target


def cut_island(
    gm: GraphModule, inputs: Sequence[Any], target: Target, index: int, *, decompositions: str = "inductor"
) -> tuple[GraphModule, list[Any]]:
    """Island ``index`` of a target's partition, and real inputs for it.

    Raises:
        UsageError: There is no such island; the message says which there are.
    """
    import torch

    aten = to_aten(gm, inputs, decompositions=decompositions)
    islands = [item for item in partition(aten, target.supports).islands if item.dropped is None]
    island = next((item for item in islands if item.index == index), None)
    if island is None:
        listed = ", ".join(f"{item.index} ({count(len(item.nodes), 'node')})" for item in islands[:12])
        raise UsageError(
            f"no island {index} of {target.name} (the last executor says whose islands are counted); there are: {listed or 'none'}"
        )
    wanted = set(boundary(island.nodes)[0])
    kept: dict[Node, Any] = {}

    class Keep(torch.fx.Interpreter):
        def run_node(self, node: Node) -> Any:
            result = super().run_node(node)
            if node in wanted:
                kept[node] = result.detach().clone() if isinstance(result, torch.Tensor) else result
            return result

    given = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    with torch.no_grad():
        Keep(aten).run(*given)
    made = extract(aten, island.nodes)
    names = {node.name: node for node in wanted}
    return made, [kept[names[node.name]] for node in made.graph.find_nodes(op="placeholder")]
