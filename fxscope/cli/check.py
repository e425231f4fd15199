"""``fxscope check``: fail when a run does more than its budget or its baseline allows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from fxscope.cli import newest, options
from fxscope.errors import CheckFailed, UsageError


@click.command(
    epilog="\b\nExample:\n  fxscope check run.fxscope --max-graph-breaks 0 --max-recompiles 1 --junit fxscope.xml"
)
@newest.path
@click.option("--max-graph-breaks", type=click.IntRange(min=0), help="Break events that are allowed.")
@click.option("--max-recompiles", type=click.IntRange(min=0), help="Recompiles that are allowed.")
@click.option("--max-compile-seconds", type=options.Amount(), help="Seconds of compiling that are allowed.")
@click.option(
    "--fail-on",
    type=click.Choice(["high", "medium", "low", "info"]),
    help="Fail on findings of this severity or worse (medium where nothing else is asked for).",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(),
    help="Known breaks and recompiles; only what goes beyond them fails.",
)
@click.option(
    "--update-baseline",
    is_flag=True,
    help="Write the run's breaks and recompiles into --baseline FILE instead of comparing.",
)
@click.option(
    "--allow-failed",
    is_flag=True,
    help="Judge a program that failed, was killed or started again, or in which torch.compile failed.",
)
@click.option("--allow-nothing", is_flag=True, help="Judge a run in which no graph was compiled.")
@click.option("--junit", "junit_file", metavar="FILE", type=click.Path(), help="Write JUnit XML.")
@click.option("--sarif", "sarif_file", metavar="FILE", type=click.Path(), help="Write SARIF 2.1.0 of the findings.")
@click.option("--github", is_flag=True, help="Print GitHub annotations: an error for what failed, and the findings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema check).")
def command(
    path: str,
    max_graph_breaks: int | None,
    max_recompiles: int | None,
    max_compile_seconds: float | None,
    fail_on: Any,
    baseline: str | None,
    update_baseline: bool,
    allow_failed: bool,
    allow_nothing: bool,
    junit_file: str | None,
    sarif_file: str | None,
    github: bool,
    as_json: bool,
) -> None:
    """Fail (exit code 1) when a recording is over its budget or beyond its baseline.

    A program that failed and one that compiled nothing are within every budget: they fail too, unless that is allowed.
    Without PATH: the newest recording in the current folder.
    """
    from fxscope.diagnosis.budget import Budget, baseline_of, load_baseline, save_baseline, violations
    from fxscope.diagnosis.completion import incomplete, open_ends
    from fxscope.recording.recording import open_recording

    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs --baseline FILE")
    recording = open_recording(path)
    if recording.session.state == "live":
        click.echo(f"fxscope: {path} is still written: what is there so far is judged", err=True)
    for open_end in open_ends(recording) if allow_failed else ():  # else they are among what failed
        click.echo(f"fxscope: {path}: {open_end}", err=True)
    if update_baseline and baseline is not None:
        unfit = incomplete(recording, allow_failed=allow_failed, allow_nothing=allow_nothing)
        if unfit:
            raise CheckFailed(f"{path}: no baseline written: {unfit[0].message}")
        save_baseline(baseline, baseline_of(recording))
        click.echo(f"wrote {baseline}", err=True)
        return
    asked = (max_graph_breaks, max_recompiles, max_compile_seconds, baseline, fail_on)
    budget = Budget(
        max_graph_breaks=max_graph_breaks,
        max_recompiles=max_recompiles,
        max_compile_seconds=max_compile_seconds,
        fail_on="medium" if all(limit is None for limit in asked) else fail_on,
    )
    known = load_baseline(baseline) if baseline is not None else None
    unfit = incomplete(recording, known, allow_failed=allow_failed, allow_nothing=allow_nothing)
    found = violations(recording, budget, known)
    told = {each.rule for each in found}
    # Where findings are asked for, they say the same, and more.
    found = [each for each in unfit if each.rule != "compiled" or "nothing-compiled" not in told] + found
    rules = [*([] if allow_failed else ["program"]), *([] if allow_nothing or known is not None else ["compiled"])]
    rules += [
        name.replace("_", "-")
        for name in ("max_graph_breaks", "max_recompiles", "max_compile_seconds")
        if getattr(budget, name) is not None
    ]
    rules += ["baseline"] if known is not None else []
    rules += ["findings"] if budget.fail_on is not None and not found else []
    _write(path, recording, rules, found, junit_file, sarif_file, github)
    if as_json:
        from fxscope.report.document import encode_document

        click.echo(encode_document(_document(path, recording, rules, found)))
    else:
        _print(recording, rules, found)
    if found:
        raise CheckFailed(
            f"{path}: {len(found)} of the checks failed" if len(found) > 1 else f"{path}: {found[0].message}"
        )


def _write(
    path: str,
    recording: Any,
    rules: list[str],
    found: list[Any],
    junit_file: str | None,
    sarif_file: str | None,
    github: bool,
) -> None:
    from fxscope.diagnosis.diagnose import diagnose

    if junit_file is not None:
        from fxscope.report.junit import junit

        Path(junit_file).write_text(junit(path, rules, found, recording.totals.compile_seconds), encoding="utf-8")
    if sarif_file is None and not github:
        return
    findings = diagnose(recording)
    root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
    if sarif_file is not None:
        from fxscope.report.sarif import sarif

        Path(sarif_file).write_text(sarif(findings, root), encoding="utf-8")
    if github:
        from fxscope.report.github import annotation, failure

        told = {(each.file, each.line, each.rule) for each in found}
        for violation in found:
            click.echo(failure(violation, root))
        for finding in findings:
            if (finding.file, finding.line, finding.ids[0]) in told:
                continue  # --fail-on made it a failure
            click.echo(annotation(finding, root))


def _print(recording: Any, rules: list[str], found: list[Any]) -> None:
    from fxscope.report.safe import plain_line
    from fxscope.words import count

    totals = recording.totals
    click.echo(
        f"{count(totals.graph_breaks, 'graph break')}, {count(totals.recompiles, 'recompile')}, {count(totals.limit_hits, 'limit hit')}, "
        f"{count(totals.failures, 'failure')}, {totals.compile_seconds:.1f} s of compiling"
    )
    failed = {violation.rule for violation in found}
    for rule in rules:
        if rule not in failed:
            click.echo(f"ok    {rule}")
    for violation in found:
        click.echo(f"FAIL  {violation.rule}: {plain_line(violation.message)}")
        for detail in violation.details:
            if detail:
                click.echo(f"      {plain_line(detail)}")


def _document(path: str, recording: Any, rules: list[str], found: list[Any]) -> dict[str, Any]:
    return {
        "schema": "fxscope.check/1",
        "path": path,
        "passed": not found,
        "totals": recording.totals,
        "rules": rules,
        "violations": found,
    }


def json_schema() -> dict[str, Any]:
    """Schema of ``--json``."""
    import msgspec

    from fxscope.diagnosis.budget import Violation
    from fxscope.recording.records import Totals

    (totals, violation), components = msgspec.json.schema_components([Totals, Violation], ref_template="#/$defs/{name}")
    return {
        "type": "object",
        "required": ["schema", "path", "passed", "totals", "rules", "violations"],
        "properties": {
            "schema": {"const": "fxscope.check/1"},
            "path": {"type": "string"},
            "passed": {"type": "boolean"},
            "totals": totals,
            "rules": {"type": "array", "items": {"type": "string"}},
            "violations": {"type": "array", "items": violation},
        },
        "$defs": components,
    }
