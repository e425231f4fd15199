"""``fxscope try`` on real programs: it proves the fix, and says so when a change breaks or alters a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNTER = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return x + self.calls
net = Net()
fast = torch.compile(net)
for _ in range(12):
    y = fast(torch.ones(3))
print("sum", float(y.sum()))
"""

# The settings that torch's own hints name do not help here, and together they crash.
SPLIT = """
import torch
@torch.compile(backend="eager")
def f(x, index):
    counts = torch.bincount(index, minlength=3).tolist()
    parts = torch.split(x, counts)
    return torch.cat([part * 2 for part in parts])
for seed in range(3):
    index = torch.randint(0, 3, (6,), generator=torch.Generator().manual_seed(seed))
    print(round(float(f(torch.ones(6), index).sum()), 3))
"""


def fxscope(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "fxscope", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=cwd,
        env=env,
        check=False,
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    from fxscope.cli.try_ import json_schema

    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    jsonschema.validate(value, json_schema())
    return value


def test_findings_propose_a_change_that_is_proved(tmp_path: Path) -> None:
    (tmp_path / "counter.py").write_text(COUNTER)
    asked = (
        "--backend",
        "eager",
        "--config",
        "cache_size_limit=8",
    )  # every run has them, as the recording had that proposed a change
    found = document(fxscope("try", "--json", *asked, "-o", tmp_path / "out", tmp_path / "counter.py", cwd=tmp_path))
    assert found["schema"] == "fxscope.try/1"
    assert (found["base"]["recompiles"], found["base"]["limit_hits"]) == (7, 1)
    (change,) = found["changes"]
    assert change["outcome"]["change"] == "config:allow_unspec_int_on_nn_module=True"
    assert change["verdict"] == "better"
    assert (change["outcome"]["recompiles"], change["outcome"]["limit_hits"]) == (1, 0)
    assert change["outcome"]["output"] == found["base"]["output"]
    for outcome in (found["base"], change["outcome"]):
        options = json.loads(Path(outcome["recording"], "session.json").read_text())["options"]
        assert (options["backend"], options["config"]["cache_size_limit"]) == ("eager", 8)


def test_the_hint_of_torch_fails_and_the_table_says_so(tmp_path: Path) -> None:
    (tmp_path / "split.py").write_text(SPLIT)
    hints = ["--what", "config:capture_dynamic_output_shape_ops=True", "--what", "backend:nonexistent"]
    done = fxscope("try", *hints, "-o", tmp_path / "out", tmp_path / "split.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["change", "verdict"]
    assert any(line.startswith("backend:nonexistent") and "fails" in line for line in lines)
    assert not any(
        "dynamic_output_shape_ops" in line and "better" in line and "breaks 2 -> 0" in line for line in lines
    )
    recording = next((tmp_path / "out").glob("0-*.fxscope"))
    told = json.loads(fxscope("diagnose", "--json", recording, cwd=tmp_path).stdout)
    (finding,) = [each for each in told["findings"] if "dynamic-output-shape" in each["ids"]]
    assert "GuardOnDataDependentSymNode" in finding["fix"]
    assert finding["change"] == ""


def test_a_run_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nprint('begun', flush=True)\ntime.sleep(300)\n"
    )
    (tmp_path / "pid").write_text("0")
    done = fxscope("try", "--json", "--timeout", "10", "--what", "dynamic", "slow.py", cwd=tmp_path)
    base = document(done)["base"]
    assert (base["exit_code"], base["problem"], base["output"]) == (124, "stopped after 10 s", "begun\n")
    process = int((tmp_path / "pid").read_text())
    assert process > 0
    assert not Path(f"/proc/{process}/stat").exists() or Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"


def test_wrong_use_is_one_line(tmp_path: Path) -> None:
    done = fxscope("try", "--what", "nonsense", "x.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fxscope: --what nonsense: unknown")
    done = fxscope("try", cwd=tmp_path)
    assert done.returncode == 2


@pytest.mark.parametrize("verb", ["run", "try", "stages"])
def test_a_log_or_recording_is_not_run_as_a_script(tmp_path: Path, verb: str) -> None:
    """Run, its first line would be a SyntaxError of Python's, told as the program's."""
    (tmp_path / "trace.log").write_text('V1129 11:59:38.304000 440 x.py:1] {"str": ["a", 0]}\n')
    (tmp_path / "run.fxscope").mkdir()
    (tmp_path / "run.fxscope" / "session.json").write_text("{}")
    for name in ("trace.log", "run.fxscope"):
        done = fxscope(verb, name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"fxscope: {name} is a recording and no program: name the script")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run.fxscope", "trace.log"]
