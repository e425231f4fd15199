"""Failures that belong to one operator or to what is installed: what the text says, the operator's own line, and what mends it."""

from __future__ import annotations

import re
from typing import NamedTuple

from fxscope.diagnosis.context import Context
from fxscope.recording.records import Failure
from fxscope.recording.userline import is_user_file

_NAME = re.compile(
    r"backward through ([\w.:]+) but no autograd formula|Error in op: (?:torch\.ops\.)?([\w.:]+)|^\s*target: ([\w.:]+)$",
    re.MULTILINE,
)
_FILE = re.compile(r"^\s*# File: (.+?):(\d+) in \S+?, code:")


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    ids: tuple[str, ...]
    cause: str
    fix: str


def _rule(pattern: str, ids: str, cause: str, fix: str) -> _Rule:
    return _Rule(re.compile(pattern), tuple(ids.split()), cause, fix)


_RULES = (
    _rule(
        r"no autograd formula was registered",
        "backward-failed backend-failed",
        "The custom operator {op} has no backward, and its input requires gradients.",
        "Register its backward:\n"
        "    def setup_context(ctx, inputs, output):\n        ctx.save_for_backward(*inputs)\n"
        "    def backward(ctx, grad):\n        (x,) = ctx.saved_tensors\n        return 2 * x * grad  # one gradient per input, None for what has none\n"
        '    torch.library.register_autograd("{op}", backward, setup_context=setup_context)\n'
        "(where no gradient is meant: call it under torch.no_grad(), or on x.detach())",
    ),
    _rule(
        r"incorrect fake \(aka meta\) kernel",
        "missing-fake-kernel",
        "The fake kernel of the custom operator {op} says another shape, stride or dtype than the operator returns: {first}.",
        "Make the fake kernel of {op} return what the operator does: torch.empty (or x.new_empty) of the true shape, strides and dtype. "
        "torch.library.opcheck(op, (x,)) compares the two without compiling.",
    ),
    _rule(
        r"No working C\+\+ compiler|InvalidCxxCompiler",
        "backend-failed",
        "Inductor compiles C++ for the CPU and finds no compiler: {first}.",
        "Install one (Debian and Ubuntu: apt-get install g++; conda: conda install -c conda-forge cxx-compiler; Windows: the MSVC build tools), or name it: CXX=/usr/bin/g++. "
        'Without a compiler backend="aot_eager" runs, but fuses nothing.',
    ),
    _rule(
        r"Python\.h: No such file|fatal error: .*\.h",
        "backend-failed",
        "The C++ compiler lacks a header: {first}.",
        "Install the headers it names; Python.h comes with python3-dev (Debian, Ubuntu) or python3-devel (Fedora), omp.h with libomp.",
    ),
    _rule(
        r"TritonMissing|[Cc]annot find a working triton installation|No module named 'triton'",
        "backend-failed",
        "Inductor compiles GPU kernels with Triton, which is not installed or does not work: {first}.",
        "Install the Triton that belongs to this torch: it comes with the CUDA and ROCm wheels for Linux (pip install --force-reinstall torch), triton-windows is the one for Windows.",
    ),
    _rule(
        r"GPUTooOldForTriton|CUDA Capability of (?:minimum )?7\.0|too old to be supported by the triton",
        "backend-failed",
        "The GPU is older than what Triton supports (compute capability 7.0): {first}.",
        'Leave torch.compile out on this GPU, or use backend="cudagraphs" or "aot_eager".',
    ),
    _rule(
        r"Invalid backend",
        "backend-failed",
        "There is no backend of that name in this environment: {first}",
        "Import (and install) the package that registers it before torch.compile is called (torch_tensorrt for tensorrt, openvino.torch for openvino, intel_extension_for_pytorch for ipex), "
        'or take one of torch.compiler.list_backends(); without backend= it is "inductor".',
    ),
    _rule(
        r"does not support compiling torch\.jit|torch\.jit\.(?:script|freeze|trace).*(?:not support|unsupported)",
        "torchscript",
        "torch.compile was given a module that torch.jit had compiled already.",
        "Compile the original module: torch.compile(model) instead of torch.compile(torch.jit.script(model)); drop torch.jit where torch.compile replaces it.",
    ),
)


class Explained(NamedTuple):
    """Ids, cause and fix of a failure."""

    ids: list[str]
    cause: str
    fix: str


def explain_operator(failure: Failure) -> Explained | None:
    """What a failure's text says of one operator or of the environment; None where it says nothing of the kind."""
    message = f"{failure.type}: {failure.message}"
    operator = operator_of(failure)
    for rule in _RULES:
        if rule.pattern.search(message):
            words = {"op": operator or "ns::op", "first": _telling(failure.message, rule.pattern)}
            cause, fix = rule.cause, rule.fix
            for name, text in words.items():
                cause, fix = cause.replace("{" + name + "}", text), fix.replace("{" + name + "}", text)
            return Explained(list(rule.ids), cause, fix)
    return None


def operator_of(failure: Failure) -> str:
    """``ns::op`` that a failure names as its culprit, "" where it names none."""
    found = _NAME.search(failure.message)
    name = next((group for group in found.groups() if group), "") if found else ""
    if "::" in name or "." not in name:
        return name
    namespace, _, rest = name.partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"


def place_of_operator(context: Context, failure: Failure, operator: str) -> tuple[str, int] | None:
    """The user's line that calls an operator, from the graphs of the failed compile (of any, where it has none of its own)."""
    namespace, _, name = operator.partition("::")
    called = re.compile(rf"\b{re.escape(namespace)}\.{re.escape(name)}\b")
    own = context.by_key.get(failure.compile_key)
    for compile_ in [own] if own is not None else context.recording.compiles[:50]:
        for graph in compile_.graphs:
            place: tuple[str, int] | None = None
            for line in context.recording.text(graph.event).splitlines():
                if (at := _FILE.match(line)) is not None:
                    place = (at[1], int(at[2]))
                elif called.search(line) and place is not None and is_user_file(place[0]):
                    return place
    return None


def _telling(message: str, pattern: re.Pattern[str]) -> str:
    """The line that the pattern stands in, else the first one."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if "fake (aka meta)" in pattern.pattern.replace("\\", ""):
        return lines[0][:200] if lines else ""
    return next((line for line in lines if pattern.search(line)), lines[0] if lines else "")[:300].rstrip(".")
