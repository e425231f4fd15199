"""What users meet inside of installed packages: told in words that they can act on, without a torch program to record."""

from __future__ import annotations

import ast
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from fxscope.diagnosis import frames
from fxscope.diagnosis.breaks import _cause_sentence
from fxscope.diagnosis.causes import cause_of
from fxscope.diagnosis.context import Context
from fxscope.diagnosis.findings import Finding
from fxscope.diagnosis.fixes import change_of, fix_of
from fxscope.diagnosis.frames import _nearest
from fxscope.diagnosis.guards import cause_of_guard
from fxscope.diagnosis.nothing import _other_method
from fxscope.diagnosis.recompiles import _severity, ids_of
from fxscope.diagnosis.remedies_size import dynamic_size
from fxscope.diagnosis.sharpen import _entry_number
from fxscope.diagnosis.statement import whole_code
from fxscope.diagnosis.story import Change, Frame
from fxscope.diagnosis.uncalled import other_method
from fxscope.recording.breaks import BreakText
from fxscope.recording.recompiles import parse_reason
from fxscope.recording.records import Compile, FailedGuard, GraphBreak, Recompile
from fxscope.recording.rows import _set_user_line
from fxscope.report.github import annotation
from fxscope.report.terminal import _Page
from fxscope.source import SourceLine

PACKAGE = "/opt/python/site-packages/acme/ops"


def broken(line: int) -> GraphBreak:
    return GraphBreak(
        site=f"boxes.py:{line}",
        file=f"{PACKAGE}/boxes.py",
        line=line,
        code="keep = torch.where(keep)[0]",
        gb_id="GB0036",
        kind="Dynamic shape operator",
        explanation="Operator `aten.nonzero.default` has a non-Tensor output whose shape is dependent on input Tensor data.",
        user_file="/home/me/infer.py",
        user_line=7,
        user_code="out = model(x)",
    )


def test_a_line_of_a_package_is_not_advised_to_be_rewritten_only() -> None:
    fix = fix_of(broken(3), cause_of(broken(3)))
    assert "The code there belongs to acme" in fix
    assert "infer.py" not in fix  # whoever prints it has said where
    assert PACKAGE not in fix


def test_what_nobody_can_edit_begins_with_what_can_be_done() -> None:
    """What is the caller's comes first, a setting where there is one; an edit is the package's own."""
    told = "The code there belongs to acme and is not yours to edit: try torch._dynamo.config.capture_dynamic_output_shape_ops = True, or compile"
    assert fix_of(broken(3), cause_of(broken(3))).startswith(told)
    row = broken(3)
    row.gb_id, row.kind, row.code = (
        "GB0291",
        "logging.Logger method not supported for non-export cases",
        "logger.info(x)",
    )
    row.context = row.explanation = "method: <bound method Logger.info of <Logger acme (WARNING)>>.info"
    assert (
        "not yours to edit: try torch._dynamo.config.ignore_logging_functions.add(logging.Logger.info), or compile"
        in fix_of(row, cause_of(row))
    )
    row = broken(3)
    row.gb_id, row.kind, row.code, row.explanation = "GB0170", "Data-dependent branching", "if x.any():", ""
    fix = fix_of(row, cause_of(row))
    assert fix.startswith(
        "The code there belongs to acme and is not yours to edit: compile the parts that do not reach it"
    )
    assert "\nIn acme itself: Make the choice on the device" in fix


