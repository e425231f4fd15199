"""Host synchronisation in graphs, and what PyTorch's profile (PGO) says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fxscope
from fxscope.diagnosis import hostsync, pgo
from fxscope.diagnosis.diagnose import diagnose
from fxscope.recording.records import Compile

# As torch 2.13 prints graphs: the line of the program before the operations that it made.
AOT = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8]cuda:0"):
        # File: /home/me/train.py:7 in step, code: scale = x.abs().max().item()
        amax: "f32[]cuda:0" = torch.ops.aten.amax.default(arg0_1)
        _local_scalar_dense: "Sym(zuf0)" = torch.ops.aten._local_scalar_dense.default(amax)
        # File: /home/me/train.py:9 in step, code: y = x[x > 0]
        gt: "b8[8]cuda:0" = torch.ops.aten.gt.Scalar(arg0_1, 0)
        nonzero: "i64[u0, 1]cuda:0" = torch.ops.aten.nonzero.default(gt)
        # File: /home/me/train.py:11 in step, code: log = y.cpu()
        _to_copy: "f32[u0]cpu" = torch.ops.aten._to_copy.default(arg0_1, device = device(type='cpu'))
        # File: /home/me/train.py:12 in step, code: z = x.to(torch.float16)
        _to_copy_1: "f16[8]cuda:0" = torch.ops.aten._to_copy.default(arg0_1, dtype = torch.float16)
        return (_to_copy_1,)
"""
PROFILE = """hash(c862bb8a)/home/me/train.py:2:f:
  L['x']: tensor size=[?, 3] stride=[S(1), 1]
  L['s']: fully dynamic scalar or tensor
  L['w']: tensor size=[3, 3] stride=[S(1), 1]

PGO detected a recompilation due to dynamic shapes. To reduce shape recompilations ... TORCH_COMPILE_DYNAMIC_SOURCES="L['x'],L['s']"
"""


def context_of(text: str) -> Any:
    compile_ = Compile(id="0/0", key="0/0", status="ok", function="step", file="/home/me/train.py", line=5, calls=40)
    compile_.graphs = [SimpleNamespace(stage="inference", event=0)]  # type: ignore[list-item]
    return SimpleNamespace(recording=SimpleNamespace(compiles=[compile_], text=lambda event: text))


def test_the_lines_that_make_the_host_wait() -> None:
    found = hostsync.findings(context_of(AOT))
    assert [(finding.line, finding.ids) for finding in found] == [(line, ["host-sync"]) for line in (7, 9, 11)]
    assert found[0].code == "scale = x.abs().max().item()"
    assert "40 calls" in found[0].cause
    assert [word in finding.title for word, finding in zip(("value", "shape", "copied"), found, strict=True)] == [
        True
    ] * 3


def test_on_the_cpu_nobody_waits() -> None:
    assert hostsync.findings(context_of(AOT.replace("cuda:0", "cpu"))) == []


def test_a_graph_that_waits_for_nothing() -> None:
    kept = [line for line in AOT.splitlines() if not any(name in line for name in ("dense", "nonzero", "_to_copy:"))]
    assert hostsync.findings(context_of("\n".join(kept))) == []


def test_a_profile_names_what_is_dynamic() -> None:
    assert pgo.dynamic_sources(PROFILE) == {("/home/me/train.py", 2, "f"): ["L['x']", "L['s']"]}
    assert pgo.dynamic_sources("nonsense\n  L['x']: tensor size=[3]") == {}


@pytest.mark.timeout(300)
def test_two_runs_with_one_profile(tmp_path: Path) -> None:
    """Real torch: the first run's recompiles go into the profile, the second has none and says why."""
    script = tmp_path / "job.py"
    script.write_text(
        "import sys, torch, fxscope\n@torch.compile(backend='eager')\ndef f(x, s):\n    return x.sum(0) * s\n"
        "with fxscope.record(sys.argv[1]):\n    for n in (4, 6, 9):\n        f(torch.ones(n, 3), n)\n"
    )
    env = {**os.environ, "TORCH_COMPILE_JOB_ID": "job:1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    recordings = []
    for name in ("first", "second"):
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=200,
            env=env,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        recordings.append(fxscope.open(tmp_path / name))
    first, second = recordings
    assert (first.totals.recompiles, second.totals.recompiles) == (1, 0)
    (written,) = [finding for finding in diagnose(first) if finding.ids == ["pgo"]]
    assert "TORCH_COMPILE_DYNAMIC_SOURCES=\"L['x'],L['s']\"" in written.fix
    (read, *_) = [finding for finding in diagnose(second) if finding.ids == ["pgo"]]
    assert "avoided: x, s" in read.gain
    assert (Path(read.file).name, read.line, read.severity) == ("job.py", 2, "info")
