"""What is compiled outside any frame: AOTInductor (a real log of torch 2.13), and vLLM's piecewise compiles (one real log, and its format by hand)."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fxscope.diagnosis.diagnose import diagnose
from fxscope.recording.provenance import read_provenance
from fxscope.recording.recording import open_recording
from fxscope.recording.vllm import read_vllm
from fxscope.report.blocks import blocks

DATA = Path(__file__).resolve().parents[2] / "data"
LOG = DATA / "traces" / "aot_inductor.log.xz"


def test_aot_inductor_is_a_compile_of_its_own() -> None:
    recording = open_recording(LOG)
    (compile_,) = recording.compiles
    assert (compile_.key, compile_.status, compile_.function, compile_.line) == ("-/-", "ok", "AOTInductor", 8)
    assert compile_.stages == ["pre_grad", "inference", "forward.post_grad", "forward.code"]
    assert recording.find("-/-") is compile_
    assert "aten.addmm" in recording.text(recording.graph(compile_, "inference").event)
    assert "AOTInductorModel::run_impl" in recording.text(recording.graph(compile_, "forward.code").event)
    assert recording.totals.frames == 0
    assert recording.totals.compiles == 1
    assert recording.totals.compile_seconds > 0
    kernel_code = next(a for a in recording.artifacts if a.name == "inductor_aot_kernel_code")
    assert kernel_code.compile_key == "-/-"
    outside = next(a for a in recording.artifacts if a.name == "torch_version")
    assert outside.compile_key is None  # before it
    assert all("nothing-compiled" not in finding.ids for finding in diagnose(recording))


def test_its_kernels_have_lines_of_the_wrapper() -> None:
    recording = open_recording(LOG)
    (maps,) = read_provenance(recording, recording.compiles[0])
    code = recording.text(recording.graph(recording.compiles[0], "forward.code").event).split("\n")
    assert [kernel.name for kernel in maps.kernels] == [
        "cpp_fused_0:1",
        "aoti_torch_cpu_addmm_out:2",
        "cpp_fused_gelu_relu_1:3",
    ]
    for kernel in maps.kernels:
        assert f"{kernel.name.split(':')[0]}(" in code[kernel.lines[-1] - 1]
    assert [kernel.name for kernel in maps.of_node("linear")] == ["aoti_torch_cpu_addmm_out:2"]


def test_a_second_one_is_told_apart(tmp_path: Path) -> None:
    raw = lzma.decompress(LOG.read_bytes())
    log = tmp_path / "two.log"
    log.write_bytes(raw + raw)
    recording = open_recording(log)
    assert [row.key for row in recording.compiles] == ["-/-", "-/-#2"]
    assert recording.compiles[0].stages == recording.compiles[1].stages
    keys = [a.compile_key for a in recording.artifacts]
    assert keys[len(keys) // 2] is None  # between the two
    assert {keys[1], keys[-1]} == {"-/-", "-/-#2"}


def test_a_graph_captured_for_aot_compile_is_one_compile() -> None:
    """``torch.compile(step, fullgraph=True).aot_compile(...)``: Dynamo logs no start, what compiles the graph no frame."""
    recording = open_recording(DATA / "traces" / "aot_compile.log.xz")
    (row,) = recording.compiles
    assert (row.key, row.status, row.function, row.line) == ("0/0", "ok", "ahead of time", 10)
    assert row.stages == ["dynamo", "pre_grad", "inference", "forward.post_grad", "forward.code"]
    assert row.seconds is not None
    assert row.seconds > 1
    assert recording.totals.compiles == recording.totals.graphs == 1
    assert "aten.relu" in recording.text(recording.graph(row, "inference").event)
    assert {a.compile_key for a in recording.artifacts if a.name.startswith(("before_", "after_"))} == {"0/0"}
    assert diagnose(recording) == []


@pytest.mark.parametrize("name", ["branches", "cold_cache"])
def test_a_log_without_its_starts_has_the_same_times(tmp_path: Path, name: str) -> None:
    """A filter or a cut takes ``dynamo_start`` away; a frame is then like one that is captured ahead of time, and has its metrics."""
    log = DATA / "traces" / f"{name}.log.xz"
    lines = lzma.decompress(log.read_bytes()).split(b"\n")
    cut = tmp_path / "cut.log"
    cut.write_bytes(b"\n".join(line for line in lines if b'{"dynamo_start"' not in line))
    whole, left = open_recording(log), open_recording(cut)
    assert [(row.key, row.phases, row.seconds) for row in left.compiles] == [
        (row.key, row.phases, row.seconds) for row in whole.compiles
    ]
    assert left.compiles[0].seconds


def _event(name: str, value: Any, payload: str, **ids: int) -> str:
    envelope = {name: value, **ids, "has_payload": hashlib.md5(payload.encode()).hexdigest()}
    body = "".join(f"\n\t{line}" for line in payload.split("\n"))
    return f"V1129 11:59:38.304000 440 vllm/compilation/backends.py:1] {json.dumps(envelope)}{body}\n"


def _vllm_log(ids: dict[str, int]) -> str:
    """As vLLM's backends.py and piecewise_backend.py write it: two parts, each for all sizes and for size 8."""

    def artifact(name: str, value: dict[str, Any]) -> str:
        return _event("artifact", {"name": name, "encoding": "json"}, json.dumps(value), **ids)

    def start(index: int, low: int, high: int) -> str:
        value = {
            "piecewise_index": index,
            "submod_name": f"submod_{2 * index}",
            "total_piecewise_compiles": 2,
            "compile_range_start": low,
            "compile_range_end": high,
            "is_single_size": low == high,
            "is_cudagraph_capture_size": low == high,
        }
        return artifact("vllm_piecewise_compile_start", value)

    graph = "class GraphModule(torch.nn.Module):\n    def forward(self, x):\n        return (x,)"
    config = {
        "model": "m/Llama",
        "prefix": "",
        "mode": "3",
        "backend": "inductor",
        "splitting_ops": "attention",
        "enabled_passes": "",
    }
    text = _event("dynamo_output_graph", {"sizes": {}}, graph, **ids)
    text += artifact("vllm_compilation_config", config)
    text += _event("graph_dump", {"name": "vllm_piecewise_split_graph"}, graph, **ids)
    for low, high in ((1, 8192), (8, 8)):
        for index in (0, 1):
            text += start(index, low, high)
            if low == 1:
                text += _event("graph_dump", {"name": f"vllm_submod_{2 * index}"}, graph, **ids)
            text += _event("inductor_post_grad_graph", {}, graph, **ids)
            text += _event("inductor_output_code", {"filename": "/c.py"}, "code", **ids)
            text += _event("artifact", {"name": "fx_graph_cache_miss", "encoding": "json"}, "{}", **ids)
    return text


