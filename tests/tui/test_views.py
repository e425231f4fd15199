"""Every view on a real recording: a GPT-2 trained on an H200, its lengths changing."""

from __future__ import annotations

from pathlib import Path

import pytest
from fxscope_tui.screens.timeline import nest
from fxscope_tui.store import Store
from fxscope_tui.widgets.document import Document

DATA = Path(__file__).resolve().parent.parent / "data"

pytestmark = pytest.mark.shared


@pytest.fixture
def resnet(shared: Path) -> Path:
    return shared / "traces" / "h200" / "resnet50"


async def test_overview_answers_what_is_wrong(gpt2, opened):
    async with opened(gpt2) as driver:
        frame = driver.frame()
        assert "graphs 4" in frame
        assert "breaks 5@1" in frame
        assert "recompiles 4" in frame
        assert "FINDINGS" in frame
        assert "logg" in frame  # the worst finding is the logger call


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("graph", ["2"]),
        ("graph-collapsed", ["2", "c"]),
        ("guards", ["3"]),
        ("guards-failed", ["3", "f"]),
        ("breaks", ["4"]),
        ("recompiles", ["5"]),
        ("passes-empty", ["6"]),
        ("kernels-empty", ["7"]),
        ("code", ["8"]),
        ("timeline", ["9"]),
        ("output-empty", ["0"]),
        ("help", ["2", "question_mark"]),
    ],
)
async def test_view(name, keys, gpt2, opened, golden):
    async with opened(gpt2) as driver:
        await driver.press(*keys)
        golden(name, driver.frame())


async def test_overview_has_what_only_some_recordings_have(shared, opened):
    async with opened(shared / "traces" / "tlparse" / "inductor_provenance_jit_cuda_log.txt") as driver:
        text = driver.app.view.document.page_text()
        assert "KERNELS AND THE NODES THEY COMPUTE" in text
        assert "triton_poi_fused_mul_1, line 197" in text
    async with opened(shared / "traces" / "h200" / "ranks_ddp") as driver:
        assert "RANKS" in driver.app.view.document.page_text()


async def test_an_export_has_its_questions_and_its_program(shared, opened):
    async with opened(shared / "traces" / "tlparse" / "export.log", size=(80, 40)) as driver:
        assert "1 program, 8 open questions" in driver.line("EXPORT")
        view = driver.app.view
        view.document.to_key(("export", 0))
        path, line = view.source_line()
        assert (path.rpartition("/")[2], line) == ("test_draft_export.py", 279)
        assert view.data()["export"].programs
        await driver.press("enter")
        assert driver.app.active == "code"
        assert "of the run" in driver.frame()
        assert "ExportedProgram:" in driver.frame()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("2", "This compile has no graph."),
        ("3", "No guards were logged"),
        ("4", "No graph breaks."),
        ("5", "No recompiles."),
        ("0", "There is no output to show."),
    ],
)
async def test_an_empty_view_says_what_would_fill_it(key, says, shared, opened):
    async with opened(shared / "traces" / "tlparse" / "export.log", size=(80, 24)) as driver:
        await driver.press(key)
        assert says in driver.frame()


async def test_eighty_columns_show_a_node_in_full_below_the_table(gpt2, opened, golden):
    async with opened(gpt2, size=(80, 24)) as driver:
        await driver.press("2")
        golden("graph-80x24", driver.frame())
        driver.app.view.to_node("attn_output_1")
        await driver.settle()
        assert "sdpa_attention.py:168  attn_output = attn_output.transpose(1, 2)" in driver.frame()
        await driver.press("question_mark", "down")
        assert "graph.stage" in driver.frame()  # the id has no column here: the line below the list tells it


async def test_a_compile_tells_who_called_it_its_sizes_and_why_it_was_begun_anew(gpt2, opened):
    async with opened(gpt2, size=(120, 50)) as driver:
        driver.app.select_compile("1/1_1")
        await driver.press("9")
        detail = driver.app.view.query_one(Document).page_text()
        assert "CALLED FROM" in detail
        assert "h200_traces.py:12" in detail
        assert "s70 = L['input_ids'].size()[1] (now 96)" in detail
        driver.app.select_compile("1/0")
        await driver.settle()
        assert "restarted: Unknown fail_and_restart_analysis" in driver.app.view.query_one(Document).page_text()
        await driver.press("2")
        assert "It ended as restarted: Unknown fail_and_restart_analysis" in driver.frame()


async def test_what_torch_measured_of_a_compile_is_one_of_its_texts(gpt2, opened):
    async with opened(gpt2) as driver:
        driver.app.select_compile("3/0")
        await driver.press("8", "s")
        await driver.type("compilation_metrics")
        await driver.press("enter")
        assert '"compile_id": "3/0"' in "\n".join(driver.app.view.code.lines)


async def test_aot_inductor_shows_its_code_before_what_belongs_to_no_compile(opened):
    async with opened(DATA / "traces" / "aot_inductor.log.xz") as driver:
        await driver.press("8")
        assert "text ‹forward.code›" in driver.frame()
        await driver.press("s")
        await driver.type("torch_version")
        await driver.press("enter")
        assert "of the run" in driver.frame()
        await driver.press("2", "s")
        assert "aten.addmm.d" in driver.frame()


def test_phases_of_two_ranks_are_told_apart():
    def phase(rank: int, name: str, begin: float, length: float) -> dict:
        return {"ph": "X", "pid": rank, "name": name, "ts": begin, "dur": length, "args": {"compile_id": "0/0"}}

    events = [phase(0, "dynamo", 0.0, 2e6), phase(1, "dynamo", 1e6, 3e6), phase(0, "backend", 1e6, 1e6)]
    assert nest(events, [0, 1]) == {
        "r0:0/0": [(0, "dynamo", 2.0), (1, "backend", 1.0)],
        "r1:0/0": [(0, "dynamo", 3.0)],
    }
    assert list(nest(events)) == ["0/0"]


def test_output_is_read_from_its_end(tmp_path):
    (tmp_path / "output.log").write_bytes(b"x" * 30_000_000 + b"the end")
    assert Store(tmp_path).output()[-8:] == b"xthe end"
    assert len(Store(tmp_path).output()) == 30_000_000
    assert Store(tmp_path / "absent").output() == b""
