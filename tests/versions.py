"""Smoke test of recording and report on other versions of PyTorch, each in an environment of its own.

    python -m venv /tmp/t211 && /tmp/t211/bin/pip install torch==2.11.0 numpy
    python tests/versions.py /tmp/t211/bin/python ...

fxscope itself need not be installed there: the launcher brings the recorder along. Prints a line per interpreter and
exits with 1 where one failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import torch
def broken(x):
    y = x.sin()
    if y.sum() > 100:  # break
        y = y + 1
    return y * 2
def stormy(x, tag):
    return x + len(tag)
def training(x, w):
    return (x @ w).relu().sum()
def prints(x):
    print(x)
    return x
def bad(gm, inputs):
    raise ValueError("no")
g = torch.compile(broken, backend="eager")
for _ in range(3):
    g(torch.ones(4))
h = torch.compile(stormy, backend="eager")
for n in range(10):
    h(torch.ones(4), "x" * n)
w = torch.ones(4, 4, requires_grad=True)
t = torch.compile(training, backend=BACKEND)
for _ in range(5):
    t(torch.ones(4, 4), w).backward()
for keywords in ({"fullgraph": True}, {"backend": bad}):
    try:
        torch.compile(prints if "fullgraph" in keywords else training, **{"backend": "eager", **keywords})(
            *(torch.ones(4),) if "fullgraph" in keywords else (torch.ones(5, 5), torch.ones(5, 5)))
    except Exception as error:
        print(type(error).__name__)
"""


def check(python: str, backend: str, folder: Path) -> list[str]:
    """What is wrong with a recording made by this interpreter; empty where all is well."""
    import fxscope

    script = folder / "program.py"
    script.write_text(SCRIPT.replace("BACKEND", repr(backend)))
    record = ["-m", "fxscope", "run", "--headless", "--quiet", "--time-launches", "-o", str(folder / "r")]
    done = subprocess.run(
        [sys.executable, *record, "--config", "recompile_limit=4", "--", python, str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = []

    def expect(name: str, found: object, wanted: object) -> None:
        if found != wanted:
            wrong.append(f"{name}: {found!r}, not {wanted!r}")

    expect("exit code", done.returncode, 0)
    expect("output", done.stdout.split(), ["Unsupported", "BackendCompilerFailed"])
    if "fxscope" in done.stderr:
        wrong.append(done.stderr)
    recording = fxscope.open(folder / "r")
    expect("break sites", [(b.line, b.count) for b in recording.graph_breaks], [(5, 1)])
    expect("limit hits", [(hit.function, hit.value) for hit in recording.limit_hits], [("stormy", 4)])
    expect("refused", [r.outcome for r in recording.recompiles].count("refused"), 1)
    expect("failures", [f.phase for f in recording.failures], ["fullgraph", "backend"])
    calls = {(c.function, c.calls) for c in recording.compiles if c.calls}
    expect("calls of training", ("training", 5) in calls, True)
    expect("calls of broken", ("broken", 3) in calls, True)
    expect("unknown events", recording.totals.unknown_events, 0)
    for log in (folder / "r").glob("*.log"):
        for line in log.read_text().splitlines():
            if line.startswith('\t{"fxscope": '):
                expect("unavailable", json.loads(line)["unavailable"], [])
        strict = subprocess.run(
            [Path(sys.executable).parent / "tlparse", "--strict", "--no-browser", "-o", str(folder / "out"), str(log)],
            capture_output=True,
            check=False,
        )
        expect("tlparse --strict", strict.returncode, 0)
    report = [sys.executable, "-m", "fxscope", "report", str(folder / "r"), "--json"]
    document = subprocess.run(report, capture_output=True, text=True, check=False)
    expect("report", document.returncode, 0)
    return wrong


def main(pythons: list[str]) -> int:
    """Check each interpreter with the eager-like and the inductor backend."""
    failed = 0
    for python in pythons:
        version = subprocess.run(
            [python, "-c", "import sys, torch; print(sys.version.split()[0], torch.__version__)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for backend in ("aot_eager", "inductor"):
            with tempfile.TemporaryDirectory() as folder:
                wrong = check(python, backend, Path(folder))
            print(f"python and torch {version}, {backend}: {'ok' if not wrong else 'FAILED'}", *wrong, sep="\n    ")
            failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