def test_a_real_vllm_log() -> None:
    """vLLM 0.33 on a CPU: two layers make three parts between the attention operators, each for size 8 and for all sizes."""
    recording = open_recording(DATA / "vllm" / "piecewise.log.xz")
    (row,) = recording.compiles
    (compile_,) = read_vllm(recording)
    assert compile_.compile_key == row.key == "0/0"
    assert (compile_.config["splitting_ops"], compile_.config["compile_sizes"]) == ("tiny::attention", "8")
    parts = [(part.name, part.sizes, part.graph is not None) for part in compile_.parts]
    assert parts == [(f"submod_{n}", sizes, sizes == "8") for n in (0, 2, 4) for sizes in ("8", "1-2048")]
    assert not any(part.cudagraph for part in compile_.parts)  # its flag says so of size 8, but cudagraph_mode is NONE
    assert 50 < sum(part.seconds for part in compile_.parts) < (row.seconds or 0.0)
    for number, part in enumerate(compile_.parts):
        assert part.artifacts[-1] == "runtime_wrapper_orchestration"
        (code,) = [name for name in part.artifacts if name.startswith("forward.code")]
        text = recording.text(recording.graph(row, "forward.code", number).event)
        assert code == ("forward.code" if not number else f"forward.code#{number}")
        # The part for all sizes has a symbolic one; the size 8 is in the other's code as a number.
        assert ("s77" in text) == (part.sizes != "8")
        graph = recording.text(recording.graph(row, "inference", number).event)
        assert ('"f32[8, ' in graph) == (part.sizes == "8")
    assert compile_.execution_code is not None
    assert recording.text(compile_.execution_code).count("__vllm_submods__[") == 3
    (block,) = [b for b in blocks(recording, stacks=False) if b.title == "vLLM"]
    assert block.lines[1].startswith("size 8: 3 parts in 33 s: submod_0 14 s (forward.code), submod_2 14 s (")
    assert diagnose(recording) == []


def test_vllm_parts_by_range_of_sizes(tmp_path: Path) -> None:
    log = tmp_path / "v.log"
    log.write_text(_vllm_log({"frame_id": 0, "frame_compile_id": 0, "attempt": 0}))
    recording = open_recording(log)
    (compile_,) = read_vllm(recording)
    assert compile_.compile_key == "0/0"
    assert compile_.config["model"] == "m/Llama"
    assert compile_.split_graph is not None
    assert "GraphModule" in recording.text(compile_.split_graph)
    assert [(p.name, p.sizes, p.cudagraph) for p in compile_.parts] == [
        ("submod_0", "1-8192", False),
        ("submod_2", "1-8192", False),
        ("submod_0", "8", True),
        ("submod_2", "8", True),
    ]
    assert [p.graph is not None for p in compile_.parts] == [True, True, False, False]
    assert all(sum(".code" in name for name in part.artifacts) == 1 for part in compile_.parts)
    (block,) = [b for b in blocks(recording, stacks=False) if b.title == "vLLM"]
    assert block.lines == [
        "model m/Llama",
        "sizes 1-8192: 2 parts in 0.0 s: submod_0 0.0 s (forward.code), submod_2 0.0 s (forward.code)",
        "size 8, CUDA graph: 2 parts in 0.0 s: submod_0 0.0 s (forward.code), submod_2 0.0 s (forward.code)",
        "settings: mode 3; backend inductor; splitting_ops attention",
    ]


