"""Kernels: a source beside the nodes that it computes, with Inductor's kernel for the same nodes."""

from __future__ import annotations

import json
import sys

import pytest
from fxscope_tui.jobs import Job
from fxscope_tui.screens.kernel_sources import KernelSources
from fxscope_tui.widgets.code_view import CodeView

ROW = {"kind": "interpreted", "status": "ok", "median_ms": 3.0, "runs": 3}
KERNEL = "@triton.jit\ndef fused(a_ptr):\n    # y = x.sin() + 1  [net.py:3]\n    sin = tl.sin(a)\n    add = sin + 1\n    mul = add * 2\n"
INDUCTOR = "import torch\nfirst = async_compile.triton('''\n''')\nsecond = async_compile.triton('''\n''')\n"
DOCUMENT = {
    "schema": "fxscope.bench/1", "graph": "0/0", "stage": "dynamo", "device": "cpu", "reference": "eager", "notes": [], "traffic": None,
    "machine": {"bandwidth": 1e9, "flops": 1e9, "launch": 1e-6, "origin": "by hand"}, "partitions": {}, "sweep": None,
    "rows": [{"executor": "inductor", **ROW}, {"executor": "triton", **ROW}],
    "listings": {
        "inductor": [
            {"title": "Inductor output 0", "language": "python", "text": INDUCTOR,
             "lines_to_nodes": {"2": ["sin", "add"], "3": ["sin", "add"], "4": ["mul"], "5": ["mul"]}}
        ],
        "triton": [
            {"title": "fused", "language": "python", "text": KERNEL,
             "lines_to_nodes": {"4": ["sin"], "5": ["add"], "6": ["mul"]}}
        ],
    },
    "nodes": {"triton": {"sin": "sin: f32[3] = aten.sin(x)", "add": "add: f32[3] = aten.add(sin, 1)", "mul": "mul: f32[3] = aten.mul(add, 2)"}},
}  # fmt: skip


def marks(sources: KernelSources, pane: str) -> list[int]:
    return sorted(sources.query_one(f"#{pane}", CodeView).marks)


@pytest.mark.shared
@pytest.mark.parametrize("size", [(140, 40), (100, 30), (80, 24)], ids=str)
async def test_nodes_and_inductors_kernel_follow_the_line(size, shared, opened, monkeypatch):
    command = property(lambda self: [sys.executable, "-c", f"print({json.dumps(DOCUMENT)!r})"])
    monkeypatch.setattr(Job, "command", command)
    async with opened(shared / "traces" / "h200" / "gpt2", size=size) as driver:
        await driver.press("7", "r")
        await driver.until(lambda: "triton" in driver.frame() and "interpreted" in driver.frame())
        await driver.press("j", "enter")
        sources = driver.app.view.sources
        await driver.until(lambda: "def fused" in driver.frame())
        assert sources.right.line_number == 4  # the first line that computes a node
        assert (marks(sources, "kernels-nodes"), marks(sources, "kernels-inductor")) == ([1], [2])
        frame = driver.frame()
        assert "sin: f32[3]" in frame
        assert "first = async" in frame
        await driver.press("j", "j")
        assert (marks(sources, "kernels-nodes"), marks(sources, "kernels-inductor")) == ([3], [4])
        await driver.press("k", "k", "k")  # the comment stands for what is below it
        assert (marks(sources, "kernels-nodes"), marks(sources, "kernels-inductor")) == ([1], [2])
        await driver.press("g")
        assert (marks(sources, "kernels-nodes"), marks(sources, "kernels-inductor")) == ([], [])
        await driver.press("escape")
        assert "def fused" not in driver.frame()
        assert "graph 0/0" in driver.frame()
        await driver.press("k", "enter")  # Inductor's own source has no pane for Inductor
        await driver.until(lambda: "second = async" in driver.frame())
        assert not sources.has_class("-inductor")
        assert marks(sources, "kernels-nodes") == [1, 2]
