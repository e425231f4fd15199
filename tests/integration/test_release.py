"""A release: the source distribution builds the wheel, which brings all it needs, and no more, into a clean environment."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import fxscope

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"fxscope": "fxscope", "tui": "fxscope_tui"}  # folder in the tree -> package in the wheel
NOT_SOURCE = ("__pycache__", "*.pyc", "*.egg-info", "build", "dist", ".*", "*.fxscope")


def _build(kind: str, source: Path, out: Path) -> Path:
    """What a front end such as ``python -m build`` asks of the build backend, without its download of setuptools."""
    out.mkdir(exist_ok=True)
    hook = f"import setuptools.build_meta as backend; print(backend.build_{kind}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", hook], cwd=source, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    return _build("sdist", tree, folder / "dist")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    unpacked = sdist.parent.parent / "unpacked"
    unpacked.mkdir()
    # The filters of tarfile came with 3.10.12 and 3.11.4; since 3.12 it warns without one.
    subprocess.run(["tar", "-xzf", sdist, "-C", unpacked], check=True, timeout=100)
    (source,) = unpacked.iterdir()
    return _build("wheel", source, sdist.parent)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """Folder of the scripts of an environment that has the wheel, and sees the dependencies of this one."""
    folder = wheel.parent.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=100)
    scripts = folder / "bin"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        scripts / "python",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        wheel,
    ]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched, but its own .pth files, such as that of this checkout, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts


def _run(scripts: Path, cwd: Path, *command: str) -> str:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [scripts / command[0], *command[1:]], cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, (command, done.stderr[-2000:])
    return done.stdout


def _files(folder: str, package: str) -> set[str]:
    base = ROOT / folder
    return {
        f"{package}/{path.relative_to(base).as_posix()}"
        for path in base.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


@pytest.mark.slow
def test_the_source_distribution_holds_what_the_tests_need(sdist: Path) -> None:
    listed = subprocess.run(["tar", "-tzf", sdist], check=True, capture_output=True, text=True, timeout=100).stdout
    names = {name.partition("/")[2] for name in listed.splitlines()}
    tree = sdist.parent.parent / "tree"
    needed = {path for folder in ("docs", "samples", "scripts", "tests") for path in (tree / folder).rglob("*")}
    assert {path.relative_to(tree).as_posix() for path in needed if path.is_file()} - names == set()
    assert {"Makefile", "constraints.txt", "README.md", "CHANGELOG.md"} <= names


@pytest.mark.slow
def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {name for folder, package in PACKAGES.items() for name in _files(folder, package)}
    assert names == expected  # every module, table, template and py.typed; no test, sample or document


def test_every_package_that_is_imported_is_declared(wheel: Path) -> None:
    """By the package itself or one of its extras; pytest is there where its plugin is loaded."""
    (metadata,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    required = re.findall(
        r"^Requires-Dist: ([\w.-]+)(?!.*extra == .test)", zipfile.ZipFile(wheel).read(metadata).decode(), re.MULTILINE
    )
    imported = set()
    for path in (path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            imported |= {name.split(".")[0] for name in names}
    known = {*sys.stdlib_module_names, *PACKAGES.values(), "fxscope", "tomllib", "pytest", *required}
    assert imported <= known


@pytest.mark.slow
def test_the_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"fxscope-{fxscope.__version__}.dist-info"
    metadata = archive.read(f"{info}/METADATA").decode()
    assert f"\nVersion: {fxscope.__version__}\n" in metadata
    assert "\nRequires-Python: >=3.10\n" in metadata
    assert "\n# fxscope\n" in metadata  # the README
    assert f"{info}/licenses/LICENSE" in archive.namelist()
    entry_points = archive.read(f"{info}/entry_points.txt").decode()
    for group in ("console_scripts", "torch_dynamo_backends", "fxscope.targets", "pytest11"):
        assert f"[{group}]" in entry_points


@pytest.mark.slow
def test_it_runs_without_the_source_tree(installed: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    shutil.copytree(ROOT / "tests" / "data" / "nccl" / "ddp-uneven", log)
    where = _run(
        installed,
        tmp_path,
        "python",
        "-c",
        "import fxscope, fxscope_tui; print(fxscope.__file__, fxscope_tui.__file__)",
    )
    assert str(ROOT) not in where
    assert where.count(str(installed.parent)) == 2
    assert _run(installed, tmp_path, "fxscope", "--version") == f"fxscope, version {fxscope.__version__}\n"
    assert "Examples:" in _run(installed, tmp_path, "fxscope", "--help")
    assert "graph break" in _run(installed, tmp_path, "fxscope", "report", "log")
    _run(installed, tmp_path, "fxscope", "report", "log", "--html", "page.html")
    assert "<html" in (tmp_path / "page.html").read_text("utf-8")  # the template
    assert "rank" in _run(installed, tmp_path, "fxscope", "diagnose", "log")  # the tables of findings and advice
    assert "bytes_per_cycle" in _run(installed, tmp_path, "fxscope", "npu", "spec", "gemmini-16x16")
