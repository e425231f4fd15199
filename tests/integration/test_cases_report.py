"""Every script of ../shared/cases, recorded and reported, against what torch's own logs said of it."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fxscope
from tests.versions_of_torch import guard_of_torch, line_of_torch, truth_of_torch

CASES = Path(os.environ.get("FXSCOPE_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "cases"
TRUTH = truth_of_torch(json.loads((CASES / "truth.json").read_text())) if CASES.is_dir() else {}
PARAMETERS = [
    pytest.param(case, variant, id=f"{case}{'-fixed' if variant == 'fixed_measured' else ''}")
    for case in sorted(TRUTH)
    for variant in ("measured", "fixed_measured")
    if TRUTH[case].get(variant)
]


def normalised(guard: str) -> str:
    """Addresses and numbers drawn at random differ from run to run."""
    return re.sub(r"0x[0-9a-f]+|0\.\d{6,}", "#", guard)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(("case", "variant"), PARAMETERS)
def test_report_matches_truth(case: str, variant: str, recorded: Any) -> None:
    truth = TRUTH[case][variant]
    arguments = ("--fixed",) if variant == "fixed_measured" else ()
    run = recorded(CASES / TRUTH[case]["script"], *arguments)
    assert run.exit_code == truth["exit_code"], run.stderr
    recording = fxscope.open(run.path)
    totals = recording.totals

    assert totals.graphs == truth["graphs"]
    assert totals.graph_breaks == truth["break_events"] == sum(row.count for row in recording.graph_breaks)
    sites: Counter[tuple[str, int]] = Counter()
    for row in recording.graph_breaks:
        sites[os.path.basename(row.file), row.line] += row.count
    assert sites == {
        (site["file"], line_of_torch(site["file"], site["line"])): site["count"] for site in truth["break_sites"]
    }

    assert len(recording.recompiles) == truth["recompile_records"]
    assert totals.limit_hits == truth["limit_hits"]
    assert totals.recompiles == truth["recompile_records"] - truth["limit_hits"]
    for row, expected in zip(recording.recompiles, truth["failed_guards"], strict=True):
        assert (row.function, os.path.basename(row.file), row.line) == (
            expected["function"],
            expected["file"],
            line_of_torch(expected["file"], expected["line"]),
        )
        # The truth keeps at most the first three reasons of a record.
        guards = [normalised(f"{failed.entry}: {failed.guard}") for failed in row.failed]
        assert guards[: len(expected["guards"])] == [normalised(guard_of_torch(guard)) for guard in expected["guards"]]
        assert all(failed.kind != "other" for failed in row.failed)
    if truth["exception"]:
        assert recording.failures, truth["exception"]
