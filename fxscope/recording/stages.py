"""Which stage of a compile a printed graph or code belongs to.

Forward and backward share a compile id, and Inductor's events do not say which of them they belong to, so their order does:
after an AOT graph the first Inductor compile is the forward, the second the backward; ``fx_graph_cache_*`` ends each. What
comes after the frame's metrics is a backward, compiled when it first ran. Cache hits leave stages out, but not their order.
Where one frame has several AOT graphs (DDP splits it), autograd runs their backwards, and so compiles them, from the last
to the first.
"""

from __future__ import annotations

# Events, and artifacts by name, that carry a graph or code of a known stage.
_FIXED = {
    "dynamo_output_graph": "dynamo",
    "inductor_pre_grad_graph": "pre_grad",
    "after_pre_grad_graph": "pre_grad",
    "before_pre_grad_graph": "pre_grad",
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
}
_INDUCTOR = {
    "inductor_post_grad_graph": "post_grad",
    "after_post_grad_graph": "post_grad",  # its name in 2025
    "inductor_output_code": "code",
    "inductor_aot_wrapper_code": "code",  # AOTInductor's, in C++
}
_ENDS = ("fx_graph_cache_miss", "fx_graph_cache_hit", "fx_graph_cache_bypass")


class StageOrder:
    """Tells the stage of each event of one compile, given in the order of the log."""

    __slots__ = ("_counts", "_done", "_frame_done", "_position", "_seen", "_unit", "_waiting")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._waiting: list[int] = []  # AOT graphs whose backward Inductor has not compiled
        self._unit = 0  # the AOT graph that is compiled now
        self._position = 0  # Inductor compiles begun since the last AOT graph, minus one
        self._done = False  # the current one has ended
        self._seen: dict[str, str] = {}  # what the current one has printed, and under which name
        self._frame_done = False

    def frame_done(self) -> None:
        """The frame's metrics were logged: from now on only a lazy backward compiles."""
        self._frame_done = self._done = True

    def place(self, name: str) -> tuple[str, int] | None:
        """Stage and index in it of the event or artifact ``name``; None where it carries no graph."""
        if fixed := _FIXED.get(name):
            return self._aot(fixed)
        if name in _ENDS:
            self._done = True
            return None
        kind = _INDUCTOR.get(name)
        if kind is None:
            return None
        if not self._done and self._seen.get(kind, name) != name:
            return None  # the same graph under its other name
        if self._done or kind in self._seen:
            self._next_compile()
        self._seen[kind] = name
        backward = self._frame_done or (self._position > 0 and "backward" in self._counts)
        return f"{'backward' if backward else 'forward'}.{kind}", self._unit

    def again(self, stage: str) -> None:
        """The last text of a stage took the place of the one before it."""
        self._counts[stage] -= 1

    def _aot(self, stage: str) -> tuple[str, int]:
        index = self._counts.get(stage, -1) + 1
        self._counts[stage] = index
        if stage in ("forward", "inference"):
            self._unit = self._counts.get("forward", -1) + self._counts.get("inference", -1) + 1
            self._position, self._done = 0, False
            self._seen.clear()
        elif stage == "backward":
            self._waiting.append(self._unit)
        return stage, index

    def _next_compile(self) -> None:
        self._position += 1
        self._done = False
        self._seen.clear()
        if self._frame_done:
            self._unit = self._waiting.pop() if self._waiting else self._unit
        elif self._unit in self._waiting:
            self._waiting.remove(self._unit)
