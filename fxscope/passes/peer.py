"""PyTorch's own partitioner on the same graph, time-boxed: it takes minutes where phases take milliseconds."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import described
from fxscope.passes.partition import Supports
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


class Peer(msgspec.Struct, kw_only=True):
    """What CapabilityBasedPartitioner made of a graph.

    Attributes:
        islands: Node names by island, null where it did not finish or raised.
        seconds: That it took, or was given.
        text: One sentence.
    """

    islands: list[list[str]] | None
    seconds: float
    text: str


class _TimeIsUpError(BaseException):
    """Raised inside the peer's thread; no ``except Exception`` of its code catches it."""


def capability_based(gm: GraphModule, supports: Supports, seconds: float = 10.0) -> Peer:
    """Run the peer in a thread, and stop it when its time is up.

    Args:
        gm: The graph; the peer only reads it.
        supports: As for ``partition``. The peer does not let getitem follow its producer, and counts as supported only what is
            said to be.
        seconds: What it is given.
    """
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: Node) -> bool:
            return node.op == "call_function" and not supports(node)

    found: list[Any] = []

    def work() -> None:
        try:
            partitioner = CapabilityBasedPartitioner(gm, Support(), allows_single_node_partition=True)
            found.append([[node.name for node in part.nodes] for part in partitioner.propose_partitions()])
        except _TimeIsUpError:
            return
        except Exception as error:  # noqa: BLE001 - that the peer raises is the finding
            found.append(described(error))

    thread = threading.Thread(target=work, daemon=True)
    begun = time.perf_counter()
    thread.start()
    thread.join(seconds)
    took = time.perf_counter() - begun
    until = time.perf_counter() + 10
    while thread.is_alive() and time.perf_counter() < until:
        # The only way to stop Python code in another thread: an exception at its next bytecode. Again, because one that comes
        # inside a finalizer or a callback of the garbage collector is swallowed there.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TimeIsUpError))
        thread.join(0.2)
    if not found:
        return Peer(islands=None, seconds=took, text=f"CapabilityBasedPartitioner: not finished after {took:.1f} s")
    if isinstance(found[0], str):
        return Peer(islands=None, seconds=took, text=f"CapabilityBasedPartitioner raised {found[0]}")
    islands = count(len(found[0]), "island")
    return Peer(islands=found[0], seconds=took, text=f"CapabilityBasedPartitioner: {islands} in {took * 1e3:.0f} ms")
