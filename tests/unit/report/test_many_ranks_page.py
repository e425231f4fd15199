"""A report of many ranks tells what they share once: in the terminal, on the page and in its timeline."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from fxscope.recording.recording import Recording, open_recording
from fxscope.report.html import render_html
from fxscope.report.terminal import print_report
from fxscope.report.timeline import MOST_THREADS, make_timeline


@pytest.fixture(scope="module")
def recording(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Thirty ranks of one real log, of which rank 7 also has what only another log has."""
    folder = tmp_path_factory.mktemp("ranks")
    (log,) = (shared / "traces" / "tlparse" / "multi_rank_schedule").glob("*rank_0_*.log")
    raw = log.read_bytes()
    for rank in range(30):
        data = raw + re.sub(rb'"frame_id": 1,', b'"frame_id": 5,', raw) if rank == 7 else raw
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(data)
    return open_recording(folder)


@pytest.mark.shared
def test_the_terminal_page(recording: Recording) -> None:
    out = io.StringIO()
    print_report(recording, Console(file=out, width=80, markup=False, highlight=False, emoji=False))
    text = out.getvalue()
    assert "ranks 0-29" in text
    assert re.search(r"^  1/0 ×30 +ok +graph_two", text, re.MULTILINE)
    assert re.search(r"^  r7:5/0 +ok +graph_two", text, re.MULTILINE)
    assert "×n is the same on n ranks" in text
    assert re.search(r"^  ranks 0-6, 8-29 +2 ", text, re.MULTILINE)
    assert "0/0 on ranks 0-29 forward.code" in text
    assert text.count("\n") < 90


@pytest.mark.shared
def test_the_html_page(recording: Recording) -> None:
    page = render_html(recording)
    assert "ranks 0-29" in page
    assert '<b class="mono">1/0 ×30</b>' in page
    assert '<b class="mono">r7:5/0</b>' in page
    assert len(page) < 600_000


@pytest.mark.shared
def test_the_timeline_draws_the_ranks_that_compiled_longest_in_order(recording: Recording) -> None:
    timeline = make_timeline(recording)
    assert timeline is not None
    labels = [lane.label for lane in timeline.lanes if lane.label]
    assert len(labels) == MOST_THREADS
    assert timeline.threads_left_out == 30 - MOST_THREADS
    assert "rank 7" in labels
    assert labels == sorted(labels, key=lambda label: int(label.split()[1]))
