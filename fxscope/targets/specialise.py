"""Graphs with symbolic sizes for targets that need concrete ones: compiled per set of sizes when they are called."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxscope.passes.aten import interpreter_module

if TYPE_CHECKING:
    from torch.fx import GraphModule

Key = tuple[Any, ...]


def specialisable(gm: GraphModule) -> bool:
    """Whether a graph has symbolic sizes and all of them are known once its inputs are.

    A symbolic float stays symbolic (a learning rate would make a program per value), and so does a graph with sizes that
    depend on data.
    """
    import torch
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    values = [node.meta.get("val") for node in gm.graph.nodes]
    inputs = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    if any(isinstance(value, torch.SymFloat | torch.SymBool) for value in inputs):
        return False
    kinds = (torch.Tensor, torch.SymInt)
    flat = [one for value in values for one in (value if isinstance(value, tuple | list) else (value,))]
    if any(isinstance(value, kinds) and free_unbacked_symbols(value) for value in flat):
        return False
    return any(
        isinstance(value, torch.SymInt)
        or (isinstance(value, torch.Tensor) and any(not isinstance(size, int) for size in value.shape))
        for value in inputs
    )


class Specialised:
    """Calls the program for the sizes at hand, making it where there is none.

    Args:
        gm: Functional ATen with symbolic sizes.
        build: Compiles a graph of concrete sizes.
        fallback: Makes what runs the symbolic graph itself, for calls after ``limit`` sets of sizes.
        limit: How many sets of sizes get a program of their own.
        name: The target, for the warning.
    """

    def __init__(
        self,
        gm: GraphModule,
        build: Callable[[GraphModule], Callable[..., Any]],
        fallback: Callable[[], Callable[..., Any]],
        *,
        limit: int,
        name: str,
    ) -> None:
        self.gm, self.build, self.limit, self.name = gm, build, limit, name
        self.programs: dict[Key, Callable[..., Any]] = {}
        self._make_fallback = fallback
        self._fallback: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        """Run once."""
        return self._program(inputs)(*inputs)

    def _program(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        key = sizes_of(inputs)
        with self._lock:
            found = self.programs.get(key)
            if found is not None:
                return found
            if len(self.programs) < self.limit:
                self.programs[key] = self.build(concrete(self.gm, inputs))
                return self.programs[key]
            if self._fallback is None:
                warnings.warn(
                    f"{self.name}: a graph of {len(self.gm.graph.nodes)} nodes with symbolic sizes came with more than "
                    f"{self.limit} sets of sizes; the further ones run eagerly",
                    stacklevel=2,
                )
                self._fallback = self._make_fallback()
            return self._fallback


def sizes_of(inputs: Sequence[Any]) -> Key:
    """What a program depends on: sizes and strides of tensors, and whole numbers."""
    import torch

    return tuple(
        (tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else int(value)
        for value in inputs
        if value is not None
    )


def concrete(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The graph with the sizes of these inputs; nothing runs on their data.

    Placeholders stay as they are, whole numbers among them without users; nodes keep their source lines.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    runner = interpreter_module(gm)
    with torch.no_grad(), preserve_node_meta():
        made = make_fx(lambda *flat: runner(*flat), tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    made.graph.eliminate_dead_code()
    made.recompile()
    for node, value in zip(made.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta.setdefault("val", value)
    return made
