"""Runs the tests on other versions of torch and Python, each in an environment of its own, and writes docs/versions.md.

    python scripts/version_matrix.py                       # every pair of PAIRS; hours, and about 7 GB of disk each
    python scripts/version_matrix.py 2.11.0/3.10 2.14.1/3.12 --tests tests/unit --tests tests/integration/test_run_program.py
    python scripts/version_matrix.py 2.15.0/3.13 --rest    # only tests that have not passed or skipped there yet
    python scripts/version_matrix.py 2.15.0/3.13 --smoke   # tests/versions.py only: one program recorded and reported

An environment is made under --folder where it is not there yet, with the pins of constraints.txt for everything but torch, and
triton and setuptools, which go with it. The outcome of each test is kept there, and a row sums up what is kept: a suite may be run in
parts and on several days. A pair whose wheels or interpreter cannot be had gets a row that says so. Exits with 1 where a test failed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import kept_results
from kept_results import Outcome

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
# Every torch with the oldest and newest Python that this project and the release support, and one between.
PAIRS = ("2.11.0/3.10", "2.12.1/3.11", "2.13.0/3.11", "2.14.1/3.12", "2.15.0/3.13")
SELECTED = ("-m", "not bench", "-p", "no:cacheprovider")
HEAD = """\
# Versions

What the tests say on each version of torch and Python; a row is rewritten by

```text
python scripts/version_matrix.py TORCH/PYTHON ... [--tests PATH]... [--rest]
```

which makes an environment, installs the package with the test extra, runs the tests (benchmarks left out) and `tests/versions.py`: one
program recorded from that interpreter without fxscope in it, and reported. Outcomes are kept per test, so that a suite can run in parts;
`--rest` runs what is missing or failed. A row counts the last outcome of each test of the suite, says at which commits they came, and how
many have none. A feature that a version lacks says so in a line, and everything else works; a test of it skips with the reason.

