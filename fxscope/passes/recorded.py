"""A recorded graph, rebuilt to run here, with inputs made from the log's descriptions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxscope.errors import FxscopeError, UsageError
from fxscope.recording.lookup import parse_stage

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import GraphModule, Node

    from fxscope.graph.records import Graph
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile


@dataclass(kw_only=True, eq=False)
class Recorded:
    """One stage of one compile.

    Attributes:
        id: The compile id, as ``fxscope report`` prints it.
        module: Runs ``inputs``.
        inputs: In placeholder order: the program's own values of the first call where the recording kept them
            (``--save-tensors``), else made from the descriptions in the log, seeded.
        notes: What differs from the recorded graph, one line each.
    """

    id: str
    stage: str
    graph: Graph
    module: GraphModule
    inputs: list[Any]
    notes: list[str] = field(default_factory=list)


def load(
    path: str | Path,
    graph_id: str | None = None,
    stage: str = "dynamo",
    *,
    device: str = "cpu",
    seed: int = 0,
    requires_grad: bool = False,
    bind: bool = False,
) -> Recorded:
    """Rebuild one graph of a recording.

    Args:
        path: A recording, a folder of TORCH_TRACE logs, or one log.
        graph_id: As ``--graph`` takes it; None where the recording has one compile with a graph only.
        stage: One of recording.records.STAGES that holds a graph; ``forward#1`` is the second of several of one stage.
        device: Where it will run.
        seed: Of the inputs.
        requires_grad: Let parameters require gradients.
        bind: Make parameters and buffers attributes of the module instead of inputs, without gradients.

    Raises:
        UsageError: No such compile or stage, or the graph cannot be rebuilt; the message names what stands in the way.
        UnreadableError: The path is no recording.
    """
    from fxscope.graph.inputs import make_inputs
    from fxscope.graph.load import load_graph, recorded_symbols
    from fxscope.graph.rebuild import rebuild
    from fxscope.recording.recording import open_recording

    recording = open_recording(path)
    name, index = parse_stage(stage)
    if graph_id is None:
        graphs = [item for item in recording.compiles if name in item.stages]
        if len(graphs) != 1:
            listed = ", ".join(item.key for item in graphs[:8]) + (", ..." if len(graphs) > 8 else "")
            raise UsageError(
                f"{path} has {len(graphs)} graphs of stage {stage}; name one with --graph: {listed or 'none'}"
            )
        graph_id = graphs[0].key
    compile_ = recording.find(graph_id)
    if name.endswith(".code"):
        raise UsageError(f"stage {name} is generated code, not a graph; one of {', '.join(compile_.stages)}")
    graph = load_graph(recording, compile_, name, index)
    graph.name = compile_.key
    symbols = recorded_symbols(recording, compile_)
    tensors, constants, notes = _kept(recording, compile_, graph)
    module = rebuild(graph, device=device, symbols=symbols, constants=constants)
    inputs = make_inputs(graph, device=device, symbols=symbols, seed=seed, requires_grad=requires_grad, tensors=tensors)
    if bind:
        module, inputs = bind_parameters(module, inputs)
    return Recorded(
        id=compile_.key,
        stage=stage,
        graph=graph,
        module=module,
        inputs=inputs,
        notes=[*module.meta.get("fxscope.notes", []), *notes],
    )


def _kept(recording: Recording, compile_: Compile, graph: Graph) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Recorded inputs and constants of a graph, and a note that says how many of its inputs are the program's own."""
    from fxscope.graph.recorded import recorded_tensors

    try:
        tensors, constants = recorded_tensors(recording, compile_)
    except FxscopeError as error:  # the descriptions in the log still do
        return {}, {}, [f"{error}; inputs are made up"]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    own = [node for node in placeholders if {node.name, node.target, node.original} & set(tensors)]
    if not own:
        return {}, constants, []
    count = "" if len(own) == len(placeholders) else f"{len(own)} of {len(placeholders)} "
    return tensors, constants, [f"{count}inputs are the program's own, of its first call (--save-tensors)"]


def bind_parameters(gm: GraphModule, inputs: list[Any]) -> tuple[GraphModule, list[Any]]:
    """The module with its parameters and buffers as attributes, and the inputs that are left.

    Which placeholders are parameters is what the log says of them (``role``). They get the names that they have in the program's
    ``state_dict``, as far as the log knows those.
    """
    from fxscope.passes.module import clone

    made = clone(gm)
    left = []
    for node, item in zip(made.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if getattr(node.meta.get("fxscope"), "role", None) not in ("parameter", "buffer"):
            left.append(item)
            continue
        name = _bind(made, node, item.detach())
        with made.graph.inserting_before(node):
            attribute = made.graph.get_attr(name)
        attribute.meta = dict(node.meta)
        node.replace_all_uses_with(attribute)
        made.graph.erase_node(node)
    nodes = made.graph.find_nodes(op="placeholder")
    for node in reversed(nodes):  # placeholders first, as a signature needs
        made.graph._root.append(node)
    made.graph.lint()
    made.recompile()
    return made, left


def _bind(gm: GraphModule, node: Node, tensor: Any) -> str:
    """Make a tensor an attribute, and say where: ``L['self'].blocks.0.norm.weight`` becomes ``blocks.0.norm.weight``."""
    import torch

    original = getattr(node.meta.get("fxscope"), "original", None) or ""
    found = re.fullmatch(r"[LG]\['\w+'\]\.(\w+(?:\.\w+)*)", original)
    parts = found.group(1).split(".") if found else []
    owner: Any = gm
    for at, part in enumerate(parts):
        inner = getattr(owner, part, None)
        if at + 1 == len(parts) and inner is None:
            owner.register_buffer(part, tensor)
            return ".".join(parts)
        if inner is None:
            inner = torch.nn.Module()
            owner.add_module(part, inner)
        if type(inner) is not torch.nn.Module:  # the name is taken, by a method or by another parameter
            break
        owner = inner
    name = f"bound_{node.name}"
    gm.register_buffer(name, tensor)
    return name
