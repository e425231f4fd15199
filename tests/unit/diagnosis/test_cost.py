"""Findings about cost, from hand-made records: what is counted makes a finding, what is not does not."""

from __future__ import annotations

from typing import Any

import pytest

from fxscope.diagnosis.context import Context
from fxscope.diagnosis.cost import findings
from fxscope.diagnosis.launch_bound import predicted_skips
from fxscope.recording.records import Artifact, Compile, GraphText, Session, Totals

GRAPH = 'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "f32[{size}]"):\n{body}        return (y,)\n'


class Fake:
    """As much of a recording as the cost findings read."""

    def __init__(
        self, compiles: list[Compile], text: str = "", artifacts: list[Artifact] | None = None, wall: float = 100.0
    ) -> None:
        self.compiles, self._text, self.artifacts = compiles, text, artifacts or []
        self.session = Session(path="run", argv=["train.py"], started=0.0, ended=wall)
        self.totals = Totals(compile_seconds=sum(each.seconds or 0.0 for each in compiles))

    def text(self, event: int) -> str:
        return self._text

    def guards(self, compile_: Compile) -> list[Any]:
        return []


def compiled(**fields: Any) -> Compile:
    graph = GraphText(compile_key="0/0", stage="dynamo", name="dynamo_output_graph", size=100)
    values = {
        "id": "0/0",
        "key": "0/0",
        "function": "f",
        "file": "/a/train.py",
        "line": 3,
        "nodes": 20,
        "graphs": [graph],
        "calls": 10,
    }
    return Compile(**{**values, **fields})


def ids(recording: Fake) -> list[tuple[str, str]]:
    return [(finding.ids[0], finding.severity) for finding in findings(Context(recording))]  # type: ignore[arg-type]


def test_a_short_run_is_named_but_no_fault() -> None:
    slow = compiled(seconds=40.0, calls=3, stages=["dynamo", "forward.code"])
    assert ids(Fake([slow])) == [("not-amortised", "info")]
    assert ids(Fake([compiled(seconds=40.0, calls=3)])) == []  # no code was generated: a backend for debugging
    assert ids(Fake([compiled(seconds=40.0, calls=300, stages=["forward.code"])])) == []
    assert ids(Fake([compiled(seconds=40.0, calls=None, stages=["forward.code"])])) == []  # nobody counted
    assert ids(Fake([slow], wall=1000.0)) == []


def test_tiny_graphs() -> None:
    text = GRAPH.format(size="4", body="        y = L_x_ + 1\n")
    tiny = compiled(nodes=3, calls=5000, metrics={"graph_op_count": 1})
    assert ids(Fake([tiny], text)) == [("tiny-work", "low")]
    assert ids(Fake([compiled(nodes=3, calls=20, metrics={"graph_op_count": 1})], text)) == []
    assert ids(Fake([tiny], text.replace("L_x_ + 1", "torch.nn.functional.linear(L_x_, w)"))) == []
    assert ids(Fake([tiny, compiled(id="1/0", key="1/0", nodes=200)], text)) == []


def test_many_operations_on_little_data() -> None:
    body = "".join(f'        y = L_x_ + {number}; y: "f32[8, 16]"\n' for number in range(40))
    many = compiled(nodes=45, calls=500, metrics={"graph_op_count": 40})
    assert ids(Fake([many], GRAPH.format(size="8, 16", body=body))) == [("launch-bound", "info")]
    assert ids(Fake([many], GRAPH.format(size="4096, 4096", body=body))) == []
    assert (
        ids(Fake([compiled(nodes=45, calls=5, metrics={"graph_op_count": 40})], GRAPH.format(size="8", body=body)))
        == []
    )


def test_guards() -> None:
    metrics = {"guard_latency_us": 700}
    assert ids(Fake([compiled(guards=900, metrics=metrics)])) == [("guard-cost", "info")]
    assert ids(Fake([compiled(guards=900, metrics=metrics, call_seconds=0.001)])) == [("guard-cost", "low")]
    assert ids(Fake([compiled(guards=900, metrics=metrics, call_seconds=1.0)])) == []
    assert ids(Fake([compiled(guards=20, metrics=metrics)])) == []  # one sample of a few guards is noise


def test_ddp_split() -> None:
    pieces = [
        Artifact(name=f"optimize_ddp_split_child.submod_{n}", encoding="string", compile_key="0/0", size=1, event=0)
        for n in range(3)
    ]
    recording = Fake([compiled()], artifacts=pieces)
    (finding,) = findings(Context(recording))  # type: ignore[arg-type]
    assert finding.ids == ["ddp-split"]
    assert "3 graphs" in finding.title
    assert ids(Fake([compiled()], artifacts=pieces[:1])) == []


