"""``fxscope passes --json``: what each step did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fxscope.passes.application import Match
from fxscope.passes.fx_records import records, source_site
from fxscope.passes.joint import CutRow
from fxscope.passes.upstream import Upstream

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.passes.stepper import Culprit, Step, Stepper


class StepRow(msgspec.Struct, kw_only=True):
    """One step.

    Attributes:
        pass_: Name of the pass.
        application: Number of the application within its pass with ``--single``, else null.
        status: applied, unchanged, failed or numbers (the result differs beyond rounding).
        max_abs_diff: Largest absolute difference to the step before on the probe inputs; null where not checked, or infinite.
        max_rel_diff: The same relative to the largest magnitude of the output.
        within: Whether that counts as rounding.
        text: What is wrong where it is not a number, or how a fp64 reference judged.
        state_removed: Keys of the ``state_dict`` that are needed no more after the step (the graph before it still has them).
        state_added: New keys; the matches say what each replaces.
        diff: Names of added and removed nodes, and what changed.
        lines: The graph after the step, one line a node, with ``--code``.
    """

    pass_: str = msgspec.field(name="pass")
    application: int | None
    status: str
    error: str | None
    matches: list[Match]
    nodes_before: int
    nodes_after: int
    max_abs_diff: float | None
    max_rel_diff: float | None
    max_abs_diff_start: float | None
    max_rel_diff_start: float | None
    tolerance: float | None
    within: bool | None
    text: str
    ms: float
    doc: str
    state_removed: list[str]
    state_added: list[str]
    diff: dict[str, Any]
    lines: list[str] | None = None


class CulpritRow(msgspec.Struct, kw_only=True):
    """``--bisect``: the first application that changed the numbers."""

    pass_: str = msgspec.field(name="pass")
    match: Match | None
    max_abs_diff: float
    max_rel_diff: float


class PassesDocument(msgspec.Struct, kw_only=True):
    """Everything ``fxscope passes`` shows.

    Attributes:
        graph: The compile id.
        lines: The graph before the first step, with ``--code``.
        notes: What could not be checked, or differs from the recorded graph.
        cuts: Ways to cut the training graph, with ``--cuts``.
    """

    schema: Literal["fxscope.passes/1"] = "fxscope.passes/1"
    graph: str
    stage: str
    pipeline: list[str]
    steps: list[StepRow]
    notes: list[str]
    culprit: CulpritRow | None = None
    upstream: list[Upstream] | None = None
    cuts: list[CutRow] | None = None
    lines: list[str] | None = None


def passes_document(
    stepper: Stepper,
    *,
    graph: str,
    stage: str,
    notes: list[str],
    culprit: Culprit | None = None,
    code: bool = False,
    upstream: list[Upstream] | None = None,
    cuts: list[CutRow] | None = None,
) -> PassesDocument:
    """The document of a stepper that has run."""
    return PassesDocument(
        graph=graph,
        stage=stage,
        pipeline=[item.name for item in stepper.passes],
        steps=[step_row(step, code=code) for step in stepper.steps],
        notes=[*notes, *stepper.notes],
        culprit=None
        if culprit is None
        else CulpritRow(
            pass_=culprit.step.name,
            match=culprit.match,
            max_abs_diff=culprit.difference.max_abs,
            max_rel_diff=culprit.difference.max_rel,
        ),
        upstream=upstream,
        cuts=cuts,
        lines=graph_lines(stepper.start) if code else None,
    )


def step_row(step: Step, *, code: bool = False) -> StepRow:
    """One step as data; the structural difference is computed now."""
    previous, start = step.to_previous, step.to_start
    same = step.status in ("unchanged", "failed")
    return StepRow(
        pass_=step.name,
        application=step.application,
        status=step.status,
        error=step.error,
        matches=step.matches,
        nodes_before=step.nodes_before,
        nodes_after=step.nodes_after,
        max_abs_diff=previous.max_abs if previous else None,
        max_rel_diff=previous.max_rel if previous else None,
        max_abs_diff_start=start.max_abs if start else None,
        max_rel_diff_start=start.max_rel if start else None,
        tolerance=previous.tolerance if previous else None,
        within=previous.within if previous else None,
        text=previous.text if previous else "",
        ms=round(step.seconds * 1e3, 3),
        doc=step.doc,
        state_removed=step.state_removed,
        state_added=step.state_added,
        diff={"added": [], "removed": [], "changed": []} if same else step.diff().to_json(),
        lines=graph_lines(step.after) if code else None,
    )


def graph_lines(gm: GraphModule) -> list[str]:
    """A graph, one line a node: ``name = target(arguments)  f32[2, 3]  model.py:12``."""
    from fxscope.graph.arguments import call_text
    from fxscope.graph.table import shape_text

    lines = []
    for node, record in zip(gm.graph.nodes, records(gm).nodes, strict=True):
        shape = shape_text(record)
        lines.append(
            "  ".join(
                part
                for part in (f"{record.name} = {record.target}({call_text(record)})", shape, source_site(node))
                if part
            )
        )
    return lines
