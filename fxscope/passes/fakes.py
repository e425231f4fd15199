"""Shapes by fake tensors, and the faults of fake kernels: missing ones, and ones that disagree with the real kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxscope.errors import described, first_line
from fxscope.passes.analysis import categorise
from fxscope.passes.fx_records import source_site, target_text
from fxscope.passes.order import is_compute

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def propagate_named(gm: GraphModule, inputs: Sequence[Any]) -> list[str]:
    """Set shapes by fake tensors; where a node cannot be faked, one line that names it and its line instead of an error."""
    import torch
    from torch._subclasses import FakeTensor, FakeTensorMode

    mode = next((item.fake_mode for item in inputs if isinstance(item, FakeTensor)), None) or FakeTensorMode()
    problems: list[str] = []
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)

    class Prop(torch.fx.Interpreter):
        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            child = self.fetch_attr(target)
            # Batch norm in evaluation keeps shape, dtype and layout; its fake kernel takes it apart, which costs 20 times as much.
            if type(child) in norms and not child.training and child.running_mean is not None and not kwargs:
                return torch.empty_like(args[0])
            return super().call_module(target, args, kwargs)

        def run_node(self, node: Node) -> Any:
            try:
                result = super().run_node(node)
            except Exception as error:
                where = source_site(node)
                problems.append(
                    f"{node.name} ({target_text(node)}){f' at {where}' if where else ''} cannot run on fake tensors: "
                    + first_line(error)
                )
                raise
            if isinstance(result, torch.Tensor | tuple | list | torch.SymInt | torch.SymFloat | torch.SymBool):
                node.meta["val"] = result
            return result

    allow, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with mode, torch.no_grad():
            fakes = [
                mode.from_tensor(item, static_shapes=True)
                if isinstance(item, torch.Tensor) and not isinstance(item, FakeTensor)
                else item
                for item in inputs
            ]
            Prop(gm).run(*fakes)
    except Exception as error:  # noqa: BLE001 - named in problems; the rest of the graph has no shapes
        if not problems:
            problems.append(f"shapes cannot be propagated: {described(error)}")
    finally:
        mode.allow_non_fake_inputs = allow
    return problems


def fake_mismatches(gm: GraphModule, inputs: Sequence[Any]) -> list[str]:
    """Custom ops whose fake kernel says something else than the real one does; needs real inputs.

    Only a graph with custom ops is run.
    """
    import torch

    custom = [node for node in gm.graph.nodes if is_compute(node) and categorise(node) == "custom"]
    if not custom or any(isinstance(item, torch._subclasses.FakeTensor) for item in inputs):
        return []
    problems: list[str] = []

    class Check(torch.fx.Interpreter):
        def run_node(self, node: Node) -> Any:
            result = super().run_node(node)
            fake = node.meta.get("val")
            if node in custom and isinstance(result, torch.Tensor) and isinstance(fake, torch.Tensor):
                for what in ("shape", "dtype", "device"):
                    real, said = getattr(result, what), getattr(fake, what)
                    if real != said:
                        problems.append(
                            f"{node.name} ({target_text(node)}): the fake kernel says {what} {said}, the real one {real}"
                        )
                if result.shape == fake.shape and result.stride() != fake.stride():
                    problems.append(
                        f"{node.name} ({target_text(node)}): the fake kernel says strides {fake.stride()}, the real one {result.stride()}"
                    )
            return result

    with torch.no_grad():
        Check(gm).run(*[item.clone() if isinstance(item, torch.Tensor) else item for item in inputs])
    return problems
