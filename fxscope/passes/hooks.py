"""Forward hooks of a convolution that is folded: they are still called, and see the folded output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fxscope.errors import CheckFailed
from fxscope.passes.buffers import unchanged_buffers

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from fxscope.passes.module import Emitter


class CallHooks(torch.nn.Module):
    """Calls another module's forward hooks on a value that takes the place of its output, and returns that value."""

    def __init__(self, owner: torch.nn.Module, path: str) -> None:
        super().__init__()
        self.path = path
        self._owner = [owner]  # in a list, so that its parameters are not this module's

    def forward(self, given: Any, output: Any) -> Any:
        """Raises CheckFailed where a hook returns something: batch norm would have been applied to that."""
        if call_hooks(self._owner[0], (given,), output) is not None:
            raise CheckFailed(f"a forward hook of {self.path} returns a value; leave {self.path} unfolded")
        return output


def call_hooks(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """Call a module's forward hooks in order; what the last one that returned something returned, else None."""
    changed = None
    for key, hook in module._forward_hooks.items():
        extra: tuple[Any, ...] = ({},) if key in module._forward_hooks_with_kwargs else ()
        result = hook(module, args, *extra, output)
        if result is not None:
            changed = output = result
    return changed


def keep_hooks(emit: Emitter, path: str, given: Node, folded: Node) -> Node:
    """A call of the hooks of the module ``path``, on the folded output; the value to use in its place."""
    gm = emit.graph.owning_module
    assert gm is not None
    name = f"{path.replace('.', '_')}_hooks"
    while hasattr(gm, name):
        name += "_"
    gm.add_module(name, CallHooks(gm.get_submodule(path), path))
    with emit.graph.inserting_before(emit.before):
        call = emit.graph.call_module(name, (given, folded))
    call.meta = dict(folded.meta)
    return call


def changing_hooks(gm: GraphModule, inputs: Sequence[Any]) -> set[str]:
    """Modules whose forward hooks return something when the graph runs on probe inputs, so that they change the output."""
    found: set[str] = set()

    class Watch(torch.fx.Interpreter):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            child = self.fetch_attr(target)
            if not child._forward_hooks or child._forward_pre_hooks:
                return super().call_module(target, args, kwargs)
            output = child.forward(*args, **kwargs)
            changed = call_hooks(child, args, output)
            if changed is None:
                return output
            found.add(str(target))
            return changed

    given = [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    with torch.no_grad(), unchanged_buffers(gm):
        Watch(gm).run(*given)
    return found
