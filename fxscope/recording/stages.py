"""Which stage of a compile a printed graph or code belongs to.

Forward and backward share a compile id, and Inductor's events do not say which of them they belong to, so their order does:
after an AOT graph the first Inductor compile is the forward, the second the backward; ``fx_graph_cache_*`` ends each. What
comes after the frame's metrics is a backward, compiled when it first ran. Cache hits leave stages out, but not their order.
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
}
_ENDS = ("fx_graph_cache_miss", "fx_graph_cache_hit", "fx_graph_cache_bypass")


class StageOrder:
    """Tells the stage of each event of one compile, given in the order of the log."""

    __slots__ = ("_backward_graphs", "_done", "_frame_done", "_position", "_seen")

    def __init__(self) -> None:
        self._position = 0  # Inductor compiles begun since the last AOT graph, minus one
        self._done = False  # the current one has ended
        self._seen: dict[str, str] = {}  # what the current one has printed, and under which name
        self._frame_done = False
        self._backward_graphs = 0

    def frame_done(self) -> None:
        """The frame's metrics were logged: from now on only a lazy backward compiles."""
        self._frame_done = True

    def place(self, name: str) -> str | None:
        """Stage of the event or artifact ``name``; None where it carries no graph."""
        if fixed := _FIXED.get(name):
            if fixed in ("forward", "inference"):
                self._position, self._done = 0, False
                self._seen.clear()
            elif fixed == "backward":
                self._backward_graphs += 1
            return fixed
        if name in _ENDS:
            self._done = True
            return None
        kind = _INDUCTOR.get(name)
        if kind is None:
            return None
        if not self._done and self._seen.get(kind, name) != name:
            return None  # the same graph under its other name
        if self._done or kind in self._seen:
            self._position += 1
            self._done = False
            self._seen.clear()
        self._seen[kind] = name
        backward = self._frame_done or (self._position > 0 and self._backward_graphs > 0)
        return f"{'backward' if backward else 'forward'}.{kind}"
