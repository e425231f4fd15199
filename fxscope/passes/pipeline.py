"""Passes by name: fxscope's own, installed ones, and functions in a file."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError
from fxscope.passes.affine import fold_affine
from fxscope.passes.application import Context, Pass
from fxscope.passes.cleanup import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    freeze,
)
from fxscope.passes.conv_bn import duplicates, fold_conv_bn
from fxscope.passes.decompose import check_tables, decompose
from fxscope.passes.islands import check_target, partition_for
from fxscope.passes.module import value
from fxscope.passes.order import is_compute
from fxscope.passes.pointwise import group_pointwise

if TYPE_CHECKING:
    from torch.fx import GraphModule

GROUP = "fxscope.passes"
DEFAULT = ("shapes", "conv-bn-fold", "decompose", "cse", "constant-fold", "dce")


def shapes(gm: GraphModule, context: Context) -> GraphModule:
    """Propagate shapes and dtypes with fake tensors, without running anything.

    Nodes that cannot be faked (custom ops without a fake kernel), and custom ops whose fake kernel disagrees with the real
    one on the probe inputs, are named with their source line.

    Raises:
        UsageError: No inputs.
    """
    from fxscope.passes.fakes import fake_mismatches, propagate_named

    if context.inputs is None:
        raise UsageError("shapes needs inputs")
    by_name = {node.name: node for node in gm.graph.nodes}
    known = all(value(node) is not None for node in gm.graph.nodes if is_compute(node))
    for reason, problems in (
        ("no-fake", [] if known else propagate_named(gm, context.inputs)),
        ("fake-mismatch", fake_mismatches(gm, context.inputs)),
    ):
        for problem in problems:
            node = by_name.get(problem.split(" ", 1)[0])
            context.skip([node] if node is not None else [], reason, problem)
    return gm


BUILT_IN: tuple[Pass, ...] = (
    Pass(name="shapes", function=shapes, exact=True),
    Pass(name="conv-bn-fold", function=fold_conv_bn, requires=("shapes",), check=duplicates),
    Pass(name="conv-affine-fold", function=fold_affine, requires=("aten", "shapes")),
    Pass(name="decompose", function=decompose, check=check_tables),
    Pass(name="freeze", function=freeze, requires=("shapes",), exact=True),
    Pass(name="constant-fold", function=fold_constants, requires=("shapes",), exact=True),
    Pass(name="cse", function=eliminate_common_subexpressions, exact=True),
    Pass(name="dce", function=eliminate_dead_code, exact=True),
    Pass(name="group-pointwise", function=group_pointwise, requires=("aten", "shapes"), exact=True),
    Pass(name="partition", function=partition_for, requires=("aten", "shapes"), exact=True, check=check_target),
)


@cache
def _installed() -> dict[str, Any]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.value)}


def names() -> list[str]:
    """Names that a pipeline may hold, files aside."""
    return [item.name for item in BUILT_IN] + list(_installed())


def find(text: str) -> Pass:
    """A pass by its text in a pipeline: ``name``, ``name:argument``, or ``path/to/file.py:function``.

    Raises:
        UsageError: No such pass, or the file or function cannot be had; the message names what is near.
    """
    if text.endswith(":"):
        raise UsageError(f"pass '{text}' names nothing behind the colon: add an argument, or leave the colon out")
    if ".py:" in text or text.endswith(".py"):
        return _from_file(text)
    name, _, argument = text.partition(":")
    own = next((item for item in BUILT_IN if item.name == name), None)
    if own is not None:
        if own.check is not None:
            own.check(argument)
        elif argument:
            raise UsageError(f"pass '{name}' takes no argument, here '{argument}'")
        if not argument:
            return own
        return Pass(name=text, function=_with_argument(own.function, argument), requires=own.requires, exact=own.exact)
    if name in _installed():
        try:
            made = as_pass(_installed()[name].load(), name)
        except Exception as error:
            raise UsageError(f"pass '{name}' cannot be loaded: {type(error).__name__}: {error}") from error
        if not argument:
            return made
        if not made.takes_context:
            raise UsageError(f"pass '{name}' takes no argument: without a context it cannot see '{argument}'")
        return Pass(
            name=text, function=_with_argument(made.function, argument), requires=made.requires, exact=made.exact
        )
    near = difflib.get_close_matches(name, names(), 1)
    hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(names())}, or FILE.py:FUNCTION"
    raise UsageError(f"no pass '{text}'; {hint}")


def parse(pipeline: str | Sequence[str | Pass | Callable[..., Any]] | None) -> list[Pass]:
    """A pipeline as passes: a comma-separated text, a list of names, passes and functions, or None for the default.

    Raises:
        UsageError: No such pass, or none at all.
    """
    if pipeline is None:
        pipeline = DEFAULT
    if isinstance(pipeline, str):
        pipeline = [part.strip() for part in pipeline.split(",") if part.strip()]
    found = [find(item) if isinstance(item, str) else as_pass(item) for item in pipeline]
    if not found:
        raise UsageError(f"the pipeline is empty; one or more of {', '.join(names())}")
    return found


def as_pass(item: Any, name: str | None = None) -> Pass:
    """A pass, or a function ``(gm) -> gm`` or ``(gm, context) -> gm`` as one.

    Raises:
        UsageError: It is neither.
    """
    if isinstance(item, Pass):
        return item
    if not callable(item):
        raise UsageError(f"{item!r} is no pass: a function that takes a GraphModule and returns one is needed")
    return Pass(name=name or str(getattr(item, "__name__", type(item).__name__)), function=item)


def _with_argument(function: Callable[..., Any], argument: str) -> Callable[..., Any]:
    def run(gm: GraphModule, context: Context) -> Any:
        context.options["argument"] = argument
        return function(gm, context)

    run.__doc__ = function.__doc__
    return run


def _from_file(text: str) -> Pass:
    path, _, function = text.rpartition(":") if ".py:" in text else (text, "", "")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"pass file {file} does not exist")
    spec = importlib.util.spec_from_file_location(f"fxscope_user_pass_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    own = {
        key: item
        for key, item in vars(module).items()
        if callable(item) and getattr(item, "__module__", None) == spec.name and not key.startswith("_")
    }
    if not function:
        if len(own) != 1:
            raise UsageError(f"{file} has {len(own)} functions; name one: {file}:{next(iter(own), 'my_pass')}")
        function = next(iter(own))
    if function not in own:
        near = difflib.get_close_matches(function, list(own), 1)
        raise UsageError(f"{file} has no function '{function}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    return as_pass(own[function], function)