@pytest.mark.parametrize(
    ("code", "kind", "gb_id", "context", "ids", "advice"),
    [
        (
            "if torch.equal(a, b):",
            "Data dependent operator",
            "GB0033",
            "aten.equal.default",
            "data-dependent-branch",
            "(a == b).all()",
        ),
        (
            "for k, v in sorted(kw.items()):",
            "sort with non-constant keys",
            "GB0207",
            "TupleVariable()",
            "unsupported-builtin",
            "key=lambda item: item[0]",
        ),
        (
            "for v in sorted(xs):",
            "sort with non-constant keys",
            "GB0207",
            "TensorVariable()",
            "data-dependent-branch",
            "argsort",
        ),
    ],
)
def test_no_setting_captures_a_comparison_of_tensors(
    code: str, kind: str, gb_id: str, context: str, ids: str, advice: str
) -> None:
    row = GraphBreak(
        site="a.py:3",
        file="/home/me/a.py",
        line=3,
        code=code,
        gb_id=gb_id,
        kind=kind,
        context=context,
        user_file="/home/me/a.py",
        user_line=3,
        user_code=code,
    )
    cause = cause_of(row)
    assert cause.ids[0] == ids
    assert advice in fix_of(row, cause)
    assert change_of(row, cause) == ""


@pytest.mark.parametrize(("then", "tried"), [("if n > 3:\n        x = x[:3]", False), ("x = x * n", True)])
def test_a_setting_is_not_proposed_where_the_package_decides_by_the_number(
    tmp_path: Path, then: str, tried: bool
) -> None:
    file = tmp_path / "site-packages" / "acme" / "codes.py"
    file.parent.mkdir(parents=True)
    file.write_text(f"def f(x, mask):\n    n = mask.sum().item()\n    {then}\n    return x\n")
    row = broken(2)
    row.file, row.code, row.gb_id = str(file), "n = mask.sum().item()", "GB0124"
    row.kind, row.explanation = "Unsupported Tensor.item() call with capture_scalar_outputs=False", ""
    cause = cause_of(row)
    assert change_of(row, cause) == ("config:capture_scalar_outputs=True" if tried else "")
    assert ("try torch._dynamo.config.capture_scalar_outputs = True" in fix_of(row, cause)) == tried


def test_one_advice_is_printed_once() -> None:
    rows = [broken(3), broken(9)]
    for row in rows:
        row.fix = fix_of(row, cause_of(row))
    out = io.StringIO()
    _Page(Console(file=out, width=80), 20).breaks(rows, 2, 2)
    text = out.getvalue()
    assert text.count("belongs to acme") == 1
    assert "→ as for boxes.py:3" in text


def test_the_users_line_is_that_of_the_stack_that_knows_most() -> None:
    main = SourceLine(file="/home/me/train.py", line=16, function="<module>", code="model(x)")
    forward = SourceLine(file="/home/me/train.py", line=9, function="forward", code="x = self.conv(x)")
    inside = SourceLine(file=f"{PACKAGE}/boxes.py", line=3, function="clip", code="")
    row = broken(3)
    for stack in ((main, inside), (main, forward, inside), (main, inside)):
        text = cast(BreakText, SimpleNamespace(stack=stack))
        if not row.stack:
            row.stack = stack
        _set_user_line(row, text)
    assert (row.user_line, row.user_code) == (9, "x = self.conv(x)")


def test_a_call_is_compared_with_the_entry_of_its_own_kind() -> None:
    """Prefill after decode: the newest entry has other keywords, the older one another size."""
    reasons = ["0/1: len(kwargs) == 7", "0/0: tensor 'x' size mismatch at index 1. expected 9, actual 12"]
    recompile = Recompile(id="0/2", key="0/2", failed=[parse_reason(each) for each in reasons])
    guard, cause = _nearest(recompile, resumed=False)
    assert (guard.entry, cause.ids) == ("0/0", ("dynamic-size", "container-size"))
    alone = Recompile(id="0/1", key="0/1", failed=[parse_reason(reasons[0])])
    assert _nearest(alone, resumed=False)[1].ids == ("container-size",)


