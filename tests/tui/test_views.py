"""Every view on a real recording: a GPT-2 trained on an H200, its lengths changing."""

from __future__ import annotations

from pathlib import Path

import pytest

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
