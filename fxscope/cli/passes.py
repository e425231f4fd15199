"""``fxscope passes``: step passes over a recorded graph."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fxscope.cli import options
from fxscope.words import count

if TYPE_CHECKING:
    from fxscope.passes.stepper import Step

MARKS = {"applied": "✔", "unchanged": "·", "failed": "✖", "numbers": "✖"}


@click.command(
    epilog="\b\nExample:\n  fxscope passes run.fxscope --graph 0/0 --pipeline conv-bn-fold,decompose:inductor,freeze --inference"
)
@click.argument("path", required=False, type=click.Path())
@options.graph
@options.stage
@click.option("--pipeline", metavar="A,B,C", help="Passes in order: names, name:argument, or FILE.py:FUNCTION.")
@click.option("--single", is_flag=True, help="One step per application instead of one per pass.")
@click.option("--bisect", "bisecting", is_flag=True, help="Name the first application that changes the numbers.")
@click.option(
    "--inference",
    is_flag=True,
    help="Promise that no gradient is needed (parameters become attributes, and freeze may evaluate them).",
)
@click.option("--no-numbers", is_flag=True, help="Do not run the graph; structure only.")
@click.option(
    "--tolerance", type=options.Amount(), metavar="X", help="What counts as rounding, relative to the output's scale."
)
@click.option("--seed", default=0, show_default=True, help="Of the probe inputs.")
@click.option("--upstream", is_flag=True, help="Also run what PyTorch itself would do, and compare.")
@click.option(
    "--cuts", "cutting", is_flag=True, help="Cut the training graph: what is saved, recomputed, by memory budget."
)
@click.option("--list", "listing", is_flag=True, help="List the passes, with what each does.")
@click.option("--code", is_flag=True, help="Print the graph after each step; with --json, as `lines`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema passes).")
def command(
    path: str | None,
    graph_id: str | None,
    stage: str,
    pipeline: str | None,
    single: bool,
    bisecting: bool,
    inference: bool,
    no_numbers: bool,
    tolerance: float | None,
    seed: int,
    upstream: bool,
    cutting: bool,
    listing: bool,
    code: bool,
    as_json: bool,
) -> None:
    """Step passes over a recorded graph, with diffs and a numeric check after each.

    The graph is rebuilt from the log and run on inputs made from its descriptions. Exit code 1: a step failed, or changed the
    numbers beyond rounding.
    """
    from fxscope.errors import UsageError

    if listing:
        _list()
        return
    if path is None:
        raise UsageError("fxscope passes needs a recording: fxscope passes PATH --graph ID (or --list)")
    from fxscope.passes.document import passes_document
    from fxscope.passes.numeric import TOLERANCES
    from fxscope.passes.pipeline import parse
    from fxscope.passes.recorded import load
    from fxscope.passes.stepper import Stepper, bisect

    chosen = parse(pipeline)  # before the graph is rebuilt, so that a misspelt name costs nothing
    found = load(path, graph_id, stage, seed=seed, bind=inference)
    stepper = Stepper(
        found.module,
        chosen,
        found.inputs,
        single=single,
        inference=inference,
        numbers=not no_numbers,
        tolerances=None if tolerance is None else dict.fromkeys(TOLERANCES, tolerance),
    )

    def show(step: Step) -> None:
        stepper.measure_matches(step)
        if not as_json:
            _print_step(step, code)

    if not as_json:
        click.echo(f"graph {found.id}, stage {stage}: {count(len(found.module.graph.nodes), 'node')}")
    stepper.run(show)
    culprit = bisect(stepper) if bisecting else None
    report = None
    if upstream:
        from fxscope.passes.upstream import would_do

        report = would_do(found.module, found.inputs)
        report += _peer(stepper)
    cuts = _cuts(path, found.id, stage, seed) if cutting else None
    if as_json:
        document = passes_document(
            stepper,
            graph=found.id,
            stage=stage,
            notes=found.notes,
            culprit=culprit,
            code=code,
            upstream=report,
            cuts=cuts,
        )
        _write_json(document)
    else:
        _print_end(stepper, found.notes, culprit, report, bisecting)
        _print_cuts(cuts or [])
    if any(step.status in ("failed", "numbers") for step in stepper.steps):
        sys.exit(1)


def _cuts(path: str, graph_id: str, stage: str, seed: int) -> Any:
    """Cut the joint graph of the log where the stage is ``joint``, else trace one from the graph here."""
    from fxscope.passes.joint import cut_rows, joint_from_graph, to_joint
    from fxscope.passes.recorded import load

    found = load(path, graph_id, stage, seed=seed, requires_grad=True)
    if stage != "joint":
        return cut_rows(to_joint(found.module, found.inputs))
    from fxscope.passes.fakes import propagate_named

    propagate_named(found.module, found.inputs)
    return cut_rows(joint_from_graph(found.module))


def _peer(stepper: Any) -> list[Any]:
    """PyTorch's partitioner on what a partition step was given, for ten seconds at most."""
    from fxscope.passes.peer import capability_based
    from fxscope.passes.upstream import Upstream
    from fxscope.targets.registry import target

    rows = []
    for step in stepper.steps:
        if step.name.startswith("partition:") and step.status != "failed":
            found = capability_based(step.before, target(step.name.partition(":")[2]).supports, 10.0)
            ours = sum(match.applied or match.reason == "benefit" for match in step.matches)
            text = (
                f"{found.text.removeprefix('CapabilityBasedPartitioner: ')}; here {ours} in {step.seconds * 1e3:.0f} ms"
            )
            status = "right" if found.islands is not None else "raised"
            rows.append(Upstream(tool="CapabilityBasedPartitioner", status=status, text=text))
    return rows


