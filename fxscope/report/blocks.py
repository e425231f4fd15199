"""Parts of the report that only some logs have, as lines that the terminal and the page show alike."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from fxscope.diagnosis.context import short_seconds
from fxscope.recording.spans import spans
from fxscope.recording.vllm import VllmCompile, VllmPart, read_vllm
from fxscope.report.columns import short_path
from fxscope.report.document import link_rows, provenance_rows
from fxscope.report.ranks import rank_table, ranks_report
from fxscope.report.safe import plain_line
from fxscope.report.stacks import stack_lines
from fxscope.words import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fxscope.recording.provenance import Provenance
    from fxscope.recording.recording import Recording


class Block(msgspec.Struct, kw_only=True):
    """One part.

    Attributes:
        anchor: Its name on the page.
        lines: All of it; a terminal shows the first few.
        what: What a line is, for "12 more kernels".
    """

    anchor: str
    title: str
    lines: list[str]
    what: str


def blocks(recording: Recording, *, stacks: bool) -> Iterator[Block]:
    """The parts that this recording has something for.

    Args:
        recording: What is shown.
        stacks: Also where compiles come from, which is long.
    """
    if (ranks := ranks_report(recording)) is not None:
        lines = [
            *rank_table(ranks.ranks),
            *map(plain_line, ranks.notes),
            *(f"{found.severity}: {plain_line(found.title)}" for found in ranks.findings),
        ]
        if not ranks.findings:
            lines.append("the ranks agree")
        yield Block(
            anchor="ranks", title=f"Ranks: {len(ranks.ranks)}", lines=lines, what="ranks or findings: fxscope ranks"
        )
    if rows := provenance_rows(recording):
        lines = _once_for_all_ranks(
            (row.key, line) for row in rows for maps in row.maps for line in _kernel_lines(maps)
        )
        yield Block(anchor="kernels", title="Kernels and the nodes they compute", lines=lines, what="lines of kernels")
    for number, compile_ in enumerate(read_vllm(recording)):
        yield Block(anchor=f"vllm{number}", title="vLLM", lines=_vllm_lines(recording, compile_), what="parts")
    if links := link_rows(recording):
        lines = [plain_line(f"{row.id or '-'}  {row.name}  {row.url}") for row in links]
        yield Block(anchor="links", title="Links", lines=lines, what="links")
    if stacks and (lines := stack_lines(recording)):
        yield Block(anchor="stacks", title="Where compiles come from", lines=lines, what="frames")


def _once_for_all_ranks(lines: Iterable[tuple[str, str]]) -> list[str]:
    """Lines under the keys of their compiles; one that several ranks share is told once."""
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for key, line in lines:
        rank, colon, id_ = key.removeprefix("r").partition(":")
        if key.startswith("r") and colon and rank.isdecimal():
            ranks_of.setdefault((id_, line), []).append(int(rank))
        else:
            ranks_of.setdefault((key, line), [])
    told = []
    for (id_, line), ranks in ranks_of.items():
        where = f"{id_} on ranks {spans(ranks, 1)}" if len(ranks) > 1 else f"r{ranks[0]}:{id_}" if ranks else id_
        told.append(plain_line(f"{where} {line}"))
    return told


def _kernel_lines(maps: Provenance) -> Iterator[str]:
    for kernel in maps.kernels:
        at = f"line {', '.join(map(str, kernel.lines[-1:]))}" if kernel.lines else "not in the code"
        parts = [f"{maps.stage}  {kernel.name}, {at}"]
        if kernel.post_grad:
            parts.append(f"computes {', '.join(kernel.post_grad)}")
        if kernel.pre_grad:
            parts.append(f"from {', '.join(kernel.pre_grad)}")
        if kernel.sources:
            parts.append("at " + ", ".join(f"{short_path(line.file)}:{line.line}" for line in kernel.sources))
        yield "  ".join(parts)
    for node in maps.pre_to_post:
        kernels = [kernel.name for kernel in maps.of_node(node)]
        yield f"{maps.stage}  node {node} goes into {', '.join(kernels) or 'no kernel'}"


def _vllm_lines(recording: Recording, compile_: VllmCompile) -> list[str]:
    settings = {name: value for name, value in compile_.config.items() if value}
    model = settings.pop("model", "unknown")
    lines = [plain_line(f"model {model}" + (f", {compile_.event.replace('_', ' ')}" if compile_.event else ""))]
    ranges: dict[tuple[str, bool], list[VllmPart]] = {}
    for part in compile_.parts:
        ranges.setdefault((part.sizes, part.cudagraph), []).append(part)
    for (sizes, cudagraph), parts in ranges.items():
        kind = f"sizes {sizes}" if "-" in sizes else f"size {sizes}" if sizes else "any size"
        told = ", ".join(_vllm_part(part) for part in parts)
        took = short_seconds(sum(part.seconds for part in parts))
        how = ", CUDA graph" if cudagraph else ""
        lines.append(plain_line(f"{kind}{how}: {count(len(parts), 'part')} in {took}: {told}"))
    if compile_.execution_code is not None:
        lines.append("code that calls the parts: fxscope events PATH --type vllm_execution_code --payload")
    lines += _vllm_passes(recording, compile_)
    if settings:
        lines.append(plain_line("settings: " + "; ".join(f"{name} {value}" for name, value in settings.items())))
    return lines


def _vllm_part(part: VllmPart) -> str:
    """``submod_2 12 s (forward.code#1)``: a part, how long it took, and where its code is."""
    code = [name for name in part.artifacts if name.partition("#")[0].endswith(".code")]
    return f"{part.name} {short_seconds(part.seconds)} ({', '.join(code) or 'no code'})"


def _vllm_passes(recording: Recording, compile_: VllmCompile) -> list[str]:
    """What each of vLLM's own passes did to the graphs of all parts."""
    ran: dict[str, list[Counter[str]]] = {}
    runs: Counter[str] = Counter()
    for part in compile_.parts:
        for step in part.passes:
            changes = ran.setdefault(step.name, [])
            runs[step.name] += 1
            if step.before is None:
                continue
            before, after = (Counter(recording.text(event).splitlines()) for event in (step.before, step.graph))
            changes.append(Counter(gone=(before - after).total(), new=(after - before).total()))
    lines = []
    for name, changes in ran.items():
        patterns = ", its patterns are in the log" if name in compile_.patterns else ""
        if not changes:
            what = f"ran on {count(runs[name], 'graph')}, the graph before it is not in the log"
            lines.append(plain_line(f"pass {name}: {what}{patterns}"))
            continue
        changed = sum(bool(change.total()) for change in changes)
        total = sum(changes, Counter())
        what = f"{total['gone']} lines gone, {total['new']} new" if changed else "found nothing to change"
        lines.append(plain_line(f"pass {name}: changed {changed} of {count(len(changes), 'graph')}, {what}{patterns}"))
    return lines
