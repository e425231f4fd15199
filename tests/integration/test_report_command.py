"""``fxscope report``, ``events``, ``artifacts`` and ``schema`` as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
LOG = str(TRACES / "branches.log.xz")


def fxscope(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "80", **more}
    env.pop("FXSCOPE_DEBUG", None)
    return subprocess.run(
        [sys.executable, "-m", "fxscope", *arguments], capture_output=True, text=True, timeout=120, env=env, check=False
    )


def test_reading_verbs_import_neither_torch_nor_the_app() -> None:
    for arguments in (["report", LOG], ["report", "--json", LOG], ["events", LOG], ["schema", "report"]):
        program = (
            "import sys, runpy\n"
            f"sys.argv = ['fxscope', *{arguments!r}]\n"
            "try: runpy.run_module('fxscope', run_name='__main__')\n"
            "except SystemExit as error: assert not error.code, error.code\n"
            "loaded = {'torch', 'textual', 'triton', 'pydot', 'jinja2', 'numpy'} & set(sys.modules)\n"
            "assert not loaded, loaded\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr


def test_pipes_are_plain_and_data_goes_to_stdout() -> None:
    done = fxscope("report", LOG)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "2 graph breaks" in done.stdout
    plain = fxscope("report", LOG, PYTHONIOENCODING="ascii")
    assert plain.returncode == 0
    assert "\\xd7 logs.py:4" in plain.stdout
    document = json.loads(fxscope("report", "--json", LOG, PYTHONIOENCODING="ascii").stdout)
    assert document["schema"] == "fxscope.report/1"
    assert document["graph_breaks"][0]["cause"] == "data-dependent-branch"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    for arguments in (["report", "--all"], ["report", "--json"], ["events", "--payload"]):
        big = TRACES / "compiled_autograd.log.xz"
        command = [sys.executable, "-m", "fxscope", *arguments, str(big)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()  # before anything was written
            said = process.stderr.read()
            process.wait(timeout=120)
        assert (process.returncode, said) == (0, ""), arguments


def test_bad_input_is_one_line_and_exit_3(tmp_path: Path) -> None:
    folder = tmp_path / "stuff"
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing here\n")
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)) * 100)
    secret = tmp_path / "secret.log"
    secret.write_text("x")
    secret.chmod(0)
    empty = tmp_path / "empty"
    empty.mkdir()
    paths = [tmp_path / "absent", folder, binary, empty]
    if os.getuid() != 0:  # root reads everything
        paths.append(secret)
    for path in paths:
        for verb in ("report", "events", "artifacts"):
            done = fxscope(verb, str(path))
            assert done.returncode == 3, (verb, path, done.stderr)
            assert done.stdout == ""
            assert done.stderr.count("\n") == 1
            assert done.stderr.startswith("fxscope: ")
            assert str(path) in done.stderr


def test_a_type_that_no_event_has_is_answered_with_those_there_are() -> None:
    done = fxscope("events", LOG, "--type", "dynamo_strat")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no event of type dynamo_strat; types here: ")
    assert "dynamo_start, " in done.stderr


def test_recording_without_a_compile(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(json.dumps({"argv": ["hello.py"], "exit_code": 0, "state": "ended"}))
    done = fxscope("report", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello.py" in done.stdout
    assert "Nothing was compiled." in done.stdout
    document = json.loads(fxscope("report", "--json", str(tmp_path)).stdout)
    assert document["compiles"] == []
    assert document["session"]["exit_code"] == 0


def test_html(tmp_path: Path) -> None:
    done = fxscope("report", "--html", str(tmp_path / "page.html"), LOG)
    assert (done.returncode, done.stdout) == (0, "")
    assert "wrote " in done.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    refused = fxscope("report", "--html", str(tmp_path / "no" / "page.html"), LOG)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_events() -> None:
    lines = fxscope("events", LOG).stdout.splitlines()
    assert len(lines) == 94
    only = fxscope("events", "--type", "dynamo_graph_break_reason", "--payload", LOG).stdout
    assert only.count("Graph Break Reason:") == 2
    assert only.count('\n    {"artifact": {"name": "dynamo_graph_break_reason"') == 2
    assert "has_payload" not in only
    document = json.loads(fxscope("events", "--id", "3/0", "--json", LOG).stdout)
    assert document["schema"] == "fxscope.events/1"
    assert {row["id"] for row in document["events"]} == {"3/0"}
    error = next(row for row in document["events"] if row["name"] == "dynamo_error")
    assert error["payload"].startswith("Traceback")
    assert error["intact"] is True
    unknown = fxscope("events", "--id", "9/9", LOG)
    assert unknown.returncode == 2
    assert "no compile '9/9'" in unknown.stderr


def test_events_document_follows_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(fxscope("schema", "events").stdout)
    jsonschema.validate(json.loads(fxscope("events", "--json", LOG).stdout), schema)


def test_artifacts(tmp_path: Path) -> None:
    done = fxscope("artifacts", "-o", str(tmp_path / "out"), str(TRACES / "cold_cache.log.xz"))
    assert (done.returncode, done.stdout) == (0, "")
    names = {path.name.partition("_")[2] for path in (tmp_path / "out" / "0-0").iterdir()}
    assert {"dynamo_output_graph.py", "inductor_output_code.py", "aot_backward_graph.py"} <= names
    compile((tmp_path / "out" / "0-0").glob("*_inductor_output_code.py").__next__().read_text(), "code", "exec")


def test_schema_of_something_else() -> None:
    assert fxscope("schema", "artifacts").returncode == 2
    done = fxscope("schema", "nonsense")
    assert done.returncode == 2
    assert "no verb 'nonsense'" in done.stderr
