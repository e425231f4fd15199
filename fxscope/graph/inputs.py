"""Inputs for a rebuilt graph, made from the descriptions in the log: seeded, and within the range that their use needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fxscope.errors import UsageError
from fxscope.graph.ranges import Uses, sizes
from fxscope.graph.records import Graph, Node, Ref, TensorMeta
from fxscope.graph.symbols import Number, evaluate, symbol_values
from fxscope.graph.tensors import make_tensor


def make_inputs(
    graph: Graph,
    *,
    device: str = "cpu",
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    requires_grad: bool = False,
    tensors: Mapping[str, Any] | None = None,
) -> list[Any]:
    """One value per placeholder, in order.

    Integers that look something up (embedding, gather, index_select, class labels) stay below the size of what they look
    into, also through views and casts; what goes through a square root or a logarithm, and the variance of a batch
    normalisation, is positive; weights are scaled by their fan-in so that values neither vanish nor explode.

    Args:
        graph: From ``parse_graph``.
        device: Where the tensors go (accelerators of the log become it).
        symbols: Values of symbolic sizes; by default those of ``symbol_values``.
        seed: Same seed, same values.
        requires_grad: Let floating-point parameters (or, where there are none, inputs) require gradients.
        tensors: Recorded values by name of the placeholder, its argument or its name in the program; they go first.

    Raises:
        UsageError: The log describes an input too little; the input is named.
    """
    from fxscope.graph.rebuild import Devices

    values = symbol_values(graph, symbols)
    devices = Devices(graph, device)
    given = dict(tensors or {})
    analysis = Uses(graph, values)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    on_host = _read_on_host(graph)
    has_parameters = any(node.role == "parameter" for node in placeholders)
    result: list[Any] = []
    for position, node in enumerate(placeholders):
        known = next((given[key] for key in (node.name, node.target, node.original) if key in given), None)
        if known is not None or isinstance(node.meta, TensorMeta):
            made: Any
            kind = ((isinstance(node.meta, TensorMeta) and node.meta.device) or "cpu").split(":")[0]
            place = torch.device("cpu") if node.name in on_host else devices.of(kind)
            if known is not None:
                made = _as_described(known, node, values, place)
            else:
                assert isinstance(node.meta, TensorMeta)
                generator = torch.Generator().manual_seed(seed * 1_000_003 + position)
                made = make_tensor(node.meta, values, place, generator, analysis.range_of(node))
            wants = requires_grad and (node.role == "parameter" if has_parameters else node.role == "input")
            if wants and isinstance(made, torch.Tensor) and (made.is_floating_point() or made.is_complex()):
                made = made.detach().requires_grad_()
            result.append(made)
        elif node.symbol is not None or node.role == "symbol":
            result.append(evaluate(node.symbol or node.name, values))
        elif node.args:
            result.append(node.args[0])
        elif not node.users:
            result.append(None)
        else:
            raise UsageError(
                f"cannot make the input {node.name} of graph '{graph.name}': the log describes neither its shape nor its "
                "value (logs of older torch versions lack this); record again, or with --save-tensors"
            )
    return result


def _read_on_host(graph: Graph) -> set[str]:
    """Inputs that are the seed and offset of an attention's dropout: its backward reads them on the host and dies of a GPU's address.

    Outside of a CUDA graph's capture the operator makes them on the CPU, whatever device the log has for them.
    """
    found = set()
    for node in graph.nodes:
        if "_scaled_dot_product_efficient_attention_backward" in str(node.target):
            found |= {arg.node for arg in node.args[7:9] if isinstance(arg, Ref)}
    return found


def _as_described(known: Any, node: Node, values: Mapping[str, Number], place: torch.device) -> Any:
    """A recorded value with the device and strides of the log (a file of tensors keeps neither); numbers come as numbers."""
    if not isinstance(known, torch.Tensor):
        return known
    if not isinstance(node.meta, TensorMeta):
        return known.item() if known.dim() == 0 else known
    known = known.to(place)
    stride = None if node.meta.stride is None else sizes(node.meta.stride, values)
    if stride is None or list(known.shape) != list(sizes(node.meta.shape, values)) or stride == list(known.stride()):
        return known
    laid_out = torch.empty_strided(known.shape, stride, dtype=known.dtype, device=known.device)
    overlapping = any(step == 0 and size > 1 for size, step in zip(known.shape, stride, strict=True))
    return known if overlapping else laid_out.copy_(known)


def backward_inputs(
    forward: Graph, outputs: Sequence[Any], backward: Graph, *, symbols: Mapping[str, int] | None = None, seed: int = 0
) -> list[Any]:
    """Inputs for a backward graph: what its forward graph saved, by name, and made-up tangents.

    Values made up one by one do not fit together (a standard deviation of a tensor that has another one); these do.

    Args:
        forward: The forward graph of the same compile.
        outputs: Its outputs, from ``execute.run``.
        backward: The backward graph.
        symbols: As for ``make_inputs``.
        seed: Seeds the tangents.
    """
    result = forward.nodes[-1].args[0] if forward.nodes else ()
    names = result if isinstance(result, (list, tuple)) else [result]
    saved = {name.node: value for name, value in zip(names, outputs, strict=True) if isinstance(name, Ref)}
    device = next((str(value.device) for value in outputs if isinstance(value, torch.Tensor)), "cpu")
    return make_inputs(backward, device=device, symbols=symbols, seed=seed, tensors=saved)
