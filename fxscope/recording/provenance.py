"""Which nodes a kernel came from and which kernels a node went into, by name and by line of Inductor's code.

Inductor writes the maps when ``INDUCTOR_PROVENANCE=1`` (``torch._inductor.config.trace.provenance_tracking_level``) is set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.recording.tracebacks import read_stack
from fxscope.source import SourceLine
from fxscope.trace.line import BadEnvelope, decode_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile, GraphText

_MAPPINGS = "inductor_provenance_tracking_node_mappings"
_STACKS = "inductor_provenance_tracking_kernel_stack_traces"
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+)")
_DEFINITION = re.compile(r"^(\w+) = async_compile\.\w+\(")
_CALL = re.compile(r"^\s+(?:\w+ = )?((?:extern_kernels\.)?\w+)(?:\.run)?\(")


class Kernel(msgspec.Struct, kw_only=True):
    """One kernel (or library call) of Inductor's code.

    Attributes:
        name: With its handle where the log has one: ``extern_kernels.addmm:1``.
        post_grad: Nodes of the post-grad graph that it computes.
        pre_grad: Nodes of the graph before AOTAutograd that those came from.
        lines: Lines of the code that define or call it, 1-based.
        sources: The user's lines, where the log says.
    """

    name: str
    post_grad: tuple[str, ...] = ()
    pre_grad: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    sources: tuple[SourceLine, ...] = ()


class Provenance(msgspec.Struct, kw_only=True):
    """The maps of one piece of generated code.

    Attributes:
        stage: ``forward.code`` or ``backward.code``.
        kernels: In order of their first call.
        post_to_pre: Post-grad node to the nodes before AOTAutograd.
        pre_to_post: The reverse.
    """

    stage: str
    kernels: list[Kernel] = msgspec.field(default_factory=list)
    post_to_pre: dict[str, list[str]] = msgspec.field(default_factory=dict)
    pre_to_post: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def of_node(self, node: str) -> list[Kernel]:
        """Kernels that compute a node, of the post-grad graph or of the one before AOTAutograd."""
        return [kernel for kernel in self.kernels if node in kernel.post_grad or node in kernel.pre_grad]


def has_provenance(recording: Recording) -> set[str]:
    """Keys of the compiles of which Inductor wrote any map."""
    return {a.compile_key for a in recording.artifacts if a.compile_key and a.name in (_MAPPINGS, _STACKS)}


def read_provenance(recording: Recording, compile_: Compile) -> list[Provenance]:
    """Maps of each piece of code of one compile; an empty list where Inductor wrote none."""
    codes = sorted((g for g in compile_.graphs if g.stage.endswith(".code")), key=lambda g: g.event)
    found = []
    for number, code in enumerate(codes):
        # Inductor logs the maps of a graph between its code and the next graph's.
        stop = codes[number + 1].event if number + 1 < len(codes) else None
        mappings = _artifact(recording, compile_.key, _MAPPINGS, code.event, stop)
        stacks = _artifact(recording, compile_.key, _STACKS, code.event, stop)
        if mappings or stacks:
            found.append(_join(recording, code, mappings, stacks))
    return found


def _artifact(recording: Recording, key: str, name: str, start: int, stop: int | None) -> dict[str, Any]:
    for artifact in recording.artifacts:
        if artifact.compile_key == key and artifact.name == name and artifact.event > start:
            if stop is not None and artifact.event > stop:
                break
            try:
                value = decode_json(recording.text(artifact.event).encode())
            except BadEnvelope:
                return {}  # cut off; the reader's notes say that the log is torn
            return value if isinstance(value, dict) else {}
    return {}


def _join(recording: Recording, code: GraphText, mappings: dict[str, Any], stacks: dict[str, Any]) -> Provenance:
    post_to_pre = _table(mappings, "postToPre")
    kernel_to_post = _table(mappings, "cppCodeToPost")
    names = dict.fromkeys([*kernel_to_post, *stacks])
    lines = kernel_lines(recording.text(code.event), {name.rsplit(":", 1)[0] for name in names})
    kernels = []
    for name in names:
        post = kernel_to_post.get(name, [])
        bare = name.rsplit(":", 1)[0]
        kernels.append(
            Kernel(
                name=name,
                post_grad=tuple(post),
                pre_grad=tuple(dict.fromkeys(pre for node in post for pre in post_to_pre.get(node, ()))),
                lines=tuple(lines.get(name) or lines.get(bare) or ()),
                sources=tuple(
                    dict.fromkeys(stack[-1] for text in stacks.get(name) or () if (stack := read_stack(str(text))))
                ),
            )
        )
    kernels.sort(key=lambda kernel: kernel.lines[-1:] or (1 << 30,))
    return Provenance(
        stage=code.stage, kernels=kernels, post_to_pre=post_to_pre, pre_to_post=_table(mappings, "preToPost")
    )


def _table(mappings: dict[str, Any], key: str) -> dict[str, list[str]]:
    value = mappings.get(key)
    if not isinstance(value, dict):
        return {}
    return {str(k): [str(item) for item in v] for k, v in value.items() if isinstance(v, list)}


def kernel_lines(code: str, named: Collection[str] = ()) -> dict[str, list[int]]:
    """Lines (1-based) that define or call each kernel, under its bare name and, where the code names one, its handle.

    ``named`` are kernels that the code may call without defining them: AOTInductor's are in a file of their own.
    """
    found: dict[str, list[int]] = {}
    definition: str | None = None
    handle: str | None = None
    for number, line in enumerate(code.split("\n"), 1):
        if definition is not None:
            found[definition].append(number)
            if line.startswith("'''"):
                definition = None
            continue
        if start := _DEFINITION.match(line):
            found.setdefault(start[1], []).append(number)
            definition = start[1] if line.count("'''") % 2 else None
        elif mark := _HANDLE.search(line):
            handle = mark[1]
        elif call := _CALL.match(line):
            name = call[1]
            if name in found or name in named or name.startswith("extern_kernels."):
                found.setdefault(name, []).append(number)
                if handle is not None and handle.rsplit(":", 1)[0] == name:
                    own = found.setdefault(handle, list(found[name][:-1]) if "extern" not in name else [])
                    own.append(number)
            elif handle is not None and handle.rsplit(":", 1)[0] in named:
                found.setdefault(handle, []).append(number)  # wrapped in a check of the error code
            handle = None
    return found
