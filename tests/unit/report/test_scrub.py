"""A scrubbed log tells nothing of its user, reads whole, and keeps its structure."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fxscope.cli.main import main
from fxscope.errors import UnreadableError, UsageError
from fxscope.report.scrub import scrub
from fxscope.report.scrub_rules import TOPICS, Rules
from fxscope.trace.bytesource import ByteSource
from fxscope.trace.index import Event, LogIndex
from fxscope.trace.line import payload_matches

ALL = frozenset(TOPICS)


class _Events:
    def __init__(self, log: Path) -> None:
        self.kept: list[Event] = []
        self.index = LogIndex(ByteSource(log))
        self.index.scan(self, final=True)

    def take(self, index: LogIndex, event: Event) -> None:
        self.kept.append(event)


def _copy(log: Path, folder: Path, hide: frozenset = ALL) -> str:  # type: ignore[type-arg]
    done = scrub(log, folder, hide)
    assert done.events > 0
    return "".join((folder / name).read_text("utf-8") for name in done.logs)


def event(envelope: dict[str, object], payload: str | None = None) -> str:
    if payload is not None:
        envelope["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    body = "" if payload is None else "\t" + payload.replace("\n", "\n\t") + "\n"
    return f"V1129 11:59:38.304000 440 torch/_dynamo/x.py:1] {json.dumps(envelope)}\n{body}"


@pytest.fixture
def secret_log(tmp_path: Path) -> Path:
    """A log of a program whose every private word is known."""
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    session = {
        "argv": ["/home/alice/acme/train.py", "--key", "hunter2"],
        "host": "gpu7.acme.internal",
        "cwd": "/home/alice/acme",
    }
    guard = (
        "+- LENGTH_CHECK: not L['self'].secret_buffer  # if self.secret_buffer: leak()  # acme/train.py:31 in mystery_step\n"
        "+- ID_MATCH: ___check_obj_id(L['self'].secret_buffer, 1)  # return x  # nn/modules/linear.py:134 in forward"
    )
    reason = (
        "Graph break in user code at /home/alice/acme/train.py:31\nReason: data dependent\nUser code traceback:\n"
        '  File "/home/alice/acme/train.py", line 31, in mystery_step\n    if leak(x): launch_codes()\n       ^^^^^^^\n'
        "visit https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html or http://wiki.acme.internal/x, 10.1.2.3"
    )
    graph = (
        "class GraphModule(torch.nn.Module):\n"
        '    def forward(self, L_self_secret_buffer: "f32[4]", L_x_: "f32[4]"):\n'
        "        # File: /home/alice/acme/train.py:31 in mystery_step, code: y = launch_codes(x)\n"
        '        relu: "f32[4]" = torch.relu(L_self_secret_buffer);  return (relu,)'
    )
    stack = [{"line": 31, "name": "mystery_step", "filename": 0, "loc": "y = launch_codes(x)"}]
    text = (
        event({"artifact": {"name": "fxscope.session", "encoding": "json"}}, json.dumps(session))
        + event({"str": ["/home/alice/acme/train.py", 0]})
        + event({"dynamo_start": {"stack": stack}, **ids})
        + event({"describe_source": {"source": "L['self'].secret_buffer", "id": 0}, **ids})
        + event({"dynamo_output_graph": {"sizes": {"L_self_secret_buffer": [4]}}, **ids}, graph)
        + event({"dynamo_cpp_guards_str": {}, **ids}, guard)
        + event({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **ids}, reason)
        + event(
            {"artifact": {"name": "mystery_step_ORIGINAL_BYTECODE", "encoding": "string"}, **ids}, "LOAD launch_codes"
        )
        + "a line of gpu7's own log\n"
    )
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_text(text)
    return log


def test_nothing_private_is_left(secret_log: Path, tmp_path: Path) -> None:
    text = _copy(secret_log, tmp_path / "out")
    for secret in (
        "alice",
        "acme",
        "train.py",
        "hunter2",
        "gpu7",
        "launch_codes",
        "leak",
        "mystery_step",
        "secret_buffer",
        "10.1.2.3",
    ):
        assert secret not in text, secret
    assert "gb0170" in text
    assert re.search(r"file\d+\.py:134", text)  # the line stays, the file gets a stand-in
    assert "torch.relu(L_self_name" in text


def test_what_is_learned_late_is_gone_from_the_beginning(tmp_path: Path) -> None:
    """A host from the session, names from guards and reasons: each is told before, in an event that teaches nothing."""
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_text(
        event({"artifact": {"name": "note", "encoding": "string"}}, "trainbox7 warms tower_alpha before tower_beta")
        + event({"dynamo_cpp_guards_str": {}}, "+- EQUALS_MATCH: L['self'].tower_alpha == 3")
        + event({"artifact": {"name": "recompile_reasons", "encoding": "json"}}, json.dumps(["L['tower_beta'] == 4"]))
        + event({"artifact": {"name": "fxscope.session", "encoding": "json"}}, json.dumps({"host": "trainbox7"}))
    )
    text = _copy(log, tmp_path / "out")
    assert re.search(r"\S+ warms name\d before name\d", text)
    assert not re.search("trainbox7|tower_alpha|tower_beta", text)


@pytest.mark.parametrize(
    ("topic", "kept"),
    [("source", "launch_codes"), ("paths", "/home/alice/acme"), ("names", "mystery_step"), ("hosts", "10.1.2.3")],
)
def test_each_topic_can_be_kept(secret_log: Path, tmp_path: Path, topic: str, kept: str) -> None:
    text = _copy(secret_log, tmp_path / "out", ALL - {topic})
    assert kept in text


def test_the_same_thing_gets_the_same_stand_in(secret_log: Path, tmp_path: Path) -> None:
    text = _copy(secret_log, tmp_path / "out")
    paths = re.findall(r"/user/folder\d+/file\d+\.py", text)
    assert len(paths) >= 4
    assert len(set(paths)) == 1
    assert len(set(re.findall(r"in (name\d+)", text))) == 1


@pytest.mark.shared
@pytest.mark.parametrize("name", ["models/T5", "h200/gpt2", "tlparse/cache_hit_miss.log", "tlparse/comp_metrics.log"])
def test_real_logs_keep_their_events_and_hashes(shared: Path, tmp_path: Path, name: str) -> None:
    place = shared / "traces" / name
    log = next(place.glob("*.xz")) if place.is_dir() else place
    plain = tmp_path / "in.log"
    plain.write_bytes(lzma.decompress(log.read_bytes()) if log.suffix == ".xz" else log.read_bytes())
    scrub(plain, tmp_path / "out", ALL)
    before, after = _Events(plain), _Events(tmp_path / "out" / "in.log")
    assert after.index.torn == 0
    assert after.index.foreign == 0
    kinds = [Counter(e.index.names[k] for k in e.index.kinds) for e in (before, after)]
    assert kinds[0] == kinds[1]
    for old, new in zip(before.kept, after.kept, strict=True):
        assert new.envelope.keys() == old.envelope.keys()
        for key in ("frame_id", "frame_compile_id", "attempt", "rank"):
            assert new.envelope.get(key) == old.envelope.get(key)
        if new.envelope.get("has_payload") is not None:
            assert payload_matches(after.index.text(new.number), new.envelope["has_payload"])
    users = [w for w in re.findall(rb"/(?:home|root|data/users)/(\w+)", plain.read_bytes()) if len(w) > 3]
    scrubbed = (tmp_path / "out" / "in.log").read_bytes()
    assert not [w for w in set(users) - {b"user"} if b"/" + w + b"/" in scrubbed]


@pytest.mark.shared
def test_tlparse_reads_the_copy(shared: Path, tmp_path: Path) -> None:
    scrub(shared / "traces" / "tlparse" / "cache_hit_miss.log", tmp_path / "out", ALL)
    done = subprocess.run(
        [
            "tlparse",
            "--strict",
            "--no-browser",
            "-o",
            str(tmp_path / "html"),
            str(tmp_path / "out" / "cache_hit_miss.log"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_words_that_a_log_needs_are_no_secret() -> None:
    rules = Rules(ALL)
    rules.learn("L['self'].relu  L['x'].weight  G['torch'].nn  L['args'][0].size()[0]")
    assert (
        rules.text("torch.relu(weight) in torch.nn forward size=[4]")
        == "torch.relu(weight) in torch.nn forward size=[4]"
    )


def test_names_within_public_packages_stay() -> None:
    rules = Rules(frozenset(TOPICS))
    rules.learn_name("nn")
    rules.learn_name("secret_op")
    assert (
        rules.text("module: torch.nn.parallel.distributed, a secret_op")
        == "module: torch.nn.parallel.distributed, a name2"
    )
    assert rules.text("torch.ops.secret_op.run(nn)") == "torch.ops.name2.run(name1)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("torch.classes.secretns.SecretNet()", "torch.classes.name1.name2()"),
        ("torch._ops.ops.secretns.secret_op", "torch._ops.ops.name1.name3"),
        ("datasets.SecretNet", "datasets.name2"),
        ("vllm.SecretNet", "vllm.name2"),
    ],
)
def test_names_that_a_user_put_into_a_public_package_go(text: str, shown: str) -> None:
    rules = Rules(frozenset(TOPICS))
    for name in ("secretns", "SecretNet", "secret_op"):
        rules.learn_name(name)
    assert rules.text(text) == shown


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no such file"):
        scrub(tmp_path / "absent", tmp_path / "out", ALL)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "in.log").write_text('V1129 11:59:38.304000 440 x.py:1] {"str": ["a", 0]}\n')
    with pytest.raises(UsageError, match="not empty"):
        scrub(tmp_path / "in.log", tmp_path / "full", ALL)


def test_one_log_becomes_one_log(tmp_path: Path) -> None:
    text = 'V1129 11:59:38.304000 440 x.py:1] {"str": ["a", 0]}\n'
    (tmp_path / "in.log").write_text(text)
    done = scrub(tmp_path / "in.log", tmp_path / "new" / "out.log", frozenset())
    assert (done.logs, (tmp_path / "new" / "out.log").read_text()) == (["out.log"], text)
    for taken in ("in.log", "new/out.log"):
        with pytest.raises(UsageError, match="exists; name a new file"):
            scrub(tmp_path / "in.log", tmp_path / taken, ALL)
    # A folder keeps being a folder, whatever its name, and so does what a folder of logs becomes.
    scrub(tmp_path / "in.log", tmp_path / "shared", ALL)
    scrub(tmp_path / "shared", tmp_path / "folder.log", ALL)
    assert (tmp_path / "folder.log" / "in.log").is_file()
    with pytest.raises(UsageError, match="exists; name a new folder"):
        scrub(tmp_path / "shared", tmp_path / "in.log", ALL)


def test_where_the_tasks_of_a_job_met_is_not_copied(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "session.json").write_text(json.dumps({"argv": ["a.py"], "job": "0f3a", "exit_code": 3}))
    (run / "session.json.0f3a.1").write_text("3")
    scrub(run, tmp_path / "copy", ALL)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["session.json"]
    copied = json.loads((tmp_path / "copy" / "session.json").read_text())
    assert (copied["exit_code"], "job" in copied) == (3, False)


def test_a_folder_that_cannot_be_made_is_no_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.log").write_text('V1129 11:59:38.304000 440 x.py:1] {"str": ["a", 0]}\n')
    monkeypatch.setattr("sys.argv", ["fxscope", "scrub", str(tmp_path / "in.log"), str(tmp_path / "in.log" / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"fxscope: {tmp_path / 'in.log' / 'out'}: Not a directory\n"


def test_logs_of_one_name_do_not_replace_each_other(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / "in" / f"rank{rank}").mkdir(parents=True)
        text = f'V1129 11:59:38.304000 440 x.py:1] {{"str": ["file{rank}.py", {rank}]}}\n'
        (tmp_path / "in" / f"rank{rank}" / "trace.log").write_text(text)
    done = scrub(tmp_path / "in", tmp_path / "out", frozenset())
    assert done.logs == ["trace.log", "trace_2.log"]
    assert [f"file{rank}.py" in (tmp_path / "out" / name).read_text() for rank, name in enumerate(done.logs)] == [
        True
    ] * 2


@pytest.mark.timeout(200)
@pytest.mark.parametrize("part", ["+1", ".a", "a-", "/a", "a:", "\\a", "  # a", '  File "a', "L['a']", "a@"])
def test_a_long_text_takes_no_quadratic_time(part: str) -> None:
    """A pattern that tries every start to the end would need hours for half a million characters."""
    text = part * (500_000 // len(part))
    assert Rules(ALL).text(text) == ("/user/folder1/file1" if part in ("/a", "\\a") else text)
