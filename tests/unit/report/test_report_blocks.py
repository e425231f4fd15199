"""Parts of the report that only some logs have: ranks, kernels and nodes, links, stacks, export; in text, JSON and HTML."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from fxscope.diagnosis.ranks import compare_ranks
from fxscope.recording.many import summarize_all
from fxscope.recording.recording import Recording, open_recording
from fxscope.report.document import encode_document, report_document
from fxscope.report.html import render_html
from fxscope.report.stacks import stack_lines
from fxscope.report.terminal import print_report

DATA = Path(__file__).resolve().parents[2] / "data"


def _text(recording: Recording, *, everything: bool = False) -> str:
    out = io.StringIO()
    print_report(
        recording, Console(file=out, width=100, markup=False, highlight=False, emoji=False), everything=everything
    )
    return " ".join(out.getvalue().split())


def _three(recording: Recording) -> tuple[str, dict, str]:  # type: ignore[type-arg]
    document = msgspec.json.decode(encode_document(report_document(recording)))
    return _text(recording), document, render_html(recording)


def test_ranks_and_what_differs_between_them() -> None:
    recording = open_recording(DATA / "nccl" / "ddp-uneven")
    text, document, page = _three(recording)
    (finding,) = compare_ranks(summarize_all(DATA / "nccl" / "ddp-uneven"))
    assert "Ranks: 2 compiles seconds recompiles breaks failures collectives rank 0 " in text
    for shown in (text, page):
        assert f"high: {finding.title}" in shown
    assert [row["rank"] for row in document["ranks"]["ranks"]] == [0, 1]
    assert [row["title"] for row in document["ranks"]["findings"]] == [finding.title]
    assert document["ranks"]["ranks"][0]["recompiles"] == 2


@pytest.mark.shared
def test_kernels_and_nodes_both_ways(shared: Path) -> None:
    recording = open_recording(shared / "traces" / "tlparse" / "inductor_provenance_jit_cuda_log.txt")
    text, document, page = _three(recording)
    for shown in (text, page):
        assert "triton_poi_fused_mul_1, line 197 computes mul from d" in " ".join(shown.split())
        assert "node z goes into triton_poi_fused_addmm_gelu_2" in shown
    (row,) = document["provenance"]
    assert row["key"] == "0/0"
    assert {k["name"] for k in row["maps"][0]["kernels"]} >= {"triton_poi_fused_mul_1", "extern_kernels.mm"}
    assert row["maps"][0]["pre_to_post"]["z"]
    assert row["maps"][0]["post_to_pre"]["mul"] == ["d"]


@pytest.mark.shared
def test_links(shared: Path) -> None:
    text, document, page = _three(open_recording(shared / "traces" / "tlparse" / "links.log"))
    assert document["links"] == [{"id": "0/0", "name": "manifold_url", "url": "https://www.google.com"}]
    for shown in (text, page):
        assert "manifold_url https://www.google.com" in " ".join(shown.split())


@pytest.mark.shared
def test_export_tells_what_was_assumed_first_and_how_it_came_about(shared: Path) -> None:
    text, document, page = _three(open_recording(shared / "traces" / "tlparse" / "export.log"))
    assert len(document["export"]["issues"]) == 8
    for shown in (text, " ".join(page.split())):
        assert shown.index("data-dependent") < shown.index("_check_is_size")
        assert "symbol() = u0 at test_draft_export.py:269" in shown
        assert "Tensor(shape: torch.Size([2*s0])" in shown


@pytest.mark.shared
def test_the_tree_of_stacks_has_every_compile_that_tlparse_has_in_its(shared: Path) -> None:
    recording = open_recording(shared / "traces" / "tlparse" / "comp_metrics.log")
    lines = stack_lines(recording)
    assert sum(line.count("[") for line in lines) == len(recording.compiles) == 5
    assert "Where compiles come from" in _text(recording, everything=True)
    assert "Where compiles come from" not in _text(recording)
    assert "Where compiles come from" in render_html(recording)


def test_stacks_that_part_are_indented() -> None:
    lines = stack_lines(open_recording(DATA / "traces" / "compiled_autograd.log.xz"))
    assert any(line.startswith("  ") for line in lines)
    assert not lines[0].startswith(" ")


def test_a_plain_log_has_none_of_them() -> None:
    text, document, _ = _three(open_recording(DATA / "traces" / "branches.log.xz"))
    assert (document["ranks"], document["provenance"], document["vllm"], document["links"]) == (None, [], [], [])
    assert "Ranks" not in text
    assert "Kernels" not in text


def test_the_page_shows_metrics_and_symbolic_shapes() -> None:
    page = render_html(open_recording(DATA / "traces" / "branches.log.xz"))
    assert "entire_frame_compile" in page
    page = render_html(open_recording(DATA / "traces" / "nested_breaks.log.xz"))
    assert "symbolic shapes" in page
    assert "symbol s" in page
    assert "from L['" in page.replace("&#39;", "'")
