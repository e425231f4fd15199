"""The NPU on ResNet-50, batch 1: compile, event model, sweep (CPU seconds), executor against eager (ratio, interleaved).

CPU time, not wall-clock: other work on the machine does not count. Ratios are of medians of interleaved runs.
"""

import importlib.util
import statistics
import time
from pathlib import Path

import pytest
import torch

from fxscope.targets.npu import machine as machines
from fxscope.targets.npu.compile import compile_island
from fxscope.targets.npu.executable import NpuExecutable
from fxscope.targets.npu.simulate import simulate
from fxscope.targets.npu.sweep import sweep

pytestmark = [pytest.mark.bench, pytest.mark.slow]
MODELS = Path(__file__).parent.parent / "integration" / "test_npu_models.py"


@pytest.fixture(scope="module")
def resnet():
    """The model, its input, its one island and that island's inputs."""
    from torch._decomp import core_aten_decompositions
    from torch._functorch.aot_autograd import aot_function

    spec = importlib.util.spec_from_file_location("npu_models", MODELS)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    torch.manual_seed(0)
    model, x = models.ResNet().eval(), torch.randn(1, 3, 224, 224)
    parameters = dict(model.named_parameters())
    seen = []
    with torch.no_grad():
        aot_function(
            lambda p, v: torch.func.functional_call(model, p, (v,)),
            fw_compiler=lambda gm, inputs: seen.append((gm, inputs)) or gm,
            decompositions=core_aten_decompositions(),
        )(parameters, x)
    gm, _ = seen[0]
    return model, x, gm, [*parameters.values(), x]


def test_compile_takes_less_than_20_seconds(resnet, record_property):
    _, _, gm, _ = resnet
    begin = time.process_time()
    compiled = compile_island(gm, machines.load("gemmini-16x16"))
    made = time.process_time() - begin
    NpuExecutable(compiled, gm)  # proves the program legal, in either mode
    seconds = time.process_time() - begin
    record_property("seconds", seconds)
    count = len(compiled.program.instructions)
    print(f"\ncompile of ResNet-50: {made:.2f} s, {seconds:.2f} s with the proof, {count:,} instructions")
    assert seconds < 20


def test_event_model_takes_less_than_10_seconds(resnet, record_property):
    _, _, gm, _ = resnet
    machine = machines.load("gemmini-16x16")
    program = compile_island(gm, machine, tried=1).program
    begin = time.process_time()
    timing = simulate(program.instructions, machine)
    seconds = time.process_time() - begin
    record_property("seconds", seconds)
    print(
        f"\nevent model: {seconds:.2f} s, {len(program.instructions) / seconds:,.0f} instructions a second, {timing.total:,.0f} cycles"
    )
    assert seconds < 10


def test_sweep_of_20_machines_takes_less_than_2_minutes(resnet, record_property):
    _, _, gm, _ = resnet
    values = {"array.rows+array.cols": [8, 16, 32, 64, 128], "dram.bytes_per_cycle": [4.0, 8.0, 16.0, 64.0]}
    begin = time.process_time()
    rows = sweep([gm], machines.load("gemmini-16x16"), values)
    seconds = time.process_time() - begin
    record_property("seconds", seconds)
    print(f"\nsweep: {seconds:.1f} s for {len(rows)} machines")
    assert len(rows) == 20
    assert not any(row.error for row in rows)
    assert seconds < 120


@pytest.mark.parametrize("mode", ["plan", "instructions"])
def test_executor_takes_at_most_4_times_eager(resnet, record_property, mode):
    model, x, gm, inputs = resnet
    run = NpuExecutable(compile_island(gm, machines.load("gemmini-16x16"), tried=1), gm, mode=mode)
    calls = {"eager": lambda: model(x), "npu": lambda: run(*inputs)}
    times = {name: [] for name in calls}
    with torch.no_grad():
        for _ in range(2):
            for call in calls.values():
                call()
        for _ in range(7):
            for name, call in calls.items():
                begin = time.process_time()
                call()
                times[name].append(time.process_time() - begin)
    eager, npu = (statistics.median(times[name]) for name in ("eager", "npu"))
    record_property("ratio", npu / eager)
    print(f"\nexecutor, {mode}: {npu * 1e3:.0f} ms, eager {eager * 1e3:.0f} ms of CPU time, ratio {npu / eager:.2f}")
    assert npu <= 4 * eager


def test_proof_and_binding_of_the_instructions(resnet, record_property):
    """What an executable of mode="instructions" takes: the program proven legal, every instruction bound."""
    _, _, gm, _ = resnet
    compiled = compile_island(gm, machines.load("gemmini-16x16"), tried=1)
    begin = time.process_time()
    NpuExecutable(compiled, gm, mode="instructions")
    seconds = time.process_time() - begin
    record_property("seconds", seconds)
    print(f"\nproof and binding: {seconds:.1f} s for {len(compiled.program.instructions):,} instructions")
    assert seconds < 20
