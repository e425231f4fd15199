"""Recompiles by which automatic dynamism (PGO) makes something dynamic are marked one by one: in the records, the report and the story."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fxscope
from fxscope.cli import report

pytestmark = pytest.mark.timeout(900)  # the first test records all problems, on a machine that may be busy
Problems = Callable[[str], tuple[Path, dict[str, Any]]]


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        ("batch_size", [["L['x']._base.size()[0]: 12 -> 18", "L['x'].size()[0]: 4 -> 6"]]),
        ("int_argument", [["L['n']: 2 -> 3"]]),
        ("crop_sizes", [["L['size'][0]: 3 -> 4", "L['size'][1]: 5 -> 7"]]),
        ("dtype_flip", [[]]),  # nothing that a profile makes dynamic
        ("enum_argument", [[], []]),
    ],
)
def test_each_recompile_has_its_decisions(problems: Problems, name: str, decisions: list[list[str]]) -> None:
    folder, _ = problems("recompiles")
    rows = fxscope.open(str(folder / name)).recompiles
    assert [sorted(row.pgo) for row in rows] == decisions


def test_the_report_and_the_story_show_them(problems: Problems) -> None:
    folder, _ = problems("recompiles")
    path = str(folder / "batch_size")
    text = CliRunner().invoke(report.command, [path]).stdout
    assert "PGO marks as dynamic: L['" in text
    assert "L['x'].size()[0]: 4 -> 6" in " ".join(text.split())
    document = json.loads(CliRunner().invoke(report.command, [path, "--json"]).stdout)
    (row,) = document["recompiles"]
    assert "L['x'].size()[0]: 4 -> 6" in row["pgo"]
    (finding,) = fxscope.open(path).diagnose()
    assert "(PGO marks as dynamic: " in finding.evidence[0].text
    assert "x (size 0)" in finding.evidence[0].text
