"""An island before it is planned: real sizes on every node, and ops that are two kernels written as two nodes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxscope.targets.triton.builder import POINTWISE
from fxscope.targets.triton.nodes import VIEWS, packet

aten = torch.ops.aten
MEAN, SUM = 1, 2  # torch's codes of a loss's reduction


def specialise(island: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """A copy of the island with ``meta["val"]`` for exactly these inputs, and losses split into rows and their sum.

    Args:
        island: Functional ATen.
        inputs: Real or fake tensors, or numbers, in placeholder order.
    """
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(island.graph, {}))
    module = GraphModule(island, graph)
    for node in list(module.graph.nodes):
        if node.target is aten.nll_loss_forward.default and node.args[3] in (MEAN, SUM):
            _split_loss(module, node)
        elif node.op == "call_function" and packet(node) in POINTWISE:
            _before_expand(module, node)
        elif node.target is aten.addmm.default:
            _bias_to_what_follows(module, node)
    module.graph.eliminate_dead_code()
    module.recompile()
    mode = next((x.fake_mode for x in inputs if isinstance(x, FakeTensor)), None) or FakeTensorMode()
    fake = [
        mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor) else x
        for x in inputs
    ]
    with torch.no_grad():
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*fake)
    for node in module.graph.nodes:
        if node.op == "placeholder" and "val" not in node.meta:
            node.meta["val"] = fake[[n for n in module.graph.nodes if n.op == "placeholder"].index(node)]
    return module


def _before_expand(module: GraphModule, node: Node) -> None:
    """op(expand(x), number) becomes expand(op(x, number)): a mean's gradient is one number per row until it meets the row."""
    tensors = node.all_input_nodes
    if len(tensors) != 1 or tensors[0].target is not aten.expand.default:
        return
    if any(user.op != "call_function" or packet(user) in VIEWS for user in node.users):
        return  # somebody sees its strides
    small: Any = tensors[0].args[0]
    with module.graph.inserting_before(node):
        new = module.graph.node_copy(node, lambda n: small if n is tensors[0] else n)
        wide = module.graph.call_function(aten.expand.default, (new, *tensors[0].args[1:]))
    new.meta.pop("val", None)
    wide.meta = dict(tensors[0].meta)
    node.replace_all_uses_with(wide)
    module.graph.erase_node(node)


def _bias_to_what_follows(module: GraphModule, node: Node) -> None:
    """addmm(bias, a, b) becomes mm(a, b) + bias where a pointwise kernel follows anyway: it adds the bias for nothing.

    In float32 alone: there the product is rounded no coarser than the sum.
    """
    bias: Any = node.args[0]
    value = bias.meta.get("val")
    if node.kwargs or value is None or value.dtype != torch.float32 or value.dim() != 1 or not node.users:
        return
    if any(user.op != "call_function" or packet(user) not in POINTWISE for user in node.users):
        return
    with module.graph.inserting_before(node):
        product = module.graph.call_function(aten.mm.default, node.args[1:])
    product.meta = {k: v for k, v in node.meta.items() if k != "val"}
    node.target, node.args = aten.add.Tensor, (product, bias)  # in place: what is shown goes by the node's name


def _split_loss(module: GraphModule, node: Node) -> None:
    """nll_loss with a mean or sum: the rows' losses, then a sum over the rows."""
    graph = module.graph
    x, target, weight, reduction, ignore = node.args
    dtype = node.meta["val"][0].dtype if "val" in node.meta else None
    with graph.inserting_before(node):
        rows = graph.call_function(aten.nll_loss_forward.default, (x, target, weight, 0, ignore))
        losses = graph.call_function(operator.getitem, (rows, 0))
        kept = graph.call_function(aten.ne.Scalar, (target, ignore))
        count = graph.call_function(aten.sum.dim_IntList, (kept, [0], False), {"dtype": dtype or torch.float32})
        total = graph.call_function(aten.sum.dim_IntList, (losses, [0], False))
        loss = graph.call_function(aten.div.Tensor, (total, count)) if reduction == MEAN else total
    for new in (rows, losses, kept, count, total, loss):
        new.meta = {k: v for k, v in node.meta.items() if k in ("stack_trace", "nn_module_stack")}
    for user in list(node.users):
        user.replace_all_uses_with(loss if user.args[1] == 0 else count)  # users of a tuple are getitems
        graph.erase_node(user)
    graph.erase_node(node)