def test_vllm_passes_and_cache_event(tmp_path: Path) -> None:
    """The events that tlparse's vLLM parser reads; parts compiled in threads."""
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    text = _vllm_log(ids)
    head = _event("artifact", {"name": "vllm_compile_event", "encoding": "json"}, json.dumps({"type": "fresh_compile"}))
    head += _event("graph_dump", {"name": "vllm_patterns.FusionPass"}, "def pattern_0(): ...", **ids)
    graph = "def forward(self, x):\n    a = torch.sin(x)\n    b = torch.cos(x)\n    return a + b"
    passes = _event("artifact", {"name": "before_post_grad_graph", "encoding": "string"}, graph)
    fused = "def forward(self, x):\n    c = torch.ops.fused_sincos(x)\n    return c"
    passes += _event("graph_dump", {"name": "vllm_post_grad.0.FusionPass"}, fused)
    passes += _event("graph_dump", {"name": "vllm_post_grad.1.NoOpPass"}, fused)
    log = tmp_path / "v.log"
    log.write_text(head + text + passes)  # without ids, as in a thread: of the last part, size 8
    recording = open_recording(log)
    (compile_,) = read_vllm(recording)
    assert compile_.event == "fresh_compile"
    assert "pattern_0" in recording.text(compile_.patterns["FusionPass"])
    steps = compile_.parts[-1].passes
    assert [step.name for step in steps] == ["FusionPass", "NoOpPass"]
    assert recording.text(steps[0].before or 0) == graph
    assert recording.text(steps[0].graph) == recording.text(steps[1].before or 0) == fused
    (block,) = [b for b in blocks(recording, stacks=False) if b.title == "vLLM"]
    assert block.lines[0] == "model m/Llama, fresh compile"
    assert block.lines[-3:-1] == [
        "pass FusionPass: changed 1 of 1 graph, 3 lines gone, 2 new, its patterns are in the log",
        "pass NoOpPass: changed 0 of 1 graph, found nothing to change",
    ]


def test_vllm_without_a_frame_or_config(tmp_path: Path) -> None:
    log = tmp_path / "v.log"
    text = _vllm_log({})
    log.write_text(text[text.index("V1129", text.index("vllm_piecewise_split_graph")) :])
    (compile_,) = read_vllm(open_recording(log))
    assert compile_.config == {}
    assert len(compile_.parts) == 4
    log.write_text(text.replace('"piecewise_index"', '"piecewise_index'))  # payloads that are no JSON
    assert [p.sizes for p in read_vllm(open_recording(log))[0].parts] == [""] * 4


def test_vllm_patterns_and_cache_event_are_of_the_compile_that_follows(tmp_path: Path) -> None:
    """Two configurations, and no event names a frame; what comes after the last one is the last one's."""

    def before(cache: str, name: str) -> str:
        value = json.dumps({"type": cache})
        text = _event("artifact", {"name": "vllm_compile_event", "encoding": "json"}, value)
        return text + _event("graph_dump", {"name": f"vllm_patterns.{name}"}, "def pattern_0(): ...")

    log = tmp_path / "dedicated_log_torch_trace_rank_0.log"
    late = _event("graph_dump", {"name": "vllm_patterns.Late"}, "def pattern_0(): ...")
    log.write_text(
        before("fresh_compile", "First") + _vllm_log({}) + before("aot_cache_hit", "Next") + _vllm_log({}) + late
    )
    log.with_name("dedicated_log_torch_trace_rank_1.log").write_text(_vllm_log({}))
    found = read_vllm(open_recording(tmp_path))
    assert [(each.event, sorted(each.patterns)) for each in found] == [
        ("fresh_compile", ["First"]),
        ("aot_cache_hit", ["Late", "Next"]),
        ("", []),
    ]
    assert "vllm_compile_event" not in found[0].parts[-1].artifacts


def test_a_vllm_pass_without_the_graph_before_it_is_not_said_to_find_nothing(tmp_path: Path) -> None:
    log = tmp_path / "v.log"
    log.write_text(
        _vllm_log({}) + _event("graph_dump", {"name": "vllm_post_grad.0.FusionPass"}, "def forward(self): ...")
    )
    (block,) = [b for b in blocks(open_recording(log), stacks=False) if b.title == "vLLM"]
    assert block.lines[-2] == "pass FusionPass: ran on 1 graph, the graph before it is not in the log"
