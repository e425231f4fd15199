"""Arguments of a node: which nodes they name, the same with other names, as text, as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from fxscope.graph.records import Arg, Node, Ref, Symbolic


def refs(arg: Arg) -> Iterator[str]:
    """Names of the nodes in an argument, in order, repeats included."""
    if isinstance(arg, Ref):
        yield arg.node
    elif isinstance(arg, Symbolic):
        yield from arg.refs
    elif isinstance(arg, (tuple, list)):
        for item in arg:
            yield from refs(item)
    elif isinstance(arg, dict):
        for key, value in arg.items():
            yield from refs(key)
            yield from refs(value)
    elif isinstance(arg, slice):
        for item in (arg.start, arg.stop, arg.step):
            yield from refs(item)


def node_refs(node: Node) -> Iterator[str]:
    """Names of the nodes that a node reads, in order, repeats included."""
    yield from refs(node.args)
    for value in node.kwargs.values():
        yield from refs(value)


def map_arg(arg: Arg, change: Callable[[Ref | Symbolic], Any]) -> Arg:
    """A copy of an argument with every Ref and Symbolic replaced by what ``change`` makes of it."""
    if isinstance(arg, (Ref, Symbolic)):
        return change(arg)
    if isinstance(arg, (tuple, list)):
        return type(arg)(map_arg(item, change) for item in arg)
    if isinstance(arg, dict):
        return {map_arg(key, change): map_arg(value, change) for key, value in arg.items()}
    if isinstance(arg, slice):
        return slice(map_arg(arg.start, change), map_arg(arg.stop, change), map_arg(arg.step, change))
    return arg


def rename(arg: Arg, names: dict[str, str]) -> Arg:
    """A copy of an argument in which nodes carry other names; a name that is not in ``names`` stays."""

    def change(leaf: Ref | Symbolic) -> Ref | Symbolic:
        if isinstance(leaf, Ref):
            return Ref(names.get(leaf.node, leaf.node))
        if not leaf.refs:
            return leaf
        text = re.sub(r"\w+", lambda word: names.get(word[0], word[0]) if word[0] in leaf.refs else word[0], leaf.text)
        return Symbolic(text, tuple(names.get(name, name) for name in leaf.refs))

    return map_arg(arg, change)


def _leaf_text(arg: Any) -> str:
    if isinstance(arg, Ref):
        return arg.node
    return arg.text if isinstance(arg, Symbolic) else repr(arg)


def arg_text(arg: Arg, leaf: Callable[[Any], str] = _leaf_text) -> str:
    """An argument as Python prints it in a graph; ``leaf`` writes what is neither tuple, list, dict nor slice."""
    if not isinstance(arg, (tuple, list, dict, slice)):
        return leaf(arg)
    if isinstance(arg, tuple):
        inner = ", ".join(arg_text(item, leaf) for item in arg)
        return f"({inner},)" if len(arg) == 1 else f"({inner})"
    if isinstance(arg, list):
        return f"[{', '.join(arg_text(item, leaf) for item in arg)}]"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{arg_text(key, leaf)}: {arg_text(value, leaf)}" for key, value in arg.items()) + "}"
    return f"slice({arg_text(arg.start, leaf)}, {arg_text(arg.stop, leaf)}, {arg_text(arg.step, leaf)})"


def call_text(node: Node) -> str:
    """The arguments of a node as they stand between its parentheses."""
    parts = [arg_text(arg) for arg in node.args]
    parts += [f"{key} = {arg_text(value)}" for key, value in node.kwargs.items()]
    return ", ".join(parts)


def to_json(arg: Arg) -> Any:
    """An argument as JSON: a node is ``{"ref": name}``, an expression ``{"symbolic": text}``, a slice ``{"slice": [..]}``.

    A tuple becomes ``{"tuple": [..]}`` so that it differs from a list; a dict ``{"dict": [[key, value], ..]}``, because its
    keys need not be strings.
    """
    if isinstance(arg, Ref):
        return {"ref": arg.node}
    if isinstance(arg, Symbolic):
        return {"symbolic": arg.text}
    if isinstance(arg, tuple):
        return {"tuple": [to_json(item) for item in arg]}
    if isinstance(arg, list):
        return [to_json(item) for item in arg]
    if isinstance(arg, dict):
        return {"dict": [[to_json(key), to_json(value)] for key, value in arg.items()]}
    if isinstance(arg, slice):
        return {"slice": [to_json(arg.start), to_json(arg.stop), to_json(arg.step)]}
    if isinstance(arg, (complex, bytes)):
        return {"symbolic": repr(arg)}
    return arg
