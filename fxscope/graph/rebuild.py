"""A parsed graph made into a ``torch.fx.GraphModule`` again, so that it can run, be compiled, be stepped through passes.

A graph may come from a stranger's log, so nothing in it is evaluated or imported: every function, method, attribute, dtype and
device is looked up in a list (``fxscope.graph.callables``), and what is not there is refused by name. torch.fx prints a graph
as source and executes that source, so every name that gets into it is checked to be a plain name first.
"""

from __future__ import annotations

import builtins
import importlib
import math
import operator
import platform
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxscope.errors import MissingError, UsageError
from fxscope.graph import callables
from fxscope.graph.ambient import ambient_autocast
from fxscope.graph.arguments import map_arg
from fxscope.graph.records import Graph, Node, Ref, Symbolic, TensorMeta
from fxscope.graph.standins import GUARDS, STAND_INS
from fxscope.graph.symbols import Number, evaluate, metas, symbol_values
from fxscope.graph.tensors import make_tensor

_PYTHON = {"operator": operator, "builtins": builtins, "math": math}
_NUMBERS = {"inf": math.inf, "nan": math.nan, "-inf": -math.inf, "-nan": math.nan}


def rebuild(
    graph: Graph,
    *,
    device: str = "cpu",
    symbols: Mapping[str, int] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> torch.fx.GraphModule:
    """Make a parsed graph runnable.

    Args:
        graph: From ``parse_graph``.
        device: Where it shall run; every accelerator that the log names becomes this device. With ``cpu`` all does; with
            another one, what was on the CPU stays there unless the whole graph was.
        symbols: Values of symbolic sizes that stand in arguments (by default those of ``symbol_values``).
        constants: Tensors that the graph prints only by name, by that name; a missing one is made from its description.

    Returns:
        The module. ``node.meta["fxscope"]`` is the record a node came from, ``node.meta["stack_trace"]`` its source line in
        torch's own form; ``gm.meta["fxscope.notes"]`` says what differs from the recorded graph, and
        ``gm.meta["fxscope.autocast"]``, where it is there, device type and dtype of the autocast that the graph ran under.

    Raises:
        UsageError: The graph calls something that is not in the list, or was not parsed whole; it is named.
        MissingError: This torch or Python lacks a function that the graph calls.
    """
    values = symbol_values(graph, symbols)
    return _Builder(graph, Devices(graph, device), values, dict(constants or {})).build()


class Devices:
    """Which device takes the place of a recorded one."""

    def __init__(self, graph: Graph, device: str) -> None:
        self.target = torch.device(device)
        kinds = [meta.device.split(":")[0] for node in graph.nodes for meta in metas(node) if meta.device]
        accelerators = [kind for kind in kinds if kind not in ("cpu", "meta")]
        self.cpu_stays = self.target.type != "cpu" and bool(accelerators)

    def of(self, kind: str) -> torch.device:
        """The device that replaces one of this type."""
        if kind == "meta" or (kind == "cpu" and self.cpu_stays):
            return torch.device(kind)
        return self.target


def resolve(target: str) -> Callable[..., Any]:
    """The function behind a printed target.

    Raises:
        UsageError: It is not in the list.
        MissingError: This version of torch or Python has no such function.
    """
    group, name = callables.group_of(target)
    if group in _PYTHON:
        if not hasattr(_PYTHON[group], name):
            raise MissingError(f"Python {platform.python_version()} has no {target}, which the graph calls")
        return getattr(_PYTHON[group], name)
    if group == "torch.ops.prims":
        importlib.import_module("torch._inductor.inductor_prims")  # registers the prims that Inductor adds
    owner: Any = torch
    for part in group.split(".")[1:]:
        owner = getattr(owner, part)
    packet, _, overload = name.partition(".")
    if target in GUARDS:
        return GUARDS[target]
    try:
        found = getattr(owner, packet)
        if overload:
            if overload not in found.overloads():
                raise AttributeError(overload)
            found = getattr(found, overload)
    except AttributeError:
        raise MissingError(f"this torch ({torch.__version__}) has no {target}, which the graph calls") from None
    function: Callable[..., Any] = found
    return function


class _Builder:
    """Builds one graph and the graphs nested in it."""

    def __init__(
        self, graph: Graph, devices: Devices, values: Mapping[str, Number], constants: dict[str, torch.Tensor]
    ) -> None:
        self.graph = graph
        self.devices = devices
        self.values = values
        self.constants = constants
        self.root = torch.nn.Module()
        self.result = torch.fx.Graph()
        self.nodes: dict[str, torch.fx.Node | None] = {}
        self.notes: list[str] = []

    def build(self) -> torch.fx.GraphModule:
        """Check and add every node.

        Raises:
            UsageError: The text was not understood, or a node calls what is not in the list of callables.
        """
        if self.graph.problems:
            raise UsageError(f"cannot rebuild the graph '{self.graph.name}': {self.graph.problems[0]}")
        for node in self.graph.nodes:
            made = self._add(node)
            if made is not None:
                made.meta["fxscope"] = node
                if node.source is not None:
                    code = " ".join(node.source.code.split())
                    where = f'File "{node.source.file}", line {node.source.line}, in {node.source.function or "?"}'
                    made.meta["stack_trace"] = f"  {' '.join(where.split())}\n    {code}"
            self.nodes[node.name] = made
        name = re.sub(r"\W", "_", self.graph.name) or "GraphModule"
        module = torch.fx.GraphModule(self.root, self.result, name if name[0].isalpha() else "GraphModule")
        module.meta["fxscope.notes"] = self.notes
        around = ambient_autocast(self.graph)
        if around is not None:
            module.meta["fxscope.autocast"] = (self.devices.of(around[0]).type, around[1])
            self.notes.append(f"ran under autocast to {around[1]}; execute.run enters it again")
        return module

    def _add(self, node: Node) -> torch.fx.Node | None:
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op == "output":
            return self.result.output(self._arg(node.args[0]))
        if node.op == "get_attr":
            self._attribute(node)
            return self.result.create_node("get_attr", node.target, name=node.name)
        if node.op == "call_module":
            self._attribute(node)
            args, kwargs = self._arguments(node)
            return self.result.create_node("call_module", node.target, args, kwargs, node.name)
        if node.op == "call_method":
            return self._method(node)
        return self._function(node)

    def _placeholder(self, node: Node) -> torch.fx.Node:
        if node.target.startswith("*"):
            raise UsageError(
                f"cannot rebuild the graph '{self.graph.name}': its input {node.target} is a list of inputs"
            )
        default = self._arg(node.args[0]) if node.args else None
        args = () if default is None else (default,)
        made = self.result.create_node("placeholder", self._plain(node.name), args, name=node.name)
        made.target = made.name
        return made

    def _method(self, node: Node) -> torch.fx.Node:
        name = callables.check_method(node.target)
        args, kwargs = self._arguments(node)
        if name == "cuda":
            name, args, kwargs = "to", (args[0], self.devices.of("cuda")), {}
        elif name == "cpu" and not self.devices.cpu_stays:
            name, args = "to", (args[0], self.devices.of("cpu"))
        return self.result.create_node("call_method", name, args, kwargs, node.name)

    def _function(self, node: Node) -> torch.fx.Node | None:
        target = node.target
        if target in callables.NO_OPS:
            self.notes.append(f"{node.name}: {target} left out, it only steers torch")
            return None
        args, kwargs = self._arguments(node)
        function: Callable[..., Any]
        if target == "getattr":
            if len(args) not in (2, 3) or kwargs or not isinstance(args[1], str):
                raise callables.refused("getattr with a computed name")
            callables.check_property(args[1])
            function = getattr
        elif target in STAND_INS and self.devices.target.type != "cuda":
            function = STAND_INS[target]
            self.notes.append(f"{node.name}: {target} has no kernel on {self.devices.target}; a stand-in runs")
        else:
            function = resolve(target)
        return self.result.create_node("call_function", function, args, kwargs, node.name)

    @staticmethod
    def _plain(name: str) -> str:
        """A name that torch.fx prints into the source it executes."""
        if not re.fullmatch(r"\w+", name, re.ASCII) or name.startswith("__"):
            raise callables.refused(f"the name {name!r}")
        return name

    def _arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(self._arg(arg) for arg in node.args)
        return args, {self._plain(key): self._arg(value) for key, value in node.kwargs.items()}

    def _arg(self, arg: Any) -> Any:
        return self._map_strings(map_arg(arg, self._leaf))

    def _map_strings(self, arg: Any) -> Any:
        """Devices that are named by a string."""
        if isinstance(arg, str) and (match := callables.DEVICE_STRING.fullmatch(arg)):
            mapped = self.devices.of(match.group(1))
            return mapped.type if ":" not in arg and arg != "cpu" else str(mapped)
        if isinstance(arg, (tuple, list)):
            return type(arg)(self._map_strings(item) for item in arg)
        if isinstance(arg, dict):
            return {key: self._map_strings(value) for key, value in arg.items()}
        return arg

    def _leaf(self, leaf: Ref | Symbolic) -> Any:
        if isinstance(leaf, Ref):
            if leaf.node not in self.nodes:
                raise UsageError(f"cannot rebuild the graph '{self.graph.name}': {leaf.node} is used before it is made")
            return self.nodes[leaf.node]
        text = leaf.text
        if text in _NUMBERS:
            return _NUMBERS[text]
        if text == "Ellipsis":
            return ...
        if match := callables.DEVICE.fullmatch(text):
            return self.devices.of(match.group(1))
        if callables.is_constant_of_torch(text):
            return getattr(torch, text.removeprefix("torch."))
        if text.startswith("torch.ops."):
            return resolve(text)
        if callables.is_arithmetic(text):
            return evaluate(text, self.values)
        raise callables.refused(f"the value {text[:200]}")

    def _attribute(self, node: Node) -> None:
        """Put what ``self.a.b`` names into the module: a nested graph or a constant."""
        parts = node.target.split(".")
        for part in parts:
            if hasattr(torch.nn.Module, self._plain(part)) or part in ("training", "graph", "code"):
                raise callables.refused(f"the attribute self.{node.target}")
        owner = self.root
        for part in parts[:-1]:
            if part not in owner._modules:
                owner.add_module(part, torch.nn.Module())
            child = owner._modules[part]
            if child is None or isinstance(child, torch.fx.GraphModule):
                raise callables.refused(f"the attribute self.{node.target}")
            owner = child
        name = parts[-1]
        if name in owner._modules or name in owner._buffers:
            return
        nested = self.graph.subgraphs.get(node.target)
        if nested is not None:
            built = _Builder(nested, self.devices, self.values, self.constants).build()
            self.notes += [f"{node.target}: {note}" for note in built.meta["fxscope.notes"]]
            owner.add_module(name, built)
        elif node.op == "call_module":
            raise UsageError(
                f"cannot rebuild the graph '{self.graph.name}': it calls the module {node.target}, which is not in the log"
            )
        else:
            owner.register_buffer(name, self._constant(node))

    def _constant(self, node: Node) -> torch.Tensor:
        given = self.constants.get(node.target)
        if given is not None:
            return given.to(self.devices.of(given.device.type))
        if not isinstance(node.meta, TensorMeta):
            raise UsageError(
                f"cannot rebuild the graph '{self.graph.name}': the log has no description of the constant "
                f"{node.target}; record with --save-tensors to keep it"
            )
        self.notes.append(
            f"{node.name}: the values of the constant {node.target} are not in the log; made up from a seed"
        )
        kind = (node.meta.device or "cpu").split(":")[0]
        return make_tensor(node.meta, self.values, self.devices.of(kind), torch.Generator().manual_seed(node.index))
