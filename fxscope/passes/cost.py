"""What a graph would cost where it is, so that an island is worth its launch and its transfers or is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fxscope.passes.analysis import node_bytes, node_flops
from fxscope.passes.no_ops import is_no_op
from fxscope.passes.order import is_compute
from fxscope.passes.partition import Benefit

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.targets.target import Target


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Ceilings of the machine that runs what the target does not.

    Attributes:
        bandwidth: Bytes a second that a copy reads and writes together.
        flops: Floating-point operations a second of a large matrix product.
        launch: Seconds that one eager op costs beside its work.
        origin: ``measured`` (launch.ceilings) or where the figures come from.
    """

    bandwidth: float
    flops: float
    launch: float
    origin: str


# A laptop core or two; measured figures take its place wherever somebody measured.
ASSUMED = Machine(bandwidth=20e9, flops=100e9, launch=4e-6, origin="assumed: 20 GB/s, 100 GFLOP/s, 4 µs a launch")


def eager_seconds(gm: GraphModule, machine: Machine = ASSUMED) -> float:
    """Modelled time of running every node by itself: the larger of its bytes and its flops, and a launch each."""
    total = 0.0
    for node in gm.graph.nodes:
        if is_compute(node) and not is_no_op(node):
            moved = sum(node_bytes(node))
            total += machine.launch + max(moved / machine.bandwidth, node_flops(node) / machine.flops)
    return total


def benefit_of(target: Target, machine: Machine = ASSUMED) -> Benefit:
    """Modelled seconds an island saves on a target over eager, transfers included; None where the target has no model."""

    def benefit(island: GraphModule) -> float | None:
        cost = target.cost(island)
        return None if cost is None else eager_seconds(island, machine) - cost.seconds

    return benefit
