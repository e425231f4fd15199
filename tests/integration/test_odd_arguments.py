"""What the command line is given by mistake: one line, exit code 2 or 3, and nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from fxscope.cli.main import cli
from fxscope.errors import FxscopeError

LOG = str(Path(__file__).resolve().parents[1] / "data" / "traces" / "branches.log.xz")
READERS = ("report", "diagnose", "check", "annotate", "events", "index", "ranks")


def refused(*arguments: str) -> tuple[int, str]:
    """Exit code and message with which the command line refuses."""
    with pytest.raises((FxscopeError, click.UsageError)) as error:
        cli.main([*arguments], prog_name="fxscope", standalone_mode=False)
    message = error.value.format_message() if isinstance(error.value, click.UsageError) else str(error.value)
    assert "\n" not in message
    return error.value.exit_code, message


@pytest.fixture(autouse=True)
def _nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    yield
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["folder", "words.txt"]


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("path", ["", "nowhere", "folder", "words.txt"])
def test_what_is_no_recording(verb: str, path: str) -> None:
    code, said = refused(verb, path)
    assert code == 3
    assert (path or "the path is empty") in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_named_as_one_and_not_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    pipe = str(tmp_path_factory.mktemp("pipes") / "log")
    os.mkfifo(pipe)
    assert refused("report", pipe)[0] == 3
    assert "is a pipe or a device" in refused("report", pipe)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("check LOG --max-compile-seconds nan", "not a finite number"),
        ("check LOG --max-compile-seconds -1", "x>=0"),
        ("passes LOG --tolerance nan", "not a finite number"),
        ("bench LOG --seconds -1", "x>=0"),
        ("try --timeout 0 words.txt", "x>0"),
        ("stages --timeout inf words.txt", "not a finite number"),
        ("diff LOG LOG --fail-on ,", "--fail-on is empty"),
        ("report LOG --html nowhere/page.html", "cannot write nowhere/page.html: No such file"),
        ("report LOG --html folder", "cannot write folder: Is a directory"),
        ("artifacts LOG -o words.txt", "cannot write words.txt"),
        ("ranks LOG --parquet nowhere/table.parquet", "cannot write nowhere/table.parquet: No such file"),
        ("export dot LOG --graph 0/0 --hops -1", "x>=0"),
        ("try --what dynamic -", "try runs the program several times, and standard input is read once"),
        ("stages - an-argument", "stages runs the program several times, and standard input is read once"),
        ("export dot LOG --graph 1/0 --collapse ,", "--collapse is empty"),
        ("export dot LOG --graph 1/0 --collapse nothing", "no module 'nothing' in graph"),
        ("export dot LOG --graph 0/0 --against 0/0", "--against is for --highlight diff"),
        ("export dot LOG --graph 0/0 --target npu", "--target is for --highlight islands"),
        ("export table LOG --graph 0/0 --sources", "--sources is for dot, svg and png"),
        ("export perfetto LOG --graph 0/0", "--graph is for one graph"),
    ],
)
def test_wrong_usage(arguments: str, said: str) -> None:
    if "--parquet" in arguments:
        pytest.importorskip("pyarrow")
    code, message = refused(*(LOG if part == "LOG" else part for part in arguments.split()))
    assert code == 2
    assert said in message


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:0"])
def test_a_device_that_no_machine_has(device: str) -> None:
    assert refused("bench", LOG, "--device", device) == (
        2,
        f"--device {device}: unknown; there are cpu, cuda and cuda:N",
    )


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("partition:nobody", "no target 'nobody'"),
        ("partition", "partition needs a target"),
        ("partition:npu:sideways", "takes apart and without=NODE+NODE, not 'sideways'"),
        ("decompose:nothing", "neither a table"),
        ("conv-bn-fold:often", "conv-bn-fold takes no 'often'"),
        ("dce:", "pass 'dce:' names nothing behind the colon"),
        ("decompose:", "pass 'decompose:' names nothing behind the colon"),
        ("dce:often", "pass 'dce' takes no argument"),
    ],
)
def test_a_passs_argument_is_read_before_anything_runs(pipeline: str, said: str) -> None:
    code, message = refused("passes", LOG, "--graph", "1/0", "--no-numbers", "--pipeline", pipeline)
    assert code == 2
    assert said in message


def test_a_scrubbed_copy_lies_outside_of_what_it_copies(tmp_path: Path) -> None:
    runs = tmp_path.parent / "runs"
    (runs / "one").mkdir(parents=True)
    (runs / "one" / "dedicated_log_torch_trace_1.log.xz").write_bytes(Path(LOG).read_bytes())
    code, said = refused("scrub", str(runs), str(runs / "copy"))
    assert (code, "lies in" in said) == (2, True)
    code, said = refused("scrub", "words.txt", "copy")
    assert (code, "holds no trace events" in said) == (3, True)
