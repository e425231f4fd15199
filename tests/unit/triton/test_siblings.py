"""Small kernels that need nothing of one another are one launch; what waits for something is not in it."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")
from fxscope.targets.triton.executable import Compiled, TritonExecutable, first_candidate
from fxscope.targets.triton.schedule import Schedule, candidates
from fxscope.targets.triton.siblings import MAX_ARGUMENTS, Siblings, Units, _is_member, launches
from tests.unit.triton.traced import DEVICE, INTERPRETED, graph, on_device
from tests.unit.triton.tuning import PretendedCard, kernel

CPU = torch.device("cpu")


LIMITS = {torch.float32: 2e-6, torch.float64: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def run(function: Any, *args: torch.Tensor, choose: Any = first_candidate) -> Compiled:
    """Compared with eager: whole numbers exactly, others by the norm of the difference."""
    args = tuple(on_device(x) for x in args)
    executable = TritonExecutable(graph(function, *args), args, choose, DEVICE, INTERPRETED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = executable(*args)
    wanted = function(*args)
    for one, other in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        if one.is_floating_point():
            assert float((one.double() - other.double()).norm() / other.double().norm()) <= LIMITS[one.dtype]
        else:
            assert torch.equal(one, other)
    assert executable.latest is not None
    return executable.latest


def written(function: Any, *args: torch.Tensor) -> Compiled:
    """Written for a card; the tensors are fake."""
    return Compiled(graph(function, *args), args, first_candidate, CPU, False, bind=False)


def units(compiled: Compiled) -> list[list[str]]:
    """The nodes of each launch, after it is asserted that what a kernel needs is launched before it."""
    before: set[int] = set()
    out = []
    for kernels in launches(compiled.plan, {}):
        assert all(kernel.needs <= before for kernel in kernels)
        before |= {kernel.index for kernel in kernels}
        out.append([node for kernel in kernels for node in kernel.nodes])
    assert before == set(compiled.plan.kernels)
    return out


def test_kernels_over_different_tensors_are_one_launch() -> None:
    def function(a, b, c, d):
        return a.to(torch.bfloat16), torch.relu(b + 1), c.sum(0), d * 2 + 1

    x = torch.randn(7, 33)
    compiled = run(function, torch.randn(300), torch.randn(5, 40), x, torch.randn(2050).half())
    assert compiled.launches == 1
    (source,) = compiled.sources
    assert "4 kernels that need nothing of one another" in source.text
    assert source.text.count("@triton.jit") == 5
    assert source.grid == (3 + 2 + 5 + 17,)  # blocks of 128; columns in eights


@pytest.mark.parametrize("count", [2, 5])
def test_every_formulation_deals_each_program_to_its_member(count: int) -> None:
    args = tuple(torch.arange(700 * (k + 1), dtype=torch.float32) for k in range(count))
    for turn in range(4):

        def nth(nest: Any, *_: Any) -> Any:
            options = candidates(nest)
            assert isinstance(nest, Siblings)
            return options[turn % len(options)]  # noqa: B023 -- called within this turn

        assert run(lambda *xs: tuple(x * (k + 2) for k, x in enumerate(xs)), *args, choose=nth).launches == 1


@pytest.mark.parametrize("turn", range(3))
def test_sums_are_taken_in_every_depth_and_width(turn: int) -> None:
    def choose(nest: Any, *_: Any) -> Any:
        options = candidates(nest)
        kinds = list({(option.tile, option.depth): option for option in options}.values())
        assert {option.tile for option in kinds} == {8, 16, 32}
        return kinds[[1, 2, -1][turn]]

    x, y = torch.randn(150, 40), torch.randn(3, 70, 9)
    assert run(lambda x, y, z: (x.sum(0), torch.tanh(y).sum(1) * 2, z + 1), x, y, x, choose=choose).launches == 1


def normed(q, k, w, x):
    """What an attention does to queries and keys, and rows that start anywhere."""
    rms = (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * w for y in (q, k))
    return (*rms, torch.softmax(x, -1), x.sum(), (k + 1).half())


def test_short_rows_are_one_launch_with_others() -> None:
    args = torch.randn(3, 5, 64), torch.randn(7, 64), torch.randn(64), torch.randn(9, 77)
    for turn in range(2):
        compiled = run(normed, *args, choose=lambda nest, *_: candidates(nest)[-turn])  # noqa: B023 -- called within this turn
        assert compiled.launches == 1
        assert "rows of 64; row" in compiled.sources[0].text


def test_long_rows_and_sums_down_them_stay_alone() -> None:
    with FakeTensorMode():
        long, w, short = torch.empty(4, 20000), torch.empty(256), torch.empty(600, 256)
        compiled = written(lambda a, b, c: (torch.softmax(a, -1), torch.softmax(b, -1), c + 1), long, w, w.clone())
        assert sorted(source.schedule.form for source in compiled.sources) == ["row", "several"]
        compiled = written(lambda x, g, w: ((x * g).sum(0), torch.relu(x) * 2, w + 1), short, short.clone(), w)
    assert [source.schedule.form for source in compiled.sources] == ["sums", "several"]
    assert "parts" in compiled.sources[1].text  # they are added up beside the pointwise one
    with FakeTensorMode():
        wide = torch.empty(600, 5000)
        compiled = written(lambda x, g, w: ((x * g).sum(0), w + 1), wide, wide.clone(), torch.empty(256))
    # There may be so many partial sums that adding them up takes longer than a launch.
    assert sorted(source.schedule.form for source in compiled.sources) == ["flat", "loop", "sums"]


def test_members_that_differ_in_names_alone_share_a_function_and_lines_know_all_their_nodes() -> None:
    args = [torch.randn(64) for _ in range(6)]
    compiled = run(lambda *xs: (*(x.to(torch.bfloat16) for x in xs[:5]), xs[5].to(torch.float16)), *args)
    (source,) = compiled.sources
    assert source.text.count("@triton.jit") == 3
    lines = source.text.splitlines()
    nodes = {node.name for node in compiled.graph.graph.nodes if node.op == "call_function"}
    calls = {found for number, found in source.lines_to_nodes.items() if "_part(" in lines[number - 1]}
    assert {node for found in calls for node in found} == nodes
    store = next(number for number, line in enumerate(lines, 1) if "tl.store" in line and "bfloat16" in line)
    assert len(source.lines_to_nodes[store]) == 5


def test_a_constant_apart_is_a_function_of_its_own() -> None:
    compiled = run(lambda a, b: (a * 2, b * 3), torch.randn(64), torch.randn(64))
    assert compiled.sources[0].text.count("@triton.jit") == 3


def attention(x, b1, w1, b2, w2, b3, w3, b4, w4):
    """As autocast leaves a layer: each bias is cast by itself, heads are copied apart."""
    half = torch.bfloat16
    q, k, v = (
        torch.addmm(b.to(half), x, w).view(2, 6, 4, 8).transpose(1, 2).float().contiguous()
        for b, w in ((b1, w1), (b2, w2), (b3, w3))
    )
    p = torch.softmax(torch.bmm(q.view(8, 6, 8), (k * 0.5).transpose(-1, -2).contiguous().view(8, 8, 6)), -1)
    y = torch.bmm(p, v.view(8, 6, 8)).view(2, 4, 6, 8).transpose(1, 2).to(half).contiguous().view(12, 32)
    return F.gelu(torch.addmm(b4.to(half), y, w4))


def test_an_autocast_attention_layer_casts_in_one_launch_and_copies_its_heads_in_one() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(12, 32).bfloat16(), (torch.randn(32, 32) / 6).bfloat16()
    b = torch.randn(32)
    compiled = run(attention, x, b, w, b.clone(), w.clone(), b.clone(), w.clone(), b.clone(), w.clone())
    names = [source.name for source in compiled.sources]
    # Casts, heads, softmax, the heads back together, gelu; four products of matrices and two of batches.
    assert len(names) == 5
    assert compiled.launches == 11
    assert "4 kernels" in compiled.sources[0].text
    assert "3 kernels" in compiled.sources[1].text
    assert len(units(compiled)) == 11


def test_what_comes_late_joins_only_what_it_does_not_wait_for() -> None:
    """The gradients of weights are cast together at the end; no launch waits for itself through a product."""

    def function(x, w1, w2, g):
        y = torch.relu(x @ w1)
        dy = g @ w2.t()
        kept = torch.where(y > 0, dy, 0)
        return (y.t() @ g).double(), (x.t() @ kept).double(), torch.tanh(g).double()

    args = [torch.randn(8, 8) for _ in range(4)]
    found = units(run(function, *args))
    homes = {node: at for at, nodes in enumerate(found) for node in nodes}
    casts = sorted(name for name in homes if "_to_copy" in name)
    assert len(casts) == 3
    assert homes[casts[0]] == homes[casts[1]]


def test_large_kernels_stay_alone_and_small_ones_beside_them_join() -> None:
    with FakeTensorMode():
        large, small = torch.empty(4096, 1024), torch.empty(64, 64)
        compiled = written(lambda a, b, c, d: (a + 1, b + 1, c * 2, d * 2), large, large.clone(), small, small.clone())
    assert compiled.launches == 3


def test_a_launch_takes_so_many_arguments() -> None:
    with FakeTensorMode():
        args = [torch.empty(4) for _ in range(100)]
        compiled = written(lambda *xs: tuple(x + 1 for x in xs), *args)
    assert [len(source.args) for source in compiled.sources] == [MAX_ARGUMENTS, 200 - MAX_ARGUMENTS]


def test_halves_between_words_stay_right_in_a_launch_of_several() -> None:
    base = torch.randn(2001).bfloat16()
    compiled = run(lambda a, b: (a * 2, torch.relu(b)), base[1:], torch.randn(70))
    assert compiled.launches == 1
    assert "load_between" in compiled.sources[0].text


@pytest.mark.parametrize("seed", range(20))
def test_units_that_are_joined_wait_for_what_each_waited_for(seed: int) -> None:
    """Against a search: who waits for whom after any joins, and an order that holds."""
    chance = random.Random(seed)
    count = chance.randint(2, 14)
    needs = {unit: {need for need in range(unit) if chance.random() < 0.25} for unit in range(count)}
    home = {unit: unit for unit in needs}
    units = Units({unit: set(some) for unit, some in needs.items()})

    def waits(late: int, early: int) -> bool:
        members = [unit for unit, at in home.items() if at == late]
        return any(home[need] == early or waits(home[need], early) for unit in members for need in needs[unit])

    for _ in range(3 * count):
        one, other = (chance.choice(list(units.needs)) for _ in range(2))
        if one == other:
            continue
        assert units.are_apart(one, other) == (not waits(one, other) and not waits(other, one))
        if units.are_apart(one, other):
            units.join(one, other)
            home = {unit: one if at == other else at for unit, at in home.items()}
    order = units.order()
    assert sorted(order) == sorted(set(home.values()))
    assert all(order.index(home[need]) < order.index(home[unit]) for unit in needs for need in needs[unit])


def test_launches_that_wait_for_one_another_are_an_error() -> None:
    with pytest.raises(AssertionError, match="wait for one another"):
        Units({0: set(), 1: {0, 3}, 2: {1}, 3: {2}})


@pytest.mark.parametrize(
    ("schedule", "joins"),
    [
        (Schedule("row", 512), True),
        (Schedule("row", 512, tile=8), True),
        (Schedule("row", 512, tile=16), False),
        (Schedule("row", 512, weights="shifted"), False),  # the copies are made beside a kernel of its own
        (Schedule("row", 512, weights="hoist"), False),
        (Schedule("row", 512, chunks=2), False),
        (Schedule("row", 512, programs=132), False),
        (Schedule("sums", 512), False),
        (Schedule("loop", 4096), True),
    ],
)
def test_who_goes_with_others(schedule: Schedule, joins: bool) -> None:
    assert _is_member(schedule) is joins


def test_a_long_chain_is_put_in_order() -> None:
    count = 5000  # deeper than Python's stack
    assert Units({0: {count - 1}, **{unit: {unit - 1} - {0} for unit in range(1, count)}}).order()[-1] == 0


@pytest.mark.skipif(not INTERPRETED, reason="the pretended card interprets")
def test_the_tuner_takes_a_launch_of_several_like_any_kernel() -> None:
    x, y, n = torch.randn(40, 24), torch.randn(9, 64), torch.arange(3)
    made = kernel(lambda x, y, n: (x.sum(0), y.t().contiguous() * 2, n + 1, n > 1), x, y, n)
    assert isinstance(made.nest, Siblings)
    best = made.options[3]
    assert made.measure(PretendedCard({best: 1e-6}))[0] == best
    assert set(made.said) == set(made.options)
    assert [why for _, why in made.said.values() if why] == []
