"""Graphs for the tests of this room: the printed ones of ../shared, and small ones written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fxscope.recording.recording import open_recording

# Folders and files under ../shared/traces that hold graphs.
LOGS = (
    *(f"h200/{name}" for name in ("gpt2", "resnet50", "bert_amp", "ranks_ddp", "ranks_fsdp2")),
    *(
        f"models/{name}"
        for name in ("Encodec", "GPT2", "LlamaDynamicCache", "Mixtral", "PeAudio", "SwitchTransformers", "T5")
    ),
    *(f"tlparse/{name}.log" for name in ("artifacts", "cache_hit_miss", "comp_metrics", "export", "links", "simple")),
    "tlparse/autotune_with_compile_id.log",
    "tlparse/comp_failure.log",
    "tlparse/inductor_provenance_jit_cuda_log.txt",
    "tlparse/inductor_provenance_jit_log.txt",
    "tlparse/multi_rank_logs",
    "tlparse/multi_rank_messy_input/dedicated_log_torch_trace_rank_0.log",
    "tlparse/multi_rank_schedule",
)


def printed_graphs(path: Path) -> Iterator[tuple[str, str, str]]:
    """(compile key, stage or artifact name, text) of every printed graph of a log, those that no compile owns included."""
    from fxscope.graph.printed import first_graph

    recording = open_recording(path)
    seen = set()
    for compile_ in recording.compiles:
        for text in compile_.graphs:
            seen.add(text.event)
            if not text.stage.endswith(".code"):
                yield compile_.key, text.stage, recording.text(text.event)
    for artifact in recording.artifacts:
        wanted = ("graph" in artifact.name and "runnable" not in artifact.name) or artifact.name == "exported_program"
        if artifact.event not in seen and wanted:
            text_ = recording.text(artifact.event)
            if first_graph(text_) is not None:
                yield artifact.compile_key or "", artifact.name, text_


@pytest.fixture(params=LOGS)
def log_graphs(request: pytest.FixtureRequest, shared: Path) -> list[tuple[str, str, str]]:
    """All printed graphs of one log."""
    return list(printed_graphs(shared / "traces" / request.param))


@pytest.fixture(scope="session")
def h200(shared: Path) -> Path:
    """The logs of an H200 machine."""
    return shared / "traces" / "h200"