def test_cuda_graphs_that_are_skipped() -> None:
    reason = 'skipping cudagraphs due to mutated inputs (1 instances). Found from :\n   File "/a/train.py", line 7, in step\n    cache.add_(x)\n'
    (finding,) = findings(Context(Fake([compiled(metrics={"cudagraph_skip_reason": reason})])))  # type: ignore[arg-type]
    assert finding.ids == ["cudagraph-skipped", "launch-bound"]
    assert (finding.file, finding.line) == ("/a/train.py", 7)
    assert "mark_static_address" in finding.fix
    (finding,) = findings(
        Context(Fake([compiled(metrics={"cudagraph_skip_reason": "skipping cudagraphs due to cpu device (arg0_1)"})]))
    )  # type: ignore[arg-type]
    assert (finding.line, "on the CPU" in finding.fix) == (3, True)


def test_what_would_keep_cuda_graphs_away() -> None:
    body = "        add_ = l_cache_.add_(l_x_)\n        l_self_modules_bn_buffers_mean_.add_(1)\n"
    recording = Fake([compiled()], GRAPH.format(size="4", body=body))
    assert predicted_skips(Context(recording), compiled()) == ["the argument cache is written in place"]  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["requires_grad_", "detach_", "share_memory_"])
def test_what_ends_in_an_underscore_and_writes_no_value(method: str) -> None:
    recording = Fake([compiled()], GRAPH.format(size="4", body=f"        y = l_x_.{method}()\n"))
    assert predicted_skips(Context(recording), compiled()) == []  # type: ignore[arg-type]


def test_many_kernels_on_a_card() -> None:
    code = "".join(
        "        triton_poi_0.run(buf0, 32, stream=stream0)\n        extern_kernels.mm(buf0, arg1)\n" for _ in range(15)
    )
    texts = [GraphText(compile_key="0/0", stage="inference.code", name="inductor_output_code", size=100)]
    inputs = [{"device": "cuda:0"}]
    many = compiled(graphs=texts, inputs=inputs, call_seconds=3e-4)
    assert ids(Fake([many], code)) == [("launch-bound", "low")]
    assert ids(Fake([compiled(graphs=texts, inputs=inputs, call_seconds=3e-2)], code)) == []
    assert ids(Fake([compiled(graphs=texts, inputs=[{"device": "cpu"}], call_seconds=3e-4)], code)) == []
    asked = Artifact(name="fxscope.graph", encoding="json", compile_key="0/0", size=1, event=0)
    recording = Fake([many], code, artifacts=[asked])
    recording.text = lambda event: '{"mode": "reduce-overhead"}'  # type: ignore[method-assign]
    assert ids(recording) == []  # the remedy is in force


def test_an_argument_that_cuda_graphs_would_have_to_write() -> None:
    body = "        add_ = l_cache_.add_(l_x_)\n"
    asked = Artifact(name="fxscope.graph", encoding="json", compile_key="0/0", size=1, event=1)
    again = Artifact(name="fxscope.graph", encoding="json", compile_key="0/1", size=1, event=1)
    recording = Fake([compiled(), compiled(id="0/1", key="0/1")], artifacts=[asked, again])
    texts = {-1: GRAPH.format(size="4", body=body), 1: '{"mode": "reduce-overhead"}'}
    recording.text = texts.__getitem__  # type: ignore[method-assign]
    (finding,) = findings(Context(recording))  # type: ignore[arg-type]
    assert (finding.ids, finding.severity) == (["cudagraph-skipped"], "info")
    assert "the argument cache is written in place" in finding.title
    assert [each.compile_key for each in finding.evidence] == ["0/0", "0/1"]  # one reason is told once
    assert finding.verify.endswith("fxscope check --fail-on info")


def test_what_is_timed_is_not_modelled_as_well() -> None:
    body = "".join(f'        y = L_x_ + {number}; y: "f32[8, 16]"\n' for number in range(40))
    graph = GraphText(compile_key="0/0", stage="dynamo", name="dynamo_output_graph", size=100, event=0)
    code = GraphText(compile_key="0/0", stage="inference.code", name="inductor_output_code", size=100, event=1)
    many = compiled(
        nodes=45,
        calls=500,
        metrics={"graph_op_count": 40},
        graphs=[graph, code],
        inputs=[{"device": "cuda:0"}],
        call_seconds=3e-4,
    )
    recording = Fake([many])
    recording.text = [GRAPH.format(size="8, 16", body=body), "        k.run(buf0)\n" * 30].__getitem__  # type: ignore[method-assign]
    assert ids(recording) == [("launch-bound", "low")]
