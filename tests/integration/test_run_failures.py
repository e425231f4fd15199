"""Failures of real programs: each kept with its phase, type and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.trace_logs import Events, artifacts, check_log, logs

FAILURES = """
import threading
import torch
import torch._dynamo.backends.common as common
def run(f, x=torch.ones(2, 2), backend="eager", **keywords):
    torch._dynamo.reset()
    try:
        torch.compile(f, backend=backend, **keywords)(x)
    except Exception as error:
        print(type(error).__name__)
        torch.compile(lambda x: x + 1, backend="eager")(x)  # compiles well while another error is being handled
def prints(x):
    x = x + 1
    print(x)  # fullgraph
    return x
run(prints, fullgraph=True)
def refuses(gm, inputs):
    raise KeyError("no")
def plus(x):  # backend
    return x + 1
run(plus, backend=refuses)
def sized(x):  # constraint
    return x + 1 if x.shape[0] == 2 else x
marked = torch.ones(2, 2); torch._dynamo.mark_dynamic(marked, 0)
run(sized, marked)
def views(x):
    return x.view(7)  # dynamo
run(views)
torch._dynamo.config.recompile_limit = 1
def text(x, s):  # limit
    return x + len(s)
g = torch.compile(text, backend="eager", fullgraph=True); g(torch.ones(2), "a")
try:
    g(torch.ones(2), "b")
except Exception as error:
    print(type(error).__name__)
def twice():
    loss = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")(torch.ones(2, requires_grad=True))
    loss.backward()
    loss.backward()  # freed
thread = threading.Thread(target=twice); thread.start(); thread.join()
def no_backward(gm, inputs):
    raise RuntimeError("no backward")
def sine(x):  # backward
    return x.sin().sum()
torch.compile(sine, backend=common.aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=no_backward))(
    torch.ones(2, requires_grad=True)).backward()
"""


def test_failures_are_kept_with_their_line(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILURES)
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(tmp_path / "r"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "fxscope" not in done.stderr
    assert done.stderr.endswith("RuntimeError: no backward\n")
    (log,) = logs(tmp_path / "r")
    failures = artifacts(check_log(log, log_events), "fxscope.failure")
    lines = FAILURES.splitlines()
    seen = [(f["phase"], f["type"], Path(f["file"]).name, lines[f["line"] - 1].partition("# ")[2]) for f in failures]
    assert seen == [
        ("fullgraph", "Unsupported", "fails.py", "fullgraph"),
        ("backend", "BackendCompilerFailed", "fails.py", "backend"),
        ("constraint", "ConstraintViolationError", "fails.py", "constraint"),
        ("dynamo", "TorchRuntimeError", "fails.py", "dynamo"),
        ("fullgraph", "FailOnRecompileLimitHit", "fails.py", "limit"),
        ("backward", "RuntimeError", "fails.py", "freed"),
        ("backward", "RuntimeError", "fails.py", "backward"),
    ]
    # Which compile the end of a thread belongs to is not known.
    assert [bool(failure["id"]) for failure in failures] == [True] * 5 + [False, True]
    assert all(failure["message"] for failure in failures)
    assert failures[1]["cause"] == {"type": "KeyError", "message": "'no'"}
    (limit,) = artifacts(log_events(log), "fxscope.limit")
    assert (limit["function"], limit["limit"], limit["value"], limit["raised"]) == ("text", "recompile_limit", 1, True)


def test_what_torch_compile_itself_refuses_is_kept(tmp_path: Path, log_events: Events) -> None:
    script = tmp_path / "refused.py"
    script.write_text("import torch\nfast = torch.compile(lambda x: x + 1, backend='tensorrt')\nfast(torch.ones(2))\n")
    command = [sys.executable, "-m", "fxscope", "run", "--headless", "--quiet", "-o", str(tmp_path / "r"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (failure,) = artifacts(check_log(logs(tmp_path / "r")[0], log_events), "fxscope.failure")
    assert (failure["phase"], failure["type"], failure["line"]) == ("dynamo", "InvalidBackend", 2)
