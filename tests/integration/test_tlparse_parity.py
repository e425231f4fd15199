"""What tlparse 0.4.3 makes of its own logs, fxscope has too: every artifact of every compile, stacks, failures, export, ranks."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fxscope.recording.recording import open_recording
from fxscope.report.files import write_artifacts
from fxscope.report.html import render_html
from fxscope.report.stacks import stack_lines

LOGS = (
    "artifacts.log",
    "autotune_with_compile_id.log",
    "cache_hit_miss.log",
    "comp_failure.log",
    "comp_metrics.log",
    "export.log",
    "inductor_provenance_jit_cuda_log.txt",
    "inductor_provenance_jit_log.txt",
    "links.log",
    "simple.log",
    "simple_corrupted_json.log",
    "aot_inductor.log",
)
_NUMBER = re.compile(r"_\d+(?:\.\w+)?$")
pytestmark = pytest.mark.shared


@pytest.fixture
def pair(request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A log, and what tlparse wrote about it."""
    name: str = request.param
    log = shared / "traces" / "tlparse" / name
    if not log.exists():
        import lzma

        log = tmp_path / name
        packed = Path(__file__).resolve().parents[1] / "data" / "traces" / f"{name}.xz"
        log.write_bytes(lzma.decompress(packed.read_bytes()))
    out = tmp_path / "tlparse"
    subprocess.run(["tlparse", str(log), "-o", str(out), "--no-browser"], check=True, capture_output=True, timeout=120)
    return log, out


@pytest.mark.parametrize("pair", LOGS, indirect=True)
def test_every_artifact_that_tlparse_writes(pair: tuple[Path, Path], tmp_path: Path) -> None:
    log, out = pair
    recording = open_recording(log)
    write_artifacts(recording, tmp_path / "ours")
    ours = Counter(_plain(path.name.partition("_")[2]) for path in (tmp_path / "ours").glob("*/*"))
    directory = json.loads((out / "compile_directory.json").read_text())
    theirs = Counter(_plain(a["name"].rsplit("/", 1)[-1]) for entry in directory.values() for a in entry["artifacts"])
    links = theirs.pop("manifold_url", 0)
    metrics = theirs.pop("compilation_metrics", 0)  # a page of their own there; events without a payload here
    assert {name: count for name, count in theirs.items() if ours[name] < count} == {}
    assert links == recording.count("link")
    assert metrics <= recording.count("compilation_metrics")
    page = render_html(recording)
    assert (">metrics <span" in page) == (metrics > 0)
    # tlparse names the compile of a log's every attempt; "-/-" is what lies outside.
    ids = {key.strip("[]").removesuffix("_0") for key, entry in directory.items() if entry["artifacts"]}
    assert ids - {"-/-"} <= {row.id.split("#")[0] for row in recording.compiles}


def _plain(name: str) -> str:
    stem = _NUMBER.sub("", name).split(".")[0]
    return "inductor_output_code" if stem.startswith("inductor_output_code") else stem


@pytest.mark.parametrize("pair", ["comp_metrics.log", "comp_failure.log", "cache_hit_miss.log"], indirect=True)
def test_the_tree_of_stacks_leads_to_the_same_compiles(pair: tuple[Path, Path]) -> None:
    log, out = pair
    page = (out / "index.html").read_text()
    trie = page[page.index("stack-trie'>") : page.index("IR dumps")]
    theirs = set(re.findall(r"\[(\d+/\d+(?:_\d+)?)\]", html.unescape(re.sub(r"<[^>]+>", "", trie))))
    lines = stack_lines(open_recording(log))
    ours = {found.split("#")[0] for line in lines for found in re.findall(r"\[(\S+?)[\s\]]", line)}
    assert theirs
    assert theirs <= ours


@pytest.mark.parametrize("pair", ["comp_failure.log", "comp_metrics.log"], indirect=True)
def test_failures_and_restarts_with_their_reasons(pair: tuple[Path, Path]) -> None:
    log, out = pair
    table = html.unescape((out / "failures_and_restarts.html").read_text())
    recording = open_recording(log)
    reasons = [row.message.split("\n")[0] for row in recording.failures]
    reasons += [row.restart_reason for row in recording.compiles if row.restart_reason]
    assert reasons
    for reason in reasons:
        assert reason[:60] in table
    assert len(reasons) >= table.count("<tr>") - 1