def test_a_statement_of_several_lines_is_shown_whole(tmp_path: Path) -> None:
    file = tmp_path / "layer.py"
    file.write_text(
        "def f(x, m):\n    y = gather(\n        x,  # rows\n        m.nonzero(),\n    )\n"
        "    if all(\n        (x > 0).any()\n        for _ in m\n    ):\n        y = y + 1\n    return g(\n"
        + "x,\n" * 100
        + ")\n"
    )
    assert whole_code(str(file), 2, "    y = gather(") == "y = gather(x, m.nonzero())"
    assert whole_code(str(file), 6, "if all(") == "if all(((x > 0).any() for _ in m)):"
    assert whole_code(str(file), 10, "y = y + 1") == "y = y + 1"
    assert whole_code(str(file), 11, "return g(").startswith("return g(x, x, x,")
    assert whole_code(str(file), 11, "return g(")[198:] == "x…"
    # Another version of the library lies here, or none: the first line alone would mislead.
    assert whole_code(str(file), 2, "z = scatter(") == whole_code(str(tmp_path / "no.py"), 2, "y = gather(") == ""


def test_generate_of_a_compiled_module_is_told_beside_what_was_compiled(tmp_path: Path) -> None:
    program = tmp_path / "serve.py"
    program.write_text("fast = torch.compile(scorer)\nfast(x)\nllm = torch.compile(net)\nllm.generate(ids)\n")
    session = SimpleNamespace(argv=[str(program)], cwd=str(tmp_path))
    context: Any = SimpleNamespace(recording=SimpleNamespace(session=session), report_command=lambda: "")
    (finding,) = _other_method(cast(Context, context))
    assert (finding.line, finding.severity) == (3, "medium")
    assert "llm.generate is the original's own method and runs eager" in finding.cause
    assert "net.compile()" in finding.fix
    program.write_text("fast = torch.compile(scorer)\nfast(x)\n")
    context.recording.session.argv = [str(tmp_path / "other.py")]
    (tmp_path / "other.py").write_text(program.read_text())
    assert _other_method(cast(Context, context)) == []


@pytest.mark.parametrize(
    ("program", "method"),
    [
        ("llm = torch.compile(net)\nllm.generate(ids.to(llm.device))", "generate"),
        ("net = torch.compile(net)\nnet.train()\nnet.score(x)", "score"),
        ("class E:\n def __init__(self): self.net = torch.compile(net)\n def run(self): self.net.score(x)", "score"),
        ("def build():\n net = torch.compile(N())\n net.prepare()\n return net\nrun = build()\nrun(x)", None),
        ("net = torch.compile(n)\nengine.net = net\nengine.net(x)\nnet.score(x)", None),
        ("net = torch.compile(n)\nfor m in [net]:\n m(x)\nnet.score(x)", None),
        ("net = torch.compile(n)\ntrain([net], x)\nnet.score(x)", None),
        ("net = torch.compile(n)\nstep = net.forward\nstep(x)\nnet.score(x)", None),
        ("net = torch.compile(n)\nnet.forward(x)\nnet.score(x)", None),
        ("nets['a'] = torch.compile(n)\nnets['a'].score(x)\nfor m in nets.values(): m(x)", None),
        ("class E:\n def __init__(self): self.net = torch.compile(n); self.net.score(x)\nE().net(x)", None),
        ("net = torch.compile(n)\nnet.save_pretrained('a')\nnet.tie_weights()\nnet.summary()", None),
    ],
)
def test_a_module_that_may_be_called_elsewhere_is_not_said_to_run_eager(program: str, method: str | None) -> None:
    found = other_method(ast.parse(program))
    assert (found[2] if found else None) == method


