"""A graph as a Python file that runs on its own: torch is all it needs.

The file is written from the parsed records, after the same checks as a rebuild (fxscope.graph.callables), so it holds nothing
that the list does not allow, and no text of the log outside comments and string literals.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from fxscope.errors import UsageError
from fxscope.graph import callables
from fxscope.graph.ambient import ambient_autocast
from fxscope.graph.arguments import arg_text
from fxscope.graph.dtypes import DTYPES
from fxscope.graph.histogram import all_graphs
from fxscope.graph.ranges import Range, Uses, sizes
from fxscope.graph.records import Arg, Graph, Node, Ref, Symbolic, TensorMeta
from fxscope.graph.repro_template import HEAD, KEPT, OPTION, TAIL
from fxscope.graph.symbols import Number, evaluate, metas, symbol_values

NUMBERS = {"inf": "math.inf", "nan": "math.nan", "-inf": "-math.inf", "-nan": "math.nan"}
_RESERVED = {
    "torch",
    "math",
    "operator",
    "self",
    "make",
    "DEVICE",
    "HOST",
    "STAND_INS",
    "GUARDS",
    "argparse",
    "contextlib",
    "inputs",
    "KEPT",
    "kept",
}


def repro(
    graph: Graph,
    *,
    title: str = "",
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    tensors: str | None = None,
) -> str:
    """Source of the file.

    Args:
        graph: From ``parse_graph``.
        title: First line of the file's docstring.
        symbols: Values of symbolic sizes.
        seed: Seeds the inputs; the same values as ``fxscope.graph.inputs.make_inputs`` gives.
        tensors: A file of recorded tensors (``fxscope.graph.recorded``); the repro then takes its values where it has them.

    Raises:
        UsageError: The graph calls what is not in the list, or an input is not described; it is named.
    """
    return _Writer(graph, symbol_values(graph, symbols), seed, tensors).file(
        title or f"The graph {graph.name} {graph.stage}".rstrip()
    )


class _Writer:
    """Writes one file."""

    def __init__(self, graph: Graph, values: Mapping[str, Number], seed: int, tensors: str | None = None) -> None:
        self.graph = graph
        self.tensors = tensors
        self.values = values
        self.seed = seed
        self.accelerated = any(
            meta.device and not meta.device.startswith(("cpu", "meta"))
            for each in all_graphs(graph)
            for node in each.nodes
            for meta in metas(node)
        )
        self.aliases: dict[str, str] = {}  # stand-ins that the file uses
        self.classes: list[str] = []

    def file(self, title: str) -> str:
        """All parts in order."""
        name = self.module(self.graph, ())
        inputs = self.inputs()
        imports = ""
        if any("torch.ops.prims." in text for text in self.classes):
            imports = "import torch._inductor.inductor_prims  # registers the prims that Inductor adds\n"
        parts = [
            HEAD.format(
                option="" if self.tensors is None else OPTION.format(path=self.tensors),
                values="Inputs are made from their descriptions, from a seed."
                if self.tensors is None
                else "Inputs and constants are those recorded; what was not is made up from a seed.",
                title=_comment(title).replace('"""', "'''").replace("\\", "/"),
                imports=imports,
                host='torch.device("cpu")' if self.accelerated else "DEVICE",
            )
        ]
        if self.tensors is not None:
            parts.append(KEPT)
        if self.aliases:
            parts.append(_stand_ins())
            parts += [f"{alias} = {choice}\n" for alias, choice in self.aliases.items()]
        autocast = ambient_autocast(self.graph)
        around = "contextlib.nullcontext()"
        if autocast is not None:
            device = "HOST" if autocast[0] == "cpu" else "DEVICE"
            around = f"torch.autocast({device}.type, dtype=torch.{autocast[1]})"
        return "".join([*parts, *self.classes, inputs, TAIL.format(cls=name, around=around)])

    def inputs(self) -> str:
        """The function that makes the inputs."""
        uses = Uses(self.graph, self.values)
        lines = ["\n\ndef inputs():\n", '    """One value per placeholder, in order."""\n', "    return [\n"]
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        for position, node in enumerate(placeholders):
            if isinstance(node.meta, TensorMeta):
                text = self.tensor(node.meta, self.seed * 1_000_003 + position, uses.range_of(node))
            elif node.symbol is not None or node.role == "symbol":
                text = repr(evaluate(node.symbol or node.name, self.values))
            elif node.args or not node.users:
                text = self.text(node.args[0]) if node.args else "None"
            else:
                raise UsageError(f"cannot write a repro: the log does not describe the input {node.name}")
            if self.tensors is not None and text != "None":
                # The recording names inputs after Dynamo's placeholders; an AOT graph knows those as its originals.
                text = f"kept({f'input:{node.original or node.target}'!r}, kept({f'input:{node.target}'!r}, {text}))"
            lines.append(f"        {text},  # {_comment(node.original or node.name)}\n")
        return "".join([*lines, "    ]\n"])

    def tensor(self, meta: TensorMeta, seed: int, within: Range) -> str:
        """A call of ``make``."""
        if meta.dtype not in DTYPES:
            raise UsageError(f"cannot write a repro: unknown dtype {meta.dtype}")
        stride = None if meta.stride is None else tuple(sizes(meta.stride, self.values))
        device = "HOST" if (meta.device or "cpu").startswith("cpu") else "DEVICE"
        more = "".join(
            f", {name}={value!r}"
            for name, value, usual in zip(Range._fields, within, Range(), strict=True)
            if value != usual
        )
        shape = tuple(sizes(meta.shape, self.values))
        return f"make({seed}, {shape}, {stride}, torch.{DTYPES[meta.dtype][0]}, {device}{more})"

    def module(self, graph: Graph, path: tuple[str, ...]) -> str:
        """A class per graph; nested ones first. Returns the class's name."""
        if graph.problems:
            raise UsageError(f"cannot write a repro of graph '{graph.name}': {graph.problems[0]}")
        nested = {key: self.module(inner, (*path, key)) for key, inner in graph.subgraphs.items()}
        name = "Graph" + "".join("_" + re.sub(r"\W", "_", part) for part in path)
        body = "".join(self.body(graph))
        inits = [f"        self.{_plain(key)} = {cls}()\n" for key, cls in nested.items() if "." not in key]
        for position, node in enumerate(graph.nodes):
            if node.op == "get_attr" and node.target not in nested:
                if not isinstance(node.meta, TensorMeta):
                    raise UsageError(f"cannot write a repro: the log does not describe the constant {node.target}")
                value = self.tensor(node.meta, position, Range())
                if self.tensors is not None:
                    value = f"kept({f'constant:{node.target}'!r}, {value})"
                note = "values made up: not in the log" if self.tensors is None else "recorded"
                inits.append(f"        self.{_attribute(node.target)} = {value}  # {note}\n")
        init = (
            f"    def __init__(self):\n        super().__init__()\n{''.join(dict.fromkeys(inits))}\n" if inits else ""
        )
        self.classes.append(f"\n\nclass {name}(torch.nn.Module):\n{init}{body}")
        return name

    def body(self, graph: Graph) -> Iterator[str]:
        """The forward, a line per node, the user's line above."""
        names = [_variable(node.name) for node in graph.nodes if node.op == "placeholder"]
        yield f"    def forward({', '.join(['self', *names])}):\n"
        source = None
        for node in graph.nodes:
            if node.source is not None and node.source != source:
                source = node.source
                yield f"        # {_comment(f'{source.file}:{source.line} in {source.function}: {source.code}')}\n"
            if node.op == "output":
                yield f"        return {self.text(node.args[0])}\n"
            elif node.op != "placeholder":
                yield f"        {_variable(node.name)} = {self.call(node, graph)}\n"

    def call(self, node: Node, graph: Graph) -> str:
        """The right-hand side of one line."""
        if node.op == "get_attr":
            return f"self.{_plain(node.target) if node.target in graph.subgraphs else _attribute(node.target)}"
        args = [self.text(arg) for arg in node.args]
        kwargs = [f"{_plain(key)}={self.text(value)}" for key, value in node.kwargs.items()]
        listed = ", ".join(args + kwargs)
        if node.op == "call_module":
            if node.target not in graph.subgraphs:
                raise UsageError(f"cannot write a repro: the module {node.target} is not in the log")
            return f"self.{_plain(node.target)}({listed})"
        if node.op == "call_method":
            name = callables.check_method(node.target)
            if name in ("cuda", "cpu"):
                return f"{args[0]}.to({'DEVICE' if name == 'cuda' else 'HOST'})"
            return f"{args[0]}.{name}({', '.join(args[1:] + kwargs)})"
        if node.target in callables.NO_OPS:
            return "None"
        if node.target == "getattr":
            if len(node.args) not in (2, 3) or not isinstance(node.args[1], str):
                raise callables.refused("getattr with a computed name")
            callables.check_property(node.args[1])
            return f"getattr({listed})"
        return f"{self.function(node.target)}({listed})"

    def function(self, target: str) -> str:
        """A function of the list, by the path that reaches it; a stand-in by its alias."""
        group, name = callables.group_of(target)
        path = name if group == "builtins" else f"{group}.{name}"
        if path in callables.CUDA_ONLY or path in callables.GUARDED:
            alias = "run_" + path.split(".")[3].lstrip("_")
            choice = f'STAND_INS["{path}"] if DEVICE.type != "cuda" else {path}'
            self.aliases[alias] = choice if path in callables.CUDA_ONLY else f'GUARDS["{path}"]'
            return alias
        return path

    def text(self, arg: Arg) -> str:
        """An argument as source, checked like a rebuild's."""
        return arg_text(arg, self._leaf)

    def _leaf(self, arg: Any) -> str:
        if isinstance(arg, Ref):
            return _variable(arg.node)
        if isinstance(arg, Symbolic):
            return self.symbolic(arg.text)
        if isinstance(arg, str):
            match = callables.DEVICE_STRING.fullmatch(arg)
            return repr(arg) if match is None else "HOST.type" if match.group(1) == "cpu" else "DEVICE.type"
        if isinstance(arg, float) and repr(arg) in NUMBERS:
            return NUMBERS[repr(arg)]
        return repr(arg)

    def symbolic(self, text: str) -> str:
        """A value that is no literal."""
        if text in NUMBERS:
            return NUMBERS[text]
        if text == "Ellipsis":
            return "..."
        if match := callables.DEVICE.fullmatch(text):
            return "HOST" if match.group(1) == "cpu" else "DEVICE"
        if callables.is_constant_of_torch(text):
            return text
        if text.startswith("torch.ops."):
            return self.function(text)
        if callables.is_arithmetic(text):
            return repr(evaluate(text, self.values))
        raise callables.refused(f"the value {text[:200]}")


def _comment(text: str) -> str:
    """Text that cannot leave its comment: one line of printable characters."""
    return "".join(char if char.isprintable() else " " for char in text)[:300]


def _plain(name: str) -> str:
    if (
        not re.fullmatch(r"\w+", name, re.ASCII)
        or name.startswith("__")
        or keyword.iskeyword(name)
        or not name[0].isalpha()
    ):
        raise callables.refused(f"the name {name!r}")
    return name


def _variable(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"{plain}_" if plain in _RESERVED or keyword.iskeyword(plain) or not plain[:1].isidentifier() else plain


def _attribute(target: str) -> str:
    """One attribute for a dotted path: the file keeps all constants in the class itself."""
    return "constant_" + re.sub(r"\W", "_", target, flags=re.ASCII)


def _stand_ins() -> str:
    """Source of fxscope.graph.standins without what the file has already."""
    source = resources.files(__package__).joinpath("standins.py").read_text("utf-8")
    body = source.split("from torch import Tensor\n", 1)[1]
    return f"from collections.abc import Callable\nfrom typing import Any\n\nfrom torch import Tensor\n{body}\n\n"