def _print_cuts(cuts: list[Any]) -> None:
    if not cuts:
        return
    click.echo(f"{'cut':<9} {'budget':>6} {'activations':>14} {'inputs':>14} {'recomputed':>10} {'GFLOP':>8}")
    for row in cuts:
        click.echo(
            f"{row.partitioner:<9} {row.budget:>6.2f} {row.activation_bytes:>14,} {row.input_bytes:>14,} "
            f"{len(row.recomputed):>10} {row.recomputed_flops / 1e9:>8.3g}"
        )


def _list() -> None:
    from fxscope.passes import pipeline

    built_in = {item.name: item for item in pipeline.BUILT_IN}  # find would miss what some of them must be told
    for name in pipeline.names():
        item = built_in.get(name) or pipeline.find(name)
        click.echo(f"{item.name}{f'  (needs {chr(44).join(item.requires)})' if item.requires else ''}")
        for line in item.doc.splitlines():
            click.echo(f"    {line}" if line else "")
        click.echo()
    click.echo(f"default pipeline: {','.join(pipeline.DEFAULT)}")


def _print_step(step: Step, code: bool) -> None:
    from fxscope.passes.document import graph_lines
    from fxscope.report.safe import plain_line

    name = step.name if step.application is None else f"{step.name} #{step.application}"
    nodes = f"{step.nodes_before} -> {step.nodes_after} nodes"
    numbers = ""
    if step.to_previous is not None and step.status != "unchanged":
        numbers = f"max |Δ| {step.to_previous.max_abs:.1e}, relative {step.to_previous.max_rel:.1e}"
        numbers += " ok" if step.status != "numbers" else f" BEYOND {step.to_previous.tolerance:.0e}"
    applied = [match for match in step.matches if match.applied]
    left = [match for match in step.matches if not match.applied]
    counts = f"{len(applied)} applied" + (f", {len(left)} not" if left else "") if step.matches else ""
    parts = [part for part in (step.status, nodes, counts, f"{step.seconds * 1e3:.0f} ms", numbers) if part]
    click.echo(f"{MARKS[step.status]} {name:<20} {'  '.join(parts)}")
    if step.error:
        click.echo(f"    {plain_line(step.error)}")
    if step.to_previous is not None and step.to_previous.text:
        click.echo(f"    {plain_line(step.to_previous.text)}")
    for match in applied[:6]:
        click.echo(f"    ✔ {_match_text(match)}")
    if len(applied) > 6:
        click.echo(f"    ✔ ... and {len(applied) - 6} more (--json has all)")
    by_reason: dict[str, list[Any]] = {}
    for match in left:
        by_reason.setdefault(match.reason or "", []).append(match)
    for reason, matches in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        click.echo(f"    - {reason} x{len(matches)}: {_match_text(matches[0])}")
    removed, added = step.state_removed, step.state_added
    if removed or added:
        click.echo(
            f"    state_dict: {_keys('without', removed)}{', ' if removed and added else ''}{_keys('with', added)}"
        )
    if code:
        for line in graph_lines(step.after):
            click.echo(f"        {plain_line(line)}")


def _keys(word: str, keys: list[str]) -> str:
    from fxscope.report.safe import plain_line

    if not keys:
        return ""
    return plain_line(f"{word} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}")


def _match_text(match: Any) -> str:
    from fxscope.report.safe import plain_line

    nodes = " + ".join(match.nodes[:3]) + (f" + {len(match.nodes) - 3} more" if len(match.nodes) > 3 else "")
    where = f"  {match.source}" if match.source else ""
    moved = (
        "" if match.max_abs_diff is None else f"; max |Δ| {match.max_abs_diff:.1e}, relative {match.max_rel_diff:.1e}"
    )
    return plain_line(f"{nodes}{where}{f': {match.text}' if match.text else ''}{moved}")


def _print_end(stepper: Any, notes: list[str], culprit: Any, report: Any, bisecting: bool) -> None:
    from fxscope.report.safe import plain_line

    for note in [*notes, *stepper.notes]:
        click.echo(f"note: {plain_line(note)}", err=True)
    checked = [step for step in stepper.steps if step.to_start is not None]
    if checked:
        last = checked[-1].to_start
        click.echo(f"against the start: max |Δ| {last.max_abs:.1e}, relative {last.max_rel:.1e}")
    if culprit is not None:
        what = _match_text(culprit.match) if culprit.match is not None else "the pass as a whole"
        click.echo(f"bisect: {culprit.step.name} changes the numbers first, at {what}")
    elif bisecting:
        click.echo("bisect: no step changes the numbers beyond rounding")
    for row in report or ():
        mark = {"right": "✔", "wrong": "✖"}.get(row.status, "·")
        click.echo(f"{mark} upstream {row.tool:<24} {plain_line(row.text)}")


def _write_json(document: Any) -> None:
    from fxscope.report.document import encode_document

    click.echo(encode_document(document))


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    import msgspec

    from fxscope.passes.document import PassesDocument

    return msgspec.json.schema(PassesDocument)