def test_guards_of_entries_that_do_not_matter_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A story of thousands of recompiles names all older entries in each."""
    reasons = [f"0/{n}: tensor 'x' size mismatch at index 0. expected {n + 2}, actual 99" for n in reversed(range(50))]
    recompile = Recompile(id="0/50", key="0/50", failed=[parse_reason(each) for each in reasons])
    read = []
    monkeypatch.setattr(
        frames, "cause_of_guard", lambda guard, **more: read.append(guard) or cause_of_guard(guard, **more)
    )
    assert _nearest(recompile, resumed=False)[0].entry == "0/49"
    assert len(read) == 1


def test_one_new_size_in_training_and_one_in_evaluation_are_facts() -> None:
    """One recompile of each kind of calls mends itself: nothing that comes again."""
    frame = Frame(function="forward", file="/home/me/a.py", line=3, place=("/home/me/a.py", 3))
    size = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 16"
    for id_, reasons in (("0/1", [size]), ("0/2", ["0/1: self.training == False", size])):
        recompile = Recompile(
            id=id_, key=id_, file=frame.file, outcome="compiled", failed=[parse_reason(each) for each in reasons]
        )
        guard, cause = _nearest(recompile, resumed=False)
        frame.changes.append(
            Change(index=0, recompile=recompile, guard=guard, ids=cause.ids, name=cause.name, dim=cause.dim)
        )
    assert ids_of(frame) == ["dynamic-size", "train-eval"]
    assert _severity(ids_of(frame), frame, 2) == "info"


def test_a_guard_without_an_entry_is_the_newest_one() -> None:
    assert _entry_number("") > _entry_number("0/7#2") == 7


def _context(*recompiles: Recompile, **compile_: Any) -> Context:
    recording: Any = SimpleNamespace(recompiles=list(recompiles), limit_hits=[], shape_events=[], artifacts=[])
    recording.compiles = [Compile(id=each.id, key=each.key, **compile_) for each in recompiles]
    recording.guards = recording.metrics = lambda compile_: {}
    return Context(recording)


def test_recompiles_after_a_reset_are_one_story_of_their_own() -> None:
    """Entries that the code object had before come again with a number, those after them without one."""
    size = "{}: tensor 'x' size mismatch at index 0. expected {}, actual {}"
    ids = ["0/1", "0/2", "0/1#2", "0/2#2", "0/3", "0/4", "0/5"]
    rows = [
        Recompile(id=id_, key=id_, file="/home/me/a.py", line=3, failed=[parse_reason(size.format("0/0", n, n + 1))])
        for n, id_ in enumerate(ids, 2)
    ]
    (frame,) = frames.frames(_context(*rows))
    assert [change.what[3] for change in frame.changes] == ["0#1"] * 2 + ["0#2"] * 5
    assert frame.storm


@pytest.mark.parametrize(("caller", "named"), [("serve", "serve"), ("<module>", "forward"), ("<lambda>", "forward")])
def test_a_librarys_function_is_told_under_a_name(caller: str, named: str) -> None:
    row = Recompile(id="0/1", key="0/1", function="forward", file=f"{PACKAGE}/a.py", line=3)
    row.failed = [parse_reason("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 4")]
    user = SourceLine(file="/home/me/a.py", line=9, function=caller, code="net(x)")
    inside = SourceLine(file=f"{PACKAGE}/a.py", line=3, function="forward", code="")
    (frame,) = frames.frames(_context(row, file=row.file, stack=(user, inside)))
    assert (frame.caller or frame.name) == named


def test_the_first_line_of_a_statement_is_no_code_to_print() -> None:
    row = broken(3)
    assert "boxes.py:3 (keep = torch.where(keep)[0]): " in _cause_sentence(row, cause_of(row), False, [])
    row.code = "logger.warning_once("
    assert "boxes.py:3: " in _cause_sentence(row, cause_of(row), False, [])


@pytest.mark.parametrize(("actual", "told"), [("4", True), ("9", False), (None, False)])
def test_a_smaller_last_batch_is_one_whose_size_is_known(actual: str | None, told: bool) -> None:
    guard = FailedGuard(entry="0/0", guard="", kind="size", expected="8", actual=actual)
    row = Recompile(id="0/1", key="0/1")
    change = Change(index=0, recompile=row, guard=guard, ids=("dynamic-size",), name="x", dim=0)
    fix = dynamic_size(Frame(function="f", file="a.py", line=1, place=("a.py", 1)), change).fix
    assert ("drop_last" in fix) is told


def test_a_path_in_an_annotation_cannot_write_to_the_terminal() -> None:
    path = "/home/me/\x1b]0;owned\x07\u202e\x9b2Jx.py"
    finding = Finding(
        ids=["layout"], category="recompiles", severity="high", title="t\x1b[2J", fix="f", file=path, line=3
    )
    written = annotation(finding)
    assert written.isprintable()
    assert written.startswith("::error file=")
