"""The tables of docs/performance_gpu.md are written by a script from what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "benchmarks" / "gpu" / "gpu_tables.py"


def row(case: str, at: int, ours: int, **more: object) -> dict[str, object]:
    common = {
        "group": "page",
        "page": None,
        "ceiling": 4200,
        "eager": 1000,
        "error": 1e-3,
        "schedules": ["flat"],
        "ours_us": 2.0,
    }
    return {"case": case, "at": at, "ours": ours, **common, **more}


def written(
    tmp_path: Path, *parts: list[dict[str, object]], page: Path | None = None
) -> subprocess.CompletedProcess[str]:
    paths = [tmp_path / f"part{number}.json" for number in range(len(parts))]
    for path, rows in zip(paths, parts, strict=True):
        path.write_text(json.dumps({"rows": rows}))
    options = ["--page", str(page)] if page else []
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, paths), *options], capture_output=True, text=True, check=False
    )


AHEAD = row("softmax bf16 64x1001", 3, 4000, inductor=4100, page=4010)
LEADS = row("softmax bf16 64x1024", 0, 4300, inductor=2000, liger=4000, tuned=4200)
TINY = row("rmsnorm fp32 4x8", 2, 200, group="small", inductor=100, inductor_us=4.0, ceiling=128)


def test_rows_of_two_processes_are_one_table_in_order(tmp_path: Path) -> None:
    done = written(tmp_path, [LEADS, TINY], [AHEAD])
    assert done.returncode == 0, done.stderr
    sections = dict(part.split("\n\n", 1) for part in done.stdout.split("## ")[1:])
    lines = sections["rows"].strip().splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| softmax bf16 64x1024", "| softmax bf16 64x1001"]
    assert " 4,300 | 4,200 | 102 % | 2,000 | 4,200 | 4,000 | 1,000 | 1.02x | " in lines[0]
    assert (
        sections["small"].strip().splitlines()[2]
        == "| rmsnorm fp32 4x8 | 2.00 | 200 | 0.00 | 4.00 |  |  |  | 2.00x | flat |"
    )
    assert "| softmax bf16 64x1001 | 4,000 | Inductor 4,100 | 2.4 % |" in sections["behind"]
    assert "| softmax bf16 64x1001 | 4,000 | best known 4,010 | 0.2 % |" in sections["behind"]
    assert "64x1024" not in sections["behind"] + sections["ragged"] + sections["below"]
    assert "| softmax bf16 64x1001 | 95 % | 98 % | 0.98x |" in sections["ragged"]
    assert "| softmax bf16 64x1001 | 95 % | 0.98x |" in sections["below"]


@pytest.mark.parametrize("unfit", [{"wrong": True}, {"failed": "out of memory"}, {"inductor": None}])
def test_a_row_that_says_nothing_is_no_table(unfit: dict[str, object], tmp_path: Path) -> None:
    done = written(tmp_path, [LEADS, {**AHEAD, **unfit}])
    assert done.returncode != 0
    assert done.stderr.strip() == "failed, wrong or without a peer: softmax bf16 64x1001"


def test_the_page_has_a_place_for_each_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "performance_gpu.md").read_text())
    assert written(tmp_path, [LEADS, TINY], [AHEAD], page=page).returncode == 0
    once = page.read_text()
    assert once.count("| softmax bf16 64x1001 |") == 5
    assert "bias_relu bf16 8192x8192" not in once
    assert written(tmp_path, [LEADS, TINY], [AHEAD], page=page).returncode == 0
    assert page.read_text() == once
