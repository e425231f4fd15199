"""``fxscope npu``: programs in, programs out, reports of a recorded model, sweeps, and one line for bad input."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from click.testing import CliRunner

from fxscope.cli.npu import command, json_schema
from fxscope.errors import FxscopeError

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "npu" / "linear_relu.s"


def run(*arguments, fails=None):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if fails is not None:
        assert isinstance(result.exception, FxscopeError), result.output
        assert result.exception.exit_code == fails
        message = str(result.exception)
        assert "\n" not in message
        return message
    if result.exception is not None:
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_golden_listing(tmp_path):
    binary = tmp_path / "linear_relu.bin"
    run("asm", GOLDEN, "-o", binary)
    text = run("dis", binary, "--flat")
    instructions = "".join(line + "\n" for line in GOLDEN.read_text().splitlines() if not line.startswith(";"))
    assert text == instructions
    again = tmp_path / "again.s"
    again.write_text(text)
    run("asm", again, "-o", tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == binary.read_bytes()
    indented = "".join(f"    {line}\n" for line in instructions.splitlines())
    assert indented in (ROOT / "docs" / "npu.md").read_text()


def test_golden_machine_code():
    from fxscope.targets.npu.assembly import assemble
    from fxscope.targets.npu.encoding import words

    ld, _, gemm, relu, st, halt = assemble(GOLDEN.read_text())
    # op 3, region w (0), dtype f32 (0) | addr | row 0, rows-1 = 15 << 20 | cols-1 = 15, space s (0) << 12, stride 16 << 13
    assert words(ld) == [3, 0, 15 << 20, 15 | 16 << 13]
    # op 8, pop_prev (l is before x) | a 16, t-1 = 7 << 20 | b 0, k-1 = 15 << 20 | c 0, n-1 = 15 << 20
    assert words(gemm) == [8 | 1 << 6, 16 | 7 << 20, 15 << 20, 15 << 20]
    # op 9, push_next (s is after x), fn relu (3) << 10
    assert words(relu) == [9 | 1 << 9 | 3 << 10, 7 << 20, 15 << 20, 0]
    # op 4, pop_prev, region o (3) << 10 | ... | space a (1) << 12
    assert words(st) == [4 | 1 << 6 | 3 << 10, 0, 7 << 20, 15 | 1 << 12 | 16 << 13]
    assert words(halt) == [1, 0, 0, 0]


def test_run_models_and_interleaves(tmp_path):
    document = json.loads(run("run", GOLDEN, "--interleave", 3, "--json"))
    jsonschema.validate(document, json_schema())
    assert document["schema"] == "fxscope.npu/1"
    assert document["modelled"] is True
    assert document["lower"] <= document["cycles"] <= document["upper"]
    assert list(document["outputs"]) == ["region o"]
    assert run("run", GOLDEN, "--json") == run("run", GOLDEN, "--json")
    assert "legal; 2 interleavings agree" in run("run", GOLDEN, "--interleave", 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("!pop.l", "", "race (read after write): instruction 2 `gemm`"),
        ("!push.s", "", "deadlock: queue l: empty; queue x: empty; queue s: instruction 4 `st`"),
        ("row=0x10 rows=8", "row=0xffff rows=8", "out of range: instruction 1 `ld`"),
    ],
)
def test_illegal_programs_exit_1_with_their_diagnosis(tmp_path, old, new, message):
    source = tmp_path / "bad.s"
    source.write_text(GOLDEN.read_text().replace(old, new, 1))
    assert message in run("run", source, fails=1)


def test_bad_input_is_one_line(tmp_path):
    binary = tmp_path / "p.bin"
    run("asm", GOLDEN, "-o", binary)
    data = binary.read_bytes()
    (tmp_path / "short.bin").write_bytes(data[:-9])
    (tmp_path / "bent.bin").write_bytes(data[:-4] + b"\xff\xff\xff\xff")
    (tmp_path / "text.s").write_text("gem a=1\n")
    assert re.search(
        r"short.bin: truncated: \d+ bytes where its header says \d+", run("dis", tmp_path / "short.bin", fails=3)
    )
    assert "damaged: the checksum does not match" in run("dis", tmp_path / "bent.bin", fails=3)
    assert "no fxscope NPU program" in run("dis", GOLDEN, fails=3)
    assert "No such file" in run("dis", tmp_path / "none.bin", fails=3)
    assert "text.s:1: unknown instruction 'gem'" in run("asm", tmp_path / "text.s", fails=2)
    assert "unknown machine 'tpu'; presets: ethos-u65-512" in run("run", GOLDEN, "--machine", "tpu", fails=2)
    assert "write R=BYTES" in run("run", GOLDEN, "--region", "q=3", fails=2)
    (tmp_path / "m.toml").write_text("rows = [")
    assert "m.toml: no TOML" in run("spec", tmp_path / "m.toml", fails=3)
    assert "no instruction 'gem'" in run("spec", "--op", "gem", fails=2)


def test_spec():
    assert "gemmini-16x16" in run("spec")
    text = run("spec", "ethos-u65-512")
    assert "dram.bytes_per_cycle" in text
    assert "Vela vela.ini" in text
    assert "no source" not in text
    document = json.loads(run("spec", "--json"))
    assert [machine["name"] for machine in document["machines"]] == ["ethos-u65-512", "gemmini-16x16", "tpu-v1-256x256"]
    assert "ceil(k/R)" in run("spec", "--op", "gemm")


def test_isa_page_is_current():
    assert (ROOT / "docs" / "npu_isa.md").read_text() == run("spec", "--isa"), (
        "run: fxscope npu spec --isa > docs/npu_isa.md"
    )


MODEL = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
        return torch.relu(self.out(y))

model = torch.compile(Attention().eval(), backend="eager")
with torch.no_grad():
    model(torch.randn(2, 8, 16))
"""


