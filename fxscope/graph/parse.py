"""A graph as PyTorch prints it, turned into records by Python's ``ast``. Nothing in the text is evaluated or imported.

The form is that of ``torch.fx.GraphModule.print_readable`` (torch/fx/graph.py): a class with a ``forward`` whose every line is
one node, comments with the user's line between them, and nested classes for the graphs of higher-order operators.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from fxscope.graph.annotation import module_of, original_of, parse_meta, parse_symbol, role_of
from fxscope.graph.arguments import node_refs
from fxscope.graph.expression import BINARY, Call, UnknownExpression, convert, dotted, node_of
from fxscope.graph.heap import no_collections
from fxscope.graph.printed import cut_body, isolate, mend, piece_statements, source_lines, syntax_tree
from fxscope.graph.records import Arg, Graph, Node, Role

_TRAILING = re.compile(r'["\w,)]\s+# (\S.*)$')
_CONTROLS = re.compile("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ufeff]")
_UNPACKERS = ("fx_pytree.tree_flatten_spec", "self._in_shuffle_graph")


def parse_graph(text: str, stage: str = "", name: str = "") -> Graph:
    """Parse one printed graph. Never raises: what cannot be parsed is in ``Graph.problems``, with the text kept.

    Args:
        text: What the log carries: ``class GraphModule(torch.nn.Module): ...``, perhaps with other text around.
        stage: One of ``recording.records.STAGES``; tells saved inputs of a backward graph from ordinary ones.
        name: What to call the graph; by default the printed class name.
    """
    with no_collections():
        return _parse(text, stage, name)


def _parse(text: str, stage: str, name: str) -> Graph:
    # Python ends a line at a carriage return too, and refuses other controls: in a comment they would let code out of it.
    source, classes = isolate(_CONTROLS.sub(" ", text.replace("\r\n", "\n")))
    if not source:
        return Graph(name=name, stage=stage, problems=["no graph in this text: it has no `def forward`"], text=text)
    if (graph := _in_pieces(source, classes, stage)) is not None:
        graph.name = name or graph.name
        return graph
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        mended, problems = mend(source)
        try:
            tree = syntax_tree(mended)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            where = f" at line {error.lineno}" if isinstance(error, SyntaxError) else ""
            return Graph(name=name, stage=stage, problems=[f"no Python{where}: {error}"], text=text)
        source = mended
    else:
        problems = []
    try:
        graph = _Reader(source.split("\n"), classes, stage).graph(tree)
    except RecursionError as error:  # classes or annotations that nest deeper than this Python goes
        return Graph(name=name, stage=stage, problems=[f"nested too deeply: {error}"], text=text)
    graph.name = name or graph.name
    graph.problems[:0] = problems
    if graph.problems:
        graph.text = text
    return graph


def _in_pieces(source: str, classes: dict[str, str], stage: str) -> Graph | None:
    """A long graph, a few thousand lines at a time; None for a short one, and where anything is odd, for then it is read whole."""
    head, pieces = cut_body(source)
    if not pieces:
        return None
    try:
        reader = _Reader(source.split("\n"), classes, stage, pieces)
        graph = reader.graph(syntax_tree(head))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # reading it whole says what is wrong
    return None if graph.problems or reader.pieces else graph


class _Reader:
    """Reads one printed text. ``lines`` are for the comments, which ``ast`` drops, and ``pieces`` what the tree lacks."""

    def __init__(
        self, lines: list[str], classes: dict[str, str], stage: str, pieces: list[tuple[int, int]] | None = None
    ) -> None:
        self.lines = lines
        self.classes = classes
        self.stage = stage
        self.pieces = pieces or []
        self.sources = source_lines(lines)

    def rest_of(self, function: ast.FunctionDef) -> Iterator[ast.stmt]:
        """The statements of its body that were cut out of the tree."""
        if self.pieces and function.body[-1].lineno <= self.pieces[0][0]:
            pieces, self.pieces = self.pieces, []
            return piece_statements(self.lines, pieces)
        return iter(())

    def graph(self, tree: ast.ClassDef | ast.FunctionDef) -> Graph:
        """Records of a class and the classes nested in it."""
        if isinstance(tree, ast.FunctionDef):
            graph = Graph(stage=self.stage, name="forward")
            _Body(self, graph).read(tree)
            return graph
        graph = Graph(stage=self.stage, name=self.classes.get(tree.name, tree.name))
        for part in tree.body:
            if isinstance(part, ast.ClassDef):
                nested = self.graph(part)
                graph.subgraphs[nested.name] = nested
                graph.problems += [f"{nested.name}: {problem}" for problem in nested.problems]
        functions = [part for part in tree.body if isinstance(part, ast.FunctionDef)]
        if functions:
            _Body(self, graph).read(functions[0])
        else:
            graph.problems.append("the class has no forward")
        return graph


class _Body:
    """Reads one ``forward`` into one Graph."""

    def __init__(self, reader: _Reader, graph: Graph) -> None:
        self.reader = reader
        self.result = graph
        self.scope: dict[str, Node] = {}
        self.waiting: dict[str, Node] = {}  # arguments of the signature that no line has renamed yet
        self.notes: dict[str, tuple[str, str]] = {}  # annotations that stand on a line of their own
        self.trailing: dict[int, str] = {}
        self.leaves = 0  # arguments of an exported program's forward, before its inputs are put in order

    def read(self, function: ast.FunctionDef) -> None:
        """Fill the graph."""
        unpacked = any(self._unpacker(statement) for statement in function.body)
        if not unpacked:
            self._signature(function.args)
        statements = itertools.chain(function.body, self.reader.rest_of(function))
        for statement in statements:
            try:
                self._statement(statement, statements)
            except (UnknownExpression, RecursionError) as error:
                text = self.reader.lines[statement.lineno - 1].strip()
                self.result.problems.append(f"not a line that torch.fx prints: {text[:200]} ({error})")
        self._link()

    def _signature(self, arguments: ast.arguments) -> None:
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
        pairs: list[tuple[str, ast.arg, ast.expr | None]] = [
            (arg.arg, arg, default)
            for arg, default in zip(positional, [*defaults, *arguments.defaults], strict=True)
            if arg.arg != "self"
        ]
        if arguments.vararg:
            pairs.append(("*" + arguments.vararg.arg, arguments.vararg, None))
        pairs += [(arg.arg, arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
        if arguments.kwarg:
            pairs.append(("**" + arguments.kwarg.arg, arguments.kwarg, None))
        for target, arg, default in pairs:
            args = () if default is None else (convert(default, ()),)
            self._placeholder(target, self._annotation(arg.annotation), self._trailing(arg.lineno), args)

    def _trailing(self, line: int) -> str:
        """The comment at the end of a line: what AOTAutograd says of an input."""
        if line not in self.trailing:  # a signature on one line is as long as it has inputs: look at it once
            match = _TRAILING.search(self.reader.lines[line - 1])
            self.trailing[line] = match.group(1).strip() if match else ""
        return self.trailing[line]

    @staticmethod
    def _annotation(expr: ast.expr | None) -> str:
        if expr is None:
            return ""
        return expr.value if isinstance(expr, ast.Constant) and isinstance(expr.value, str) else ast.unparse(expr)

    def _placeholder(self, target: str, annotation: str, description: str, args: tuple[Arg, ...] = ()) -> None:
        symbol = parse_symbol(annotation)
        role = "symbol" if annotation.endswith("SymInt") else role_of(target, description, self.result.stage, symbol)
        original = original_of(target)
        node = Node(
            name=target.lstrip("*"),
            op="placeholder",
            target=target,
            args=args,
            meta=parse_meta(annotation),
            role=role,
            original=original,
            module=module_of("placeholder", target, original),
            symbol=symbol,
            description=description,
        )
        self.result.nodes.append(node)
        self.waiting[node.name] = self.scope[node.name] = node

    @staticmethod
    def _unpacker(statement: ast.stmt) -> bool:
        """Whether a line takes the inputs out of a structure or a list, as AOT's joint and exported graphs do."""
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
            return False
        function = dotted(statement.value.func)
        if function == "next":
            argument = statement.value.args[0] if statement.value.args else None
            return isinstance(argument, ast.Name) and argument.id == "args_iter"
        return function in _UNPACKERS

    def _statement(self, statement: ast.stmt, following: Iterator[ast.stmt]) -> None:
        if isinstance(statement, ast.Return):
            self._output(statement.value)
        elif isinstance(statement, ast.AugAssign):
            left, right = convert(statement.target, self.scope), convert(statement.value, self.scope)
            operator = BINARY[type(statement.op)].removesuffix("_")
            call = Call("call_function", f"operator.i{operator}", (left, right), {})
            self._in_place(call, following, statement.lineno)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            note = self._annotation(statement.annotation)
            if statement.value is None:
                self.notes[statement.target.id] = (note, self._trailing(statement.lineno))
            else:
                self._assign(statement.target.id, note, statement.value, statement.lineno)
        elif isinstance(statement, ast.Assign):
            self._assignment(statement, following)
        elif isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
            text = dotted(statement.value.func) if isinstance(statement.value, ast.Call) else None
            if text != "args_list.clear":
                raise UnknownExpression("its value has no name")
        elif not isinstance(statement, (ast.Pass, ast.Expr, ast.Delete, ast.Import, ast.ImportFrom)):
            raise UnknownExpression(type(statement).__name__)

    def _assignment(self, statement: ast.Assign, following: Iterator[ast.stmt]) -> None:
        target, value = statement.targets[0], statement.value
        if isinstance(value, ast.Constant) and value.value is None and isinstance(target, ast.Name):
            return  # "x = y = None": torch.fx frees what is no longer used
        if self._unpacker(statement):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            for name in names:
                if isinstance(name, ast.Name):
                    self._placeholder(name.id, *self.notes.get(name.id, ("", "")))
        elif isinstance(target, ast.Tuple):
            self.leaves = len(target.elts)  # an exported program's `a, b, = pytree.tree_leaves(...)`
        elif isinstance(target, ast.Name):
            if not (isinstance(value, ast.Call) and dotted(value.func) == "iter"):
                self._assign(target.id, "", value, statement.lineno)
        elif isinstance(target, ast.Subscript):
            parts = (target.value, target.slice, value)
            args = tuple(convert(part, self.scope) for part in parts)
            call = Call("call_function", "operator.setitem", args, {})
            self._in_place(call, following, statement.lineno)
        else:
            raise UnknownExpression("its target")

    def _assign(self, name: str, note: str, value: ast.expr, line: int) -> None:
        if isinstance(value, ast.Name) and value.id in self.waiting:
            node = self.waiting.pop(value.id)  # "l_x_ = L_x_": the node of an input whose argument has another name
            self.scope.pop(node.name)
            node.name = name
            self.scope[name] = node
            return
        self._add(name, note, node_of(value, self.scope), line)

    def _in_place(self, call: Call, following: Iterator[ast.stmt], line: int) -> None:
        """``x += y;  x_1 = x``: one node, whose name and annotation stand in the second half."""
        second = next(following, None)
        if isinstance(second, ast.AnnAssign) and isinstance(second.target, ast.Name):
            self._add(second.target.id, self._annotation(second.annotation), call, line)
        elif isinstance(second, ast.Assign) and isinstance(second.targets[0], ast.Name):
            self._add(second.targets[0].id, "", call, line)
        else:
            raise UnknownExpression("an in-place operator without a name for its value")

    def _add(self, name: str, note: str, call: Call, line: int) -> None:
        role: Role | None = "constant" if call.op == "get_attr" and call.target not in self.result.subgraphs else None
        original = original_of(call.target) if call.op == "get_attr" else None
        node = Node(
            name=name,
            op=call.op,
            target=call.target,
            args=call.args,
            kwargs=call.kwargs,
            meta=parse_meta(note),
            symbol=parse_symbol(note),
            source=self.reader.sources[line - 1],
            role=role,
            original=original,
            module=module_of(call.op, call.target, original),
        )
        self.result.nodes.append(node)
        self.scope[name] = node

    def _output(self, value: ast.expr | None) -> None:
        arg: Arg = None if value is None else self._output_value(value)
        # Where the program has a variable called output, torch.fx numbers its own.
        names = itertools.chain(["output"], (f"output_{number}" for number in itertools.count(1)))
        name = next(name for name in names if name not in self.scope)
        self.result.nodes.append(Node(name=name, op="output", target="output", args=(arg,)))

    def _output_value(self, value: ast.expr) -> Arg:
        if isinstance(value, ast.Call) and value.args:
            function = dotted(value.func)
            if function == "pytree.tree_unflatten":
                return self._output_value(value.args[0])
            if function == "self._out_shuffle_graph":
                return [convert(arg, self.scope) for arg in value.args[self.leaves :]]
        return convert(value, self.scope)

    def _link(self) -> None:
        nested = self.result.subgraphs
        for node in self.result.nodes:
            if node.op == "call_module" and node.target in nested:
                node.subgraphs.append(node.target)
            for name in dict.fromkeys(node_refs(node)):
                owner = self.scope.get(name)
                if owner is not None and owner.op == "get_attr" and owner.target in nested:
                    node.subgraphs.append(owner.target)
        link(self.result)


def link(graph: Graph) -> Graph:
    """Set every node's ``index`` and ``users`` from its arguments; for graphs made or changed by hand. Returns the graph."""
    by_name = graph.by_name()
    for index, node in enumerate(graph.nodes):
        node.index = index
        node.users = []
    for node in graph.nodes:
        for name in dict.fromkeys(node_refs(node)):
            if name in by_name:
                by_name[name].users.append(node.name)
    return graph
