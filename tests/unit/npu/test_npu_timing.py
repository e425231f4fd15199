"""The cycle model: SCALE-Sim's values, shadow weights, bounds, fetch, bandwidth."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxscope.errors import CheckFailed
from fxscope.targets.npu import machine as machines
from fxscope.targets.npu.assembly import assemble
from fxscope.targets.npu.operands import Block
from fxscope.targets.npu.simulate import simulate, stretches
from fxscope.targets.npu.timing import ceil_div, effective_bytes, knee, tree

GEMMINI = machines.load("gemmini-16x16")
IDEAL = {"dram.bytes_per_cycle": 1e12, "dram.read_latency": 0, "dram.write_latency": 0}
# M, N, K on a 32x32 array: reported "Total Cycles" of SCALE-Sim v2 and v3 for os, ws, is.
SCALE_SIM = {
    (32, 32, 32): (93, 125, 125),
    (64, 64, 64): (503, 631, 631),
    (100, 70, 50): (1343, 1163, 1311),
    (128, 128, 256): (5087, 7103, 7103),
    (1, 64, 64): (251, 379, 315),
    (33, 33, 33): (379, 507, 507),
}
SHADOW = {(64, 64, 64): 381, (100, 70, 50): 725, (128, 128, 256): 4221, (33, 33, 33): 257, (1, 64, 64): 225}


def shadow_cycles(side, m, n, k):
    """One weight-stationary product with shadow weights: 2R - 1 + (F - 1) max(T, R) + R + C - 2 + T, T at least 4."""
    stream = max(m, 4)
    folds = ceil_div(k, side) * ceil_div(n, side)
    return 2 * side - 1 + (folds - 1) * max(stream, side) + 2 * side - 2 + stream


def gemm(m, n, k):
    return assemble(f"gemm dtype=f32 a=0 t={m} b=0 k={k} c=0 n={n}")


@pytest.mark.parametrize(("shape", "reported"), SCALE_SIM.items())
def test_scale_sim_values(shape, reported):
    for dataflow, value in zip(("os", "ws", "is"), reported, strict=True):
        machine = machines.with_values(
            GEMMINI, {**IDEAL, "array.rows": 32, "array.cols": 32, "array.dataflow": dataflow, "array.shadow": False}
        )
        assert simulate(gemm(*shape), machine).total == pytest.approx(value + 1, abs=1e-3)


@pytest.mark.parametrize(("shape", "cycles"), SHADOW.items())
def test_shadow_weight_values(shape, cycles):
    assert shadow_cycles(32, *shape) == cycles
    machine = machines.with_values(GEMMINI, {**IDEAL, "array.rows": 32, "array.cols": 32})
    assert simulate(gemm(*shape), machine).total == pytest.approx(cycles, abs=1e-3)


@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=40)
def test_gemm_takes_the_cycles_of_its_folds(t, k_folds, n_folds):
    """A gemm instruction costs what the ldw and mm instructions cost that its sequencer stands for."""
    machine = machines.with_values(GEMMINI, {**IDEAL, "queues.execute": 64})
    lines = []
    for n in range(n_folds):
        for k in range(k_folds):
            lines.append("ldw dtype=f32 b=0 k=16 n=16 stride=1")
            lines.append(f"mm flip {'acc' if k else ''} dtype=f32 a=0 t={t} c={n} k=16 a_stride=1 c_stride=1")
    folds = simulate(assemble("\n".join(lines)), machine).total
    assert folds == pytest.approx(shadow_cycles(16, t, 16 * n_folds, 16 * k_folds), abs=0.01)
    assert folds == pytest.approx(simulate(gemm(t, 16 * n_folds, 16 * k_folds), machine).total, abs=0.01)


def test_burst_rule():
    block = Block("w", 0, 4, 8, 1024, 4, "f32")  # runs of 32 bytes
    assert effective_bytes(block, 64, block.bytes) == 256
    assert effective_bytes(Block("w", 0, 4, 8, 32, 4, "f32"), 64, 128) == 128  # rows touch: one run
    assert effective_bytes(Block("w", 0, 4, 8, 1024, 64, "f32"), 64, 128) == 128 * 16  # single elements


def test_tree_follows_onnxim():
    assert [tree(n, 16) for n in (1, 16, 17, 256, 257, 4096)] == [1, 1, 3, 17, 20, 273]


def test_knee_of_tpu_v1_is_near_the_papers_1350():
    tpu = machines.load("tpu-v1-256x256")
    assert knee(tpu) / 2 == pytest.approx(1350, rel=0.02)  # the paper counts a multiply-add once


def test_transfers_share_the_bus_and_latency_overlaps():
    load = "ld region=w dtype=f32 addr=0 row={} rows=16 cols=16 space=s stride=16\n"
    one, eight = (
        simulate(assemble(load.format(0)), GEMMINI),
        simulate(assemble("".join(load.format(n) for n in range(8))), GEMMINI),
    )
    assert one.total == 1 + 1024 / 16 + 100
    assert eight.total == 1 + 8 * 64 + 100
    slow = machines.with_values(GEMMINI, {"queues.outstanding": 1})
    assert simulate(assemble("".join(load.format(n) for n in range(8))), slow).total == 1 + 8 * (64 + 100)


def test_fetch_bounds_short_instructions():
    slow = machines.with_values(GEMMINI, {"dram.bytes_per_cycle": 1.0})
    assert simulate(assemble("nop queue=x\n" * 10), slow).total == 10 * 16 + 1


def test_full_queue_holds_back_dispatch():
    program = assemble("ld region=w dtype=f32 addr=0 row=0 rows=256 cols=16 space=s stride=16\n" * 9 + "nop queue=x")
    timing = simulate(program, GEMMINI)
    assert timing.starts[9] >= timing.starts[0] + 1  # the ninth load waits for a place, the nop behind it
    deep = machines.with_values(GEMMINI, {"queues.load": 1})
    assert simulate(program, deep).starts[9] > timing.starts[9]


def test_pmu_measures_stretches():
    text = "pmu event=begin id=3\newu fn=relu dst=0 rows=64 src=0 cols=16\npmu event=end id=3\npmu event=snapshot id=1"
    program = assemble(text)
    timing = simulate(program, GEMMINI)
    found = stretches(program, timing)
    assert found["stretch 3"] == timing.starts[2] - timing.starts[0] == pytest.approx(64 * 2 + 4 + 1, abs=1)
    assert found["snapshot 1 at instruction 3"] == timing.starts[3]
    with pytest.raises(CheckFailed, match="ends stretch 2, which never began"):
        stretches(assemble("pmu event=end id=2"), simulate(assemble("pmu event=end id=2"), GEMMINI))


def test_deadlock_is_an_error_of_the_model_too():
    with pytest.raises(CheckFailed, match="deadlock"):
        simulate(assemble("nop queue=x !pop.l"), GEMMINI)


TOKENS = st.lists(
    st.tuples(st.sampled_from("lxs"), st.integers(1, 300), st.booleans(), st.booleans()), min_size=1, max_size=30
)


@given(TOKENS, st.sampled_from(["gemmini-16x16", "ethos-u65-512", "tpu-v1-256x256"]))
@settings(max_examples=80)
def test_total_lies_between_its_bounds(rows, preset):
    machine = machines.load(preset)
    lines, held = [], {"l": 0, "x": 0, "s": 0}
    for queue, size, push, pop in rows:
        tokens = ""
        before = {"l": "s", "x": "l", "s": "x"}[queue]
        if pop and held[queue]:
            tokens += f" !pop.{before}"
            held[queue] -= 1
        after = {"l": "x", "x": "s", "s": "l"}[queue]
        if push and held[after] < 3:
            tokens += f" !push.{after}"
            held[after] += 1
        text = {
            "l": f"ld region=w dtype=f32 addr=0 row=0 rows={size % 16 + 1} cols=16 space=s stride={16 + size}",
            "x": f"gemm dtype=f32 a=0 t={size} b=0 k=16 c=0 n=16"
            if size % 2
            else f"ewu fn=exp dst=0 rows={size} src=0 cols=16",
            "s": f"st region=a dtype=f32 addr=0 row=0 rows={size % 16 + 1} cols=16 space=a stride=16",
        }[queue]
        lines.append(text + tokens)
    timing = simulate(assemble("\n".join(lines)), machine)
    assert timing.lower <= timing.total <= timing.upper
    for queue in "lxs":
        ends = 0.0
        for start, end, own in zip(timing.starts, timing.ends, timing.queues, strict=True):
            if own == queue:
                assert start >= ends  # in order, one at a time
                ends = end