@pytest.fixture(scope="module")
def recording(recorded, tmp_path_factory):
    script = tmp_path_factory.mktemp("npu") / "npu_attention.py"
    script.write_text(MODEL)
    made = recorded(script)
    assert made.exit_code == 0, made.stderr
    return made.path


def test_report_of_a_recorded_model(recording, tmp_path):
    timeline, binary = tmp_path / "t.json", tmp_path / "p.bin"
    document = json.loads(run("report", recording, "--json", "--timeline", timeline, "-o", binary))
    jsonschema.validate(document, json_schema())
    assert document["coverage"] == 1.0
    (island,) = document["islands"]
    assert island["lower"] <= island["cycles"] <= island["upper"]
    assert sum(op["cycles"] for op in island["ops"]) == pytest.approx(island["cycles"])
    assert island["macs"] == 2 * 8 * (16 * 48 + 2 * 8 * 16 + 16 * 16)
    assert {op["pole"] for op in island["ops"]} <= {"load", "execute", "store"}
    assert any("npu_attention.py:" in op["source"] for op in island["ops"])
    assert "modelled" in island["assumptions"][0]
    softmax = {choice["softmax"]: choice for choice in document["choices"]}
    assert softmax["decompose"]["islands"] == 1 < softmax["host"]["islands"]
    trace = json.loads(timeline.read_text())
    assert trace["otherData"]["schema"] == "fxscope.npu-timeline/1"
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    lanes = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert set(lanes.values()) >= {"ops", "load", "execute", "store"}
    assert {event["tid"] for event in slices} == set(lanes)
    for lane in lanes:  # what begins before the last one ended would be drawn wrong or dropped
        own = sorted((event["ts"], event["dur"]) for event in slices if event["tid"] == lane)
        assert all(ts + dur <= after + 1e-6 for (ts, dur), (after, _) in itertools.pairwise(own))
    assert {event["args"]["op"] for event in slices if lanes[event["tid"]] == "execute"} > {"gemm", "ewb"}
    assert any("npu_attention.py:" in event["args"].get("source", "") for event in slices)
    end = max(event["ts"] + event["dur"] for event in slices)
    assert end == pytest.approx(island["microseconds"], rel=0.2)
    listing = run("dis", binary)
    assert "npu_attention.py:" in listing
    node = island["ops"][0]["nodes"][0]
    assert f"; {node}" in run("dis", binary, "--node", node)
    assert "has no instruction of node 'nope'" in run("dis", binary, "--node", "nope", fails=2)
    assert "legal" in run("run", binary)


def test_report_text_fits_and_labels(recording):
    text = run("report", recording, "--live", "--listing")
    assert "modelled" in text
    assert "assumes:" in text
    assert "choice: softmax=host" in text
    assert "gemm" in text
    table = text[text.index(" op ") : text.index("intermediates")]
    assert max(len(line) for line in table.splitlines() if not line.strip()[:1].isdigit() or ":" not in line) <= 80


def test_sweep(recording, tmp_path):
    plot = tmp_path / "s.svg"
    out = run(
        "sweep",
        recording,
        "--set",
        "array.rows+array.cols=8,16",
        "--set",
        "dram.bytes_per_cycle=1,16",
        "--json",
        "--plot",
        plot,
    )
    document = json.loads(out)
    jsonschema.validate(document, json_schema())
    rows = document["rows"]
    assert [row["values"]["array.cols"] for row in rows] == [8, 8, 16, 16]
    assert rows[1]["microseconds"] < rows[0]["microseconds"]
    picture = ET.fromstring(plot.read_text())
    words = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"array.rows+cols", "dram.bytes_per_cycle"} <= set(words)
    assert [words.count(value) for value in ("8", "16")] == [2, 4]
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) == 4 + 1
    assert sum("fastest" in word for word in words) == 1
    text = run("sweep", recording, "--set", "array.rows=8,16", "--set", "dram.bytes_per_cycle=16.0,32.0")
    assert max(map(len, text.splitlines())) <= 80
    assert sum(line.endswith(" *") for line in text.splitlines()) == 1
    assert "no number 'array.row'" in run("sweep", recording, "--set", "array.row=8", fails=2)
    assert "write KEY=VALUE" in run("sweep", recording, "--set", "array.rows", fails=2)
    text = run("sweep", recording, "--set", "local.accumulator=1024,65536", "--plot", plot)
    assert "fits gemmini-16x16: scratchpad 262144 bytes, accumulator 1024 bytes" in text
    assert "accumulator 1024 bytes" in plot.read_text()


def test_modelled_row_of_bench(recording):
    done = subprocess.run(
        [sys.executable, "-m", "fxscope", "bench", str(recording), "--executors", "eager,npu", "--seconds", "0.05", "--json"],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][1]
    assert (row["executor"], row["kind"]) == ("npu", "modelled")
    assert row["median_ms"] > 0
    assert row["max_abs_err"] < 1e-5
    assert row.get("speedup") is None
