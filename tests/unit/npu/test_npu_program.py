"""Program files, memory plan, tile search, debug table, null executables."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from fxscope.errors import CheckFailed, UnreadableError, UsageError
from fxscope.targets.npu import machine as machines
from fxscope.targets.npu.access import Buffer, Rows, View, collapse, contiguous, view_strides
from fxscope.targets.npu.compile import compile_island
from fxscope.targets.npu.device import NpuTarget
from fxscope.targets.npu.encoding import decode, encode
from fxscope.targets.npu.placement import lower_bound, place
from fxscope.targets.npu.program import MAGIC, from_bytes, to_bytes
from fxscope.targets.npu.tiling import Shape, candidates, search

GEMMINI = machines.load("gemmini-16x16")


def lowered(function, *inputs, machine=GEMMINI):
    return compile_island(make_fx(function, tracing_mode="fake")(*inputs), machine)


def test_program_file_round_trip():
    program = lowered(lambda x, w: torch.relu(x @ w) @ w, torch.randn(40, 32), torch.randn(32, 32)).program
    assert decode(encode(program.instructions)) == program.instructions
    for loops in (True, False):
        assert from_bytes(to_bytes(program, loops=loops)) == program


@pytest.mark.parametrize("cut", [0, 3, 19, 20, 100, -1])
def test_truncated_program_files(cut):
    data = to_bytes(lowered(lambda x: torch.relu(x) * 2, torch.randn(9, 9)).program)
    with pytest.raises(UnreadableError, match=r"no fxscope NPU program|truncated") as caught:
        from_bytes(data[:cut], "p.bin")
    assert "\n" not in str(caught.value)


def test_other_version_and_extra_bytes():
    data = to_bytes(lowered(lambda x: torch.relu(x) * 2, torch.randn(9, 9)).program)
    with pytest.raises(UnreadableError, match="program format 9"):
        from_bytes(MAGIC + b"\x09\x00" + data[6:])
    with pytest.raises(UnreadableError, match="longer than it says"):
        from_bytes(data + b"\0")


def test_debug_table_leads_both_ways():
    gm = torch.fx.symbolic_trace(lambda x, w: torch.relu(x @ w))
    del gm
    made = lowered(lambda x, w: torch.sigmoid(torch.relu(x @ w).sum(1)), torch.randn(40, 32), torch.randn(32, 32))
    program = made.program
    nodes = {entry.node for entry in program.debug if entry.node}
    assert {"mm", "relu", "sum_1", "sigmoid"} <= nodes
    for node in nodes:
        for index in program.instructions_of(node):
            assert program.entry(program.instructions[index].dbg).node == node
    covered = {index for node in nodes for index in program.instructions_of(node)}
    assert covered == set(range(len(program.instructions)))
    assert program.where(program.instructions_of("relu")[0]).startswith("instruction ")


# Strides


@given(st.data())
@settings(max_examples=200)
def test_view_strides_agree_with_torch(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.arange(torch.Size(shape).numel()).reshape([shape[d] for d in order])
    tensor = tensor.permute([list(order).index(d) for d in range(len(shape))])
    total = tensor.numel()
    new = data.draw(
        st.sampled_from(
            [[total], [1, total], [total, 1], *([[a, total // a] for a in range(1, total + 1) if total % a == 0])]
        )
    )
    ours = view_strides(tuple(tensor.shape), tensor.stride(), new)
    try:
        wanted = tensor.view(new)
    except RuntimeError:
        assert ours is None
        return
    assert ours is not None
    again = tensor.as_strided(new, ours)
    assert torch.equal(again, wanted)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(max_examples=100)
def test_runs_cover_rows_in_order(shape, data):
    strides = data.draw(st.lists(st.integers(0, 50), min_size=len(shape), max_size=len(shape)))
    rows = Rows.of(shape, strides)
    offsets = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in torch.cartesian_prod(*[torch.arange(n) for n in shape]).reshape(-1, len(shape)).tolist()]  # fmt: skip
    begin = data.draw(st.integers(0, len(offsets) - 1))
    end = data.draw(st.integers(begin + 1, len(offsets)))
    seen = [run.offset + n * run.stride for run in rows.runs(begin, end) for n in range(run.rows)]
    assert seen == offsets[begin:end]


def test_collapse_merges_what_all_operands_allow():
    assert collapse([2, 3, 4], [contiguous([2, 3, 4])]) == ([24], [[1]])
    assert collapse([2, 3, 4], [contiguous([2, 3, 4]), [0, 0, 1]]) == ([6, 4], [[4, 1], [0, 1]])
    assert collapse([1, 1], [[5, 7]]) == ([1], [[1]])


# Memory plan


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=25),
    st.sampled_from([0, 4096, 16384]),
)
@settings(max_examples=100)
def test_plan_never_overlaps_live_buffers(items, chip):
    machine = machines.with_values(GEMMINI, {"chip.bytes": chip})
    buffers = [
        Buffer(f"b{n}", "f32", size, "scratch", first=first, last=first + life)
        for n, (size, first, life) in enumerate(items)
    ]
    sizes, reports = place(buffers, [], machine)
    for n, a in enumerate(buffers):
        assert a.offset % 64 == 0
        assert a.offset + a.bytes <= sizes[a.region]
        for b in buffers[n + 1 :]:
            if a.region == b.region and a.first <= b.last and b.first <= a.last:
                assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
    assert sizes["c"] <= chip
    for report in reports:
        assert report.bound <= report.peak or report.peak == 0
        assert report.fragmentation >= 1
    assert lower_bound(buffers) <= sum(b.bytes for b in buffers)
    if chip:
        assert all(b.spilled for b in buffers if b.region == "a")


def test_chip_memory_takes_intermediates_and_names_spills():
    machine = machines.with_values(GEMMINI, {"chip.bytes": 16384})
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    made = lowered(lambda x, w: torch.relu(x @ w) @ w @ w, x, w, machine=machine)
    regions = {tensor.name: (tensor.region, tensor.spilled) for tensor in made.program.tensors}
    assert regions["relu"][0] == "c"
    assert [m.region for m in made.memory] == ["a", "c"]
    small = machines.with_values(GEMMINI, {"chip.bytes": 8192})
    made = lowered(lambda x, w: torch.relu(x @ w) @ w @ w, x, w, machine=small)
    spilled = [tensor for tensor in made.program.tensors if tensor.spilled]
    assert {tensor.name for tensor in spilled} == {"relu", "mm_1"}
    assert all("do not fit on chip" in tensor.spilled for tensor in spilled)


# Tiles


@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 600), st.sampled_from(machines.names()))
@settings(max_examples=25)
def test_tiles_are_legal_and_bounded_below(m, n, k, preset):
    machine = machines.load(preset)
    shape = Shape(m, n, k, 1, "f32", 0, False, False, ("full",), 1, 0, 4)
    best = search(shape, machine)[0]
    a, b = best.m * machine.lines(best.k, 4), best.k * machine.lines(best.n, 4)
    assert a * best.a_slots + b * best.b_slots <= machine.spad_lines
    assert best.m * machine.lines(best.n, 4) * best.sets <= machine.acc_lines
    assert best.traffic >= best.bound == 4 * (m * k + k * n + m * n)
    assert all(best.cycles <= tile.cycles * 1.05 for tile in candidates(shape, machine))


def test_halving_the_scratchpad_changes_tiles_and_traffic():
    """A smaller scratchpad must show in the tile factors: the first thing that users of such models ask."""
    shape = Shape(512, 512, 512, 1, "f32", 0, False, False, ("full",), 0, 0, 4)
    large = search(shape, GEMMINI)[0]
    small = search(shape, machines.with_values(GEMMINI, {"local.scratchpad": 8192, "local.accumulator": 4096}))[0]
    assert (small.m, small.n, small.k) != (large.m, large.n, large.k)
    assert small.traffic > large.traffic


def test_no_tile_fits_is_one_line():
    machine = machines.with_values(GEMMINI, {"local.scratchpad": 1024, "local.accumulator": 1024})
    shape = Shape(64, 64, 64, 1, "f32", 0, False, False, ("full",) * 9, 1, 0, 4)
    with pytest.raises(UsageError, match="no tile of a 64x64x64 product fits gemmini-16x16"):
        search(shape, machine)


# Supports


def refused(function, *inputs):
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    target = NpuTarget()
    return [clause for node in gm.graph.nodes if node.op == "call_function" for clause in target.supports(node)]


@pytest.mark.parametrize(
    ("function", "inputs", "code"),
    [
        (lambda x: torch.cumsum(x, 0), (torch.randn(4),), "op"),
        (lambda x: x + x, (torch.randn(4, dtype=torch.float64),), "dtype"),
        (
            lambda x: torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1] + 1,
            (torch.randn(1, 1, 4, 4),),
            "attribute",
        ),
        (lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 3), (torch.randn(1, 2, 8, 8),), "attribute"),
        (lambda x: torch.relu(x), (torch.randn(*[1] * 9),), "rank"),
        (lambda x: torch.relu(x), (torch.randn(0, 4),), "attribute"),
        (lambda x: torch.sum(x, 0, dtype=torch.float64), (torch.randn(4),), "attribute"),
    ],
)
def test_reasons(function, inputs, code):
    assert code in {clause.code for clause in refused(function, *inputs)}


def test_every_failing_clause_is_listed():
    clauses = refused(torch.relu, torch.randn(*[1] * 9).double())
    assert {clause.code for clause in clauses} >= {"dtype", "rank"}


def test_cost_and_listing_of_an_island():
    gm = make_fx(lambda x, w: (torch.relu(x @ w),), tracing_mode="fake")(torch.randn(40, 32), torch.randn(32, 32))
    target = NpuTarget()
    cost = target.cost(gm)
    assert cost.flops == 2 * 40 * 32 * 32
    assert cost.bytes >= 4 * (40 * 32 + 32 * 32 + 40 * 32)
    assert cost.seconds > 0
    assert any("modelled" in line for line in cost.assumptions)
    executable = target.compile(gm, [])
    listing = executable.listings()[0]
    assert listing.language == "npu"
    lines = listing.text.splitlines()
    assert len(lines) == len(executable.compiled.program.instructions)
    assert {name for names in listing.lines_to_nodes.values() for name in names} == {"mm", "relu"}
    assert target.unavailable() is None


def test_unlowered_node_is_named():
    gm = make_fx(lambda x: torch.cumsum(x, 0), tracing_mode="fake")(torch.randn(4))
    with pytest.raises(UsageError, match=r"no lowering for cumsum \(aten.cumsum.default\)"):
        NpuTarget().compile(gm, [])


def test_view_helpers():
    buffer = Buffer("b", "f32", 24, "scratch")
    view = View(buffer, (2, 3, 4), contiguous((2, 3, 4)))
    assert view.slice(2, 1, 4, 2) == View(buffer, (2, 3, 2), (12, 4, 2), 1)
    assert view.select(1, 2) == View(buffer, (2, 4), (12, 1), 8)
    assert view.permute((2, 0, 1)).reshape((4, 6)) == View(buffer, (4, 6), (1, 4))
    assert view.permute((2, 0, 1)).reshape((24,)) is None


@pytest.mark.parametrize("mode", ["plan", "instructions"])
def test_an_illegal_program_never_becomes_an_executable(npu, mode):
    """Whatever mistake the compiler might make is found when the program is made, in either mode."""
    gm = npu.island(lambda x, w: torch.relu(x @ w), torch.randn(40, 40), torch.randn(40, 40))

    def broken(change):
        compiled = npu.compile_island(gm, npu.gemmini)
        change(compiled.program.instructions)
        with pytest.raises(CheckFailed) as caught:
            npu.NpuExecutable(compiled, gm, mode=mode)
        return str(caught.value)

    def first(instructions, op):
        return next(index for index, instruction in enumerate(instructions) if instruction.op == op)

    def no_token(instructions):
        instructions[first(instructions, "gemm")].pop_prev = False

    assert "race (read after write)" in broken(no_token)
    assert "uninitialised" in broken(lambda code: code[first(code, "gemm")].args.update(a=3000))
    assert "out of range" in broken(lambda code: code[first(code, "st")].args.update(addr=1 << 20))
    assert "deadlock" in broken(lambda code: setattr(code[first(code, "gemm")], "pop_next", True))


@pytest.mark.parametrize("mode", ["plan", "instructions"])
def test_a_weight_that_is_shuffled_behind_autograds_back_is_seen(npu, mode):
    """A write through ``.data`` leaves the version, the place and the sum of a weight as they were."""
    weights = {"linear": torch.randn(8, 6), "conv": torch.randn(4, 3, 3, 3)}

    def function(x, image, linear, conv):
        return torch.nn.functional.linear(x, linear), torch.conv2d(image, conv)

    inputs = (torch.randn(5, 6), torch.randn(1, 3, 6, 6), *weights.values())
    gm = npu.island(function, *inputs)
    run = npu.NpuExecutable(npu.compile_island(gm, npu.gemmini), gm, mode=mode)
    for _ in range(2):
        for result, wanted in zip(run(*inputs), function(*inputs), strict=True):
            torch.testing.assert_close(result, wanted, atol=1e-4, rtol=0)
        for weight in weights.values():
            weight.data.copy_(weight.flip(0, 1))
