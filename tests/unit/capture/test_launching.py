"""The launcher's parts that need no process."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from fxscope.capture.launch import BOOTSTRAP, exit_status, ignores_environment, recording_environment
from fxscope.capture.options import Options
from fxscope.capture.session import end_session, new_folder, new_session, write_session
from fxscope.cli.run import parse_settings
from fxscope.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ("python x.py -I", None),
        ("python -I x.py", "-I"),
        ("/usr/bin/python3.11 -sE x.py", "-E"),
        ("python -m I", None),
        ("python -OOS x.py", "-S"),
        ("python -X importtime -W error x.py", None),
        ("python -WError -I x.py", "-I"),
        ("python -X dev -E x.py", "-E"),
        ("torchrun -I", None),
        ("python -c I", None),
        ("python --help-all", None),
        ("python", None),
    ],
)
def test_flags_by_which_python_ignores_us(arguments: str, flag: str | None) -> None:
    assert ignores_environment(arguments.split()) == flag


def test_environment_puts_us_first_and_adds_no_current_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/a:/b")
    assert recording_environment("/r", Options())["PYTHONPATH"].split(os.pathsep) == [BOOTSTRAP, "/a", "/b"]
    monkeypatch.setenv("PYTHONPATH", "")
    env = recording_environment("/r", Options(mode="max-autotune", dynamic=False, config={"x": None}))
    assert env["PYTHONPATH"] == BOOTSTRAP
    assert (Path(BOOTSTRAP) / "sitecustomize.py").is_file()
    read = Options.from_json(env["FXSCOPE_RECORD_OPTIONS"])
    assert read == Options(mode="max-autotune", dynamic=False, config={"x": None})


def test_options_of_another_version_are_left_out() -> None:
    assert Options.from_json('{"mode": "default", "from_the_future": 1}') == Options(mode="default")
    assert Options.from_json("") == Options()


def test_exit_status() -> None:
    assert [exit_status(code) for code in (0, 1, 255, -9, -15)] == [0, 1, 255, 137, 143]


def test_settings_are_python_values_or_text() -> None:
    given = ("a=1", "b=True", "c=false", "d=[1, 2]", "e=max", "f=x=y", "g=none", "h='1'", "i=")
    assert parse_settings(given) == {
        "a": 1, "b": True, "c": False, "d": [1, 2], "e": "max", "f": "x=y", "g": None, "h": "1", "i": "",
    }  # fmt: skip
    for wrong in ("a", "=1"):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            parse_settings((wrong,))
    for wrong in ("a={1}", "a=b'x'", "a=1j"):
        with pytest.raises(UsageError, match="write a number"):
            parse_settings((wrong,))
    assert parse_settings(("a={[]: 1}",)) == {"a": "{[]: 1}"}


def test_session_is_written_whole_and_names_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = new_session(["a.py"], [sys.executable, "a.py"], "a.py", {})
    write_session(str(tmp_path), session)
    assert json.loads((tmp_path / "session.json").read_text())["state"] == "live"
    prefix = "dedicated_log_torch_trace_"
    for name in ("12_ab.log", "rank_3_14_cd.log", "strange.log"):
        (tmp_path / f"{prefix}{name}").touch()
    end_session(str(tmp_path), session, 4)
    written = json.loads((tmp_path / "session.json").read_text())
    assert (written["state"], written["exit_code"]) == ("ended", 4)
    assert [(p["pid"], p["rank"]) for p in written["processes"]] == [(12, None), (14, 3), (None, None)]
    assert written["ended"] >= written["started"]
    assert sorted(path.name for path in tmp_path.glob("session*")) == ["session.json"]


def test_new_folder_never_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = new_folder("/x/train.py", 0)
    second = new_folder("train.py", 0)
    assert Path(first).name.startswith("train-19")
    assert first.endswith(".fxscope")
    assert second == first.replace(".fxscope", "-2.fxscope")


@pytest.mark.parametrize(("told", "stem"), [(None, "notebook"), ("/home/me/my model.ipynb", "my model")])
def test_new_folder_of_a_notebook(told: str | None, stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if told is not None:
        monkeypatch.setenv("JPY_SESSION_NAME", told)
    kernel = "/venv/lib/python3.11/site-packages/ipykernel_launcher.py"
    assert Path(new_folder(kernel, 0)).name.startswith(f"{stem}-19")


@pytest.mark.parametrize(("script", "stem"), [(".", "here"), ("train/", "train"), ("-", "stdin"), (".py", ".py")])
def test_new_folder_of_what_is_no_file(script: str, stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert Path(new_folder(script, 0)).name.startswith(f"{stem}-19")
