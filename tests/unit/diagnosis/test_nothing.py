"""Frames were compiled and none of them holds an operation: whose breaks say why, and who has to be told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.nothing import findings
from fxscope.recording.records import Compile, GraphBreak, Session


@pytest.mark.parametrize(
    ("file", "told"),
    [
        # The steps of DistributedDataParallel around a bare nn.Sequential, as torch 2.13 logs them.
        ("/usr/lib/python3.11/contextlib.py", True),
        ("/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", True),
        ("/home/me/train.py", False),  # that break has a finding, and what to do
    ],
)
def test_a_wrapped_model_that_is_not_compiled_is_told(file: str, told: bool) -> None:
    inner = "/venv/lib/python3.11/site-packages/torch/_dynamo/external_utils.py"
    compiles = [
        Compile(id="0/0_1", key="0/0_1", function="inner", file=inner, line=67, status=status)
        for status in ("restarted", "empty")
    ]
    broken = GraphBreak(
        site="x.py:1", file=file, line=1, user_file="/home/me/train.py", user_line=12, user_code="step(x)"
    )
    recording: Any = SimpleNamespace(
        compiles=compiles,
        graph_breaks=[broken],
        failures=[],
        artifacts=[],
        totals=SimpleNamespace(graphs=0),
        session=Session(path="run", argv=["train.py"]),
    )
    found = findings(Context(recording))
    assert [each.title for each in found] == ["Not one operation was compiled: every graph is empty"] * told
    assert all("before it is wrapped" in each.fix for each in found)
