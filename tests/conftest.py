"""Shared fixtures: where ../shared lies, and recordings that several tests read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("FXSCOPE_SHARED", ROOT.parent / "shared"))

# The tools of the test extra (tlparse, coverage) lie beside the interpreter; `make test` does not activate the environment.
# tests/bin has a g++ that compiles a kernel once per test run.
os.environ["PATH"] = os.pathsep.join(
    [str(ROOT / "tests" / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
)

# No example has a time limit: a loaded machine is no fault of the code. The rest stays as the environment chose it (CI: derandomised).
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs ../shared, with the reason, where it is absent."""
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason=f"{SHARED} is absent")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder ../shared; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent")
    return SHARED


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all xdist workers of this test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "store"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _kernels_compiled_once(request: pytest.FixtureRequest, store: Path) -> None:
    """Every process of this test run shares what tests/bin/g++ compiles, unless compile times are measured."""
    if "bench" not in request.config.option.markexpr.replace("not bench", ""):
        folder = store / "compiled"
        folder.mkdir(exist_ok=True)
        os.environ["FXSCOPE_COMPILED"] = str(folder)


class Recorded:
    """A script recorded once per test run: its recording, exit code and output."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.fxscope"
        facts = json.loads((folder / "facts.json").read_text())
        self.exit_code: int = facts["exit_code"]
        self.stdout: str = facts["stdout"]
        self.stderr: str = facts["stderr"]


@pytest.fixture(scope="session")
def recorded(store: Path) -> Callable[..., Recorded]:
    """``recorded(script, *args, options=())``: record with ``fxscope run --headless``, once for all workers."""
    from filelock import FileLock  # comes with torch

    def make(script: Path, *args: str, options: tuple[str, ...] = ()) -> Recorded:
        name = "-".join([script.stem, *args, *options]).replace("/", "_")
        folder = store / name
        with FileLock(str(folder) + ".lock"):
            if not (folder / "facts.json").exists():
                folder.mkdir(exist_ok=True)
                command = ["-m", "fxscope", "run", "--headless", "--quiet", "-o", str(folder / "run.fxscope")]
                env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
                done = subprocess.run(
                    [sys.executable, *command, *options, str(script), *args],
                    capture_output=True,
                    text=True,
                    timeout=280,
                    env=env,
                    check=False,
                )
                facts = {"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
                (folder / "facts.json").write_text(json.dumps(facts))
        return Recorded(folder)

    return make


def _log_events(log: Path) -> list[tuple[dict, str]]:
    events: list[tuple[dict, list[str]]] = []
    for line in log.read_text().splitlines():
        if line.startswith("\t"):
            events[-1][1].append(line[1:])
        else:
            events.append((json.loads(line.split("] ", 1)[1]), []))
    return [(envelope, "\n".join(payload)) for envelope, payload in events]


@pytest.fixture(scope="session")
def log_events() -> Callable[[Path], list[tuple[dict, str]]]:
    """``log_events(log)``: envelope and payload of every event, by a parser of the tests' own that forgives nothing."""
    return _log_events
