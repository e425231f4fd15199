"""Breaks at many lines of packages: one finding per call of the user's, which loses nothing of what each line's said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fxscope.diagnosis.breaks import findings
from fxscope.diagnosis.context import Context
from fxscope.recording.records import GraphBreak

BRANCH = ("GB0170", "Data-dependent branching", "if x.any():")
PRINT = ("GB0059", "Failed to trace builtin operator", "print(x)", "builtin print [<class 'TensorVariable'>] False")
CATCH = ("GB0119", "Observed exception", "raise ValueError")
STOP = ("GB0025", "Call to `torch._dynamo.graph_break()`", "torch._dynamo.graph_break()")
WAIT = ("GB0033", "Data dependent operator", "if torch.equal(a, b):", "aten.equal.default")


def broken(line: int, gb_id: str, kind: str, code: str, context: str = "") -> GraphBreak:
    return GraphBreak(
        site=f"boxes.py:{line}",
        file="/opt/python/site-packages/acme/ops/boxes.py",
        line=line,
        code=code,
        gb_id=gb_id,
        kind=kind,
        context=context,
        explanation="",
        user_file="/home/me/infer.py",
        user_line=7,
        user_code="out = model(x)",
    )


def context(rows: list[GraphBreak]) -> Context:
    recording: Any = SimpleNamespace(
        graph_breaks=rows,
        compiles=[],
        totals=SimpleNamespace(graphs=2),
        session=SimpleNamespace(path="my run", argv=["infer.py"], cwd=None, options={}),
    )
    return Context(recording)


def test_breaks_all_over_a_package_are_one_finding() -> None:
    """One change of the caller's takes all of them away; a setting has a finding of its own."""
    rows = [broken(line, *BRANCH) for line in (3, 5, 7, 9)]
    rows.append(broken(11, "GB0036", "Dynamic shape operator", "keep = torch.where(keep)[0]"))
    for row in rows:
        row.count = row.line
    rows[1].skipped_frame = True
    whole, alone = sorted(findings(context(rows)), key=lambda finding: -len(finding.evidence))
    assert whole.title == "24 break events at 4 lines of acme that this call reaches; functions of it run eager"
    assert (whole.file, whole.line, whole.severity, len(whole.evidence)) == ("/home/me/infer.py", 7, "high", 4)
    assert whole.ids == ["data-dependent-branch", "library-code", "frame-skipped"]
    assert whole.verify.endswith("&& fxscope diff 'my run'")
    assert (alone.change, alone.ids[0]) == ("config:capture_dynamic_output_shape_ops=True", "dynamic-output-shape")
    rows.pop(0)
    assert len(findings(context(rows))) == 4


def test_what_a_package_could_do_is_told_once_per_thing_with_its_lines() -> None:
    """Four things: three in full, the ones with most lines first, and where the fourth stands."""
    kinds = [*[BRANCH] * 4, *[PRINT] * 2, CATCH, WAIT]
    (whole,) = findings(
        context([broken(line, *kind) for line, kind in zip((9, 4, 11, 5, 1, 2, 3, 8), kinds, strict=True)])
    )
    ours, branches, prints, catch, rest = whole.fix.split("\n")
    assert ours.startswith("The code there belongs to acme and is not yours to edit: compile the parts")
    assert branches.startswith(
        "In acme itself (boxes.py:4, boxes.py:5, boxes.py:9, boxes.py:11): Make the choice on the device"
    )
    assert prints.startswith("In acme itself (boxes.py:1, boxes.py:2): Guard the line while compiling")
    assert catch.startswith("In acme itself (boxes.py:3): ")
    assert rest == "What to do at boxes.py:8: fxscope report --all 'my run'"


def test_more_lines_than_can_be_named_are_counted() -> None:
    (whole,) = findings(context([broken(line, *BRANCH) for line in range(1, 10)]))
    assert whole.cause.startswith(
        "acme (boxes.py:1, boxes.py:2, boxes.py:3, boxes.py:4, boxes.py:5, boxes.py:6 and 3 more): "
    )
    assert (
        "In acme itself (boxes.py:1, boxes.py:2, boxes.py:3, boxes.py:4, boxes.py:5, boxes.py:6 and 3 more): "
        in whole.fix
    )


def test_several_causes_of_one_line_are_told_apart() -> None:
    """The first cause's text ends where the words about the second begin."""
    rows = [broken(line, *BRANCH) for line in range(1, 5)] + [broken(1, *PRINT)]
    (whole,) = findings(context(rows))
    _, branches, prints = whole.fix.split("\n")
    assert "Then, at the same line" not in whole.fix
    assert branches.startswith("In acme itself (boxes.py:1, boxes.py:2, boxes.py:3, boxes.py:4): Make the choice")
    assert prints.startswith("In acme itself (boxes.py:1): Guard the line")


def test_a_break_on_purpose_of_a_package_is_not_laid_at_torchs_door() -> None:
    (alone,) = findings(context([broken(4, *STOP)]))
    assert "In acme itself: The break is on purpose there" in alone.fix