| torch | Python | date | commit | passed | failed | skipped | not run | tests | notes |
|---|---|---|---|---|---|---|---|---|---|
"""


class Row(NamedTuple):
    """A line of the table; every field as it is written."""

    torch: str
    python: str
    date: str
    commit: str
    passed: str
    failed: str
    skipped: str
    left: str
    tests: str
    notes: str


def interpreter(version: str) -> str | None:
    """Path of a Python of this minor version: on PATH, or one that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for path in filter(None, found):
        asked = subprocess.run(
            [path, "-c", "import sys, venv; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.stdout.strip() == version:
            return path
    return None


def install(torch: str, python: str, folder: Path) -> str:
    """Make the environment where it is not there yet; returns what went wrong, empty where nothing did."""
    done = folder / "installed"
    if done.exists():
        return ""
    base = interpreter(python)
    if base is None:
        return f"no Python {python} on this machine"
    subprocess.run([base, "-m", "venv", folder], check=True)
    pins = folder / "pins.txt"
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins.write_text("\n".join(line for line in lines if not re.match(r"(torch|triton|setuptools)==", line)) + "\n")
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q"]
    for arguments in (["-U", "pip"], [f"torch=={torch}", "-c", pins, "-e", f"{ROOT}[test]"]):
        made = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
        if made.returncode:
            errors = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
            return errors[0].removeprefix("ERROR: ") if errors else f"pip exited with {made.returncode}"
    broken = subprocess.run([*pip[:3], "check"], capture_output=True, text=True, check=False)
    if broken.returncode:
        return "pip check: " + "; ".join(broken.stdout.split("\n")[:3])
    done.touch()
    return ""


def collected(python: Path) -> list[str]:
    """Ids of all tests of the suite, as this interpreter collects them."""
    command = [python, "-m", "pytest", "--collect-only", "-q", *SELECTED]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise SystemExit(f"{python}: the tests cannot be collected:\n{listed.stdout[-2000:]}{listed.stderr[-2000:]}")
    return [line for line in listed.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def suite(folder: Path, arguments: argparse.Namespace) -> str:
    """Run the tests that were asked for, their outcomes kept in results.jsonl; a note where the run itself did not end well."""
    results, done = folder / "results.jsonl", folder / "done.txt"
    known = kept_results.read(results) if arguments.rest else {}
    done.write_text("".join(f"{test}\n" for test, last in known.items() if last.outcome != "failed"))
    described = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "FXSCOPE_RESULTS": str(results),
        "FXSCOPE_DONE": str(done),
        "FXSCOPE_COMMIT": commit,
    }
    command = [folder / "bin" / "python", "-m", "pytest", "-q", *SELECTED, "-p", "kept_results"]
    command += ["-n", str(arguments.jobs), "--dist", "loadgroup", *arguments.tests]
    with open(folder / "tests.log", "a") as log:
        try:
            code = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=arguments.limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"stopped after {arguments.limit:.0f} s"
    return "" if code in (0, 1, 5) else f"pytest exited with {code}"  # 5: nothing was left to run


def summed(torch: str, python: str, tests: list[str], results: dict[str, Outcome], notes: list[str]) -> Row:
    """The row of all outcomes that are kept; those of tests that are no longer in the suite do not count."""
    kept = {test: last for test, last in results.items() if test in set(tests)}
    counts = Counter(last.outcome for last in kept.values())
    dates = [last.time[:10] for last in kept.values()] or [today()]
    commits = list(dict.fromkeys(last.commit for last in kept.values()))
    failed = [test.removeprefix("tests/") for test, last in kept.items() if last.outcome == "failed"]
    return Row(
        torch,
        python,
        dates[-1],
        " to ".join(dict.fromkeys([*commits[:1], *commits[-1:]])),
        str(counts["passed"]),
        str(counts["failed"]),
        str(counts["skipped"]),
        str(len(tests) - len(kept)),
        kept_results.ran(tests, kept),
        "; ".join([*failed, *notes]),
    )


def today() -> str:
    """The date in UTC."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d")


def run(torch: str, python: str, arguments: argparse.Namespace) -> Row:
    """One pair, from nothing to its row."""
    folder = Path(arguments.folder) / f"{torch}-{python}"
    problem = install(torch, python, folder)
    if problem:
        return Row(torch, python, today(), *["–"] * 5, "none", problem)
    executable = folder / "bin" / "python"
    recorded = folder / "recorded"  # once is enough for a suite that runs in parts
    notes = []
    if not (arguments.rest and recorded.exists()):
        smoke = subprocess.run(
            [executable, ROOT / "tests" / "versions.py", executable], capture_output=True, text=True, check=False
        )
        if smoke.returncode:
            notes = [f"tests/versions.py: {smoke.stdout.strip() or smoke.stderr.strip()[-300:]}"]
        else:
            recorded.touch()
    if arguments.smoke:
        return Row(torch, python, today(), *["–"] * 5, "tests/versions.py", "; ".join(notes) or "recorded and reported")
    note = suite(folder, arguments)
    results = kept_results.read(folder / "results.jsonl")
    return summed(torch, python, collected(executable), results, [*notes, *([note] if note else [])])


def write(rows: list[Row], page: Path) -> None:
    """Put rows into the page's table, in the place of older ones of the same pair, in the order of versions.

    What follows the table is written by hand and stays.
    """
    known: dict[tuple[str, str], str] = {}
    after = ""
    if page.exists():
        text = page.read_text("utf-8")
        table, _, after = text.partition("\n## ")
        for line in table.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if re.match(r"\d+\.\d+\.\d+$", cells[0]):
                known[cells[0], cells[1]] = line
    for row in rows:
        known[row.torch, row.python] = (
            "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in row) + " |"
        )

    def order(pair: tuple[str, str]) -> list[int]:
        return [int(number) for version in pair for number in version.split(".")]

    page.write_text(
        HEAD + "".join(known[pair] + "\n" for pair in sorted(known, key=order)) + (f"\n## {after}" if after else ""),
        "utf-8",
    )


def main() -> int:
    """Each pair in turn; the page is written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", default=PAIRS, metavar="TORCH/PYTHON", help="e.g. 2.14.1/3.12")
    parser.add_argument(
        "--folder", default=str(Path(tempfile.gettempdir()) / "fxscope-versions"), help="of the environments"
    )
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="only these tests, repeatable")
    parser.add_argument("--rest", action="store_true", help="leave out tests that passed or skipped there before")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="tests at once")
    parser.add_argument("--smoke", action="store_true", help="only tests/versions.py")
    parser.add_argument("--limit", type=float, default=7200.0, metavar="SECONDS", help="of one run of the tests")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    arguments = parser.parse_args()
    wrong = False
    for pair in arguments.pairs:
        torch, _, python = pair.partition("/")
        row = run(torch, python, arguments)
        print(*row, sep="  ", flush=True)
        write([row], arguments.page)
        wrong |= row.failed not in ("0", "–") or "tests/versions.py:" in row.notes
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
