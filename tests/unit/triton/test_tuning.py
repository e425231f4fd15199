"""What the tuner takes and what it refuses: no candidate that spills where another runs, and none that writes other numbers."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
from fxscope.targets.triton import tune
from fxscope.targets.triton.agreement import LIMITS, SHARE, limits
from fxscope.targets.triton.schedule import LIBRARY, Schedule, candidates
from fxscope.targets.triton.trial import Bench
from fxscope.targets.triton.tune import Tuner, tuned_path
from tests.unit.triton.every import as_if_large, rmsnorm_backward, tensors
from tests.unit.triton.tuning import CPU, Kernel, PretendedCard, kernel

HALF, FULL = torch.float16, torch.float32


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + 1)


@pytest.fixture
def chain() -> Kernel:
    """A pointwise kernel with three candidates: plain, second, third."""
    made = kernel(relu, *tensors(FULL, 0, (3, 700)))
    assert len(made.options) == 3
    return made


def card(made: Kernel, *times: float, spills: tuple[int, ...] = (), broken: tuple[int, ...] = ()) -> PretendedCard:
    options = made.options
    return PretendedCard(
        dict(zip(options, times, strict=True)),
        dict(zip(options, spills, strict=bool(spills))),
        {options[i] for i in broken},
    )


def test_a_candidate_that_spills_one_register_does_not_win(chain: Kernel) -> None:
    plain, second, third = chain.options
    pretended = card(chain, 3e-6, 1e-6, 2e-6, spills=(0, 1, 0))
    assert chain.measure(pretended) == [third, plain]
    assert chain.said[second] == (None, "spills 1 registers")
    assert second not in pretended.ran


def test_where_all_spill_the_one_that_spills_least_is_taken_and_said(chain: Kernel) -> None:
    plain, second, third = chain.options
    assert chain.measure(card(chain, 1e-6, 2e-6, 9e-6, spills=(40, 6, 4))) == [third]
    assert chain.said[third] == (9e-6, "spills 4 registers, the fewest: no candidate that does not spill runs")
    assert [chain.said[one][1] for one in (plain, second)] == ["spills 40 registers", "spills 6 registers"]


def test_what_spills_is_taken_where_what_does_not_cannot_be_built(chain: Kernel) -> None:
    plain, second, third = chain.options
    assert chain.measure(card(chain, 1e-6, 2e-6, 1e-6, spills=(2, 0, 3), broken=(1,))) == [plain]
    assert chain.said[second] == (None, "RuntimeError: out of resource: shared memory")
    assert chain.said[third][0] is None


def test_the_choice_is_kept_and_told_to_logging(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, chain: Kernel
) -> None:
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    plain, second, third = candidates(chain.nest)
    pretended = card(chain, 3e-6, 1e-6, 2e-6, spills=(0, 9, 0))
    with caplog.at_level(logging.INFO, "fxscope"):
        chosen = [Tuner(CPU, card=pretended).choose(chain.nest, chain.write, "kernel") for _ in range(2)]
    assert chosen == [third, third]
    lines = [record.getMessage() for record in caplog.records]
    assert f"kernel: {second.text()}: not taken: spills 9 registers" in lines
    assert f"kernel: {plain.text()}: 3.00 us" in lines
    assert len(lines) == 3  # the second time the choice came from the disk
    (kept,) = (tmp_path / "triton" / "tuned").rglob("*.json")  # type: ignore[operator]
    assert json.loads(kept.read_text())["schedule"]["block"] == third.block


def refused(made: Kernel, changes: dict[Schedule, object]) -> dict[Schedule, str]:
    """Why the fastest candidates, whose sources are changed, are not taken; the others have to be."""
    times = {option: 1e-6 if option in changes else 2e-6 for option in made.options}
    taken = made.measure(PretendedCard(times), changes)  # type: ignore[arg-type]
    assert taken
    assert not set(taken) & set(changes)
    rest = [option for option in made.options if option not in changes]
    assert all(made.said[option][0] is not None for option in rest), made.said
    return {option: made.said[option][1] for option in changes}


def test_a_chunk_that_is_read_for_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_large(monkeypatch)
    args = tensors(HALF, 0, (5, 8192), (5, 8192), (8192,), (5, 1))
    made = kernel(rmsnorm_backward, *args, wanted=lambda o: o.warps == 8 and o.programs == 4 and not o.ahead)
    wrong = next(option for option in made.options if option.chunks == 2)
    again = {
        wrong: lambda text: text.replace("1 * BLOCK + tl.arange", "0 * BLOCK + tl.arange"),
    }
    (why,) = refused(made, again).values()
    assert "elements that were not written" in why
    read = {wrong: lambda text: text.replace("x_1_ptr + row * N + cols_c1", "x_1_ptr + row * N + cols")}
    (why,) = refused(made, read).values()
    assert why.endswith(f" from {made.options[0].text()}")


def test_a_row_that_is_left_out_of_the_sums_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if_large(monkeypatch)
    made = kernel(lambda x: (x * 2).sum(0), *tensors(FULL, 0, (520, 40)), wanted=lambda o: o.tile == 16)
    assert len({option.programs for option in made.options}) > 1  # so many partial sums, one result
    wrong = made.options[-1]
    (why,) = refused(made, {wrong: lambda text: text.replace("* TILE, ROWS, ", "* TILE, ROWS - TILE, ")}).values()
    assert " differs by " in why


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (relu, "elements that were not written"),
        (lambda x: torch.log(-x * x - 1), "elements that were not written"),  # NaN everywhere
        (lambda x: (x * 3).to(torch.int32), "elements that were not written, unlike"),
        (lambda x: x > 0, "elements that were not written, unlike"),
        (lambda x: (x * 3).to(torch.uint8), "elements that were not written, unlike"),
    ],
)
def test_an_element_that_is_not_written_is_refused(function: object, says: str) -> None:
    """The candidate before has written it: memory is poisoned anew for each."""
    made = kernel(function, *tensors(FULL, 0, (3, 700)))  # type: ignore[arg-type]
    change = {made.options[-1]: lambda text: text.replace("lane < TOTAL - start", "lane < TOTAL - start - 1")}
    (why,) = refused(made, change).values()
    assert "has 1 elements " in why
    assert says in why


def test_without_the_plain_one_the_next_that_runs_is_compared_with(chain: Kernel) -> None:
    plain, second, third = chain.options
    change = {third: lambda text: text.replace("+ 1.0\n", "+ 1.001\n")}
    assert chain.measure(card(chain, 1e-6, 3e-6, 2e-6, broken=(0,)), change) == [second]
    assert chain.said[plain][0] is None
    assert chain.said[third][1] == f"relu differs by {float(chain.said[third][1].split()[3]):.1e} from {second.text()}"
    assert 1e-4 < float(chain.said[third][1].split()[3]) < 1e-3


def test_a_product_is_compared_with_the_librarys(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXSCOPE_CACHE_DIR", str(tmp_path))
    args = tensors(FULL, 0, (48, 64), (64, 48))
    made = kernel(lambda x, w: torch.relu(x @ w), *args, wanted=lambda o: o.tile * o.block <= 2**13)
    assert made.options[0] == LIBRARY
    short = made.options[-1]
    (why,) = refused(
        made, {short: lambda text: text.replace("range(0, K, DEPTH)", "range(0, K - DEPTH, DEPTH)")}
    ).values()
    assert "relu differs by " in why
    assert why.endswith(LIBRARY.text())


def test_verify_still_judges_first(chain: Kernel) -> None:
    """What is wrong by it serves no other candidate for comparison either."""
    plain, second, third = chain.options
    wrong = {plain: lambda text: text.replace("+ 1.0\n", "+ 2.0\n")}
    seen = []

    def verify(name: str, outputs: dict[str, torch.Tensor]) -> str | None:
        seen.append(name)
        return "error 0.5 in relu" if outputs["relu"].min() > 0.5 or len(seen) == 1 else None

    def write(nest: object, schedule: Schedule) -> object:
        source = chain.write(nest, schedule)  # type: ignore[arg-type]
        return replace(source, text=wrong[schedule](source.text)) if schedule in wrong else source

    tuner = Tuner(CPU, lambda *_: None, verify, card(chain, 1e-6, 2e-6, 3e-6))
    timed = tuner.measure(chain.nest, write, "kernel", chain.options, {})  # type: ignore[arg-type]
    assert [option for option, _ in timed] == [second, third]
    assert seen == ["kernel"] * 3


def test_what_is_fed_by_another_kernel_is_not_verified(chain: Kernel) -> None:
    """Its inputs are random here, not those of the program; it is compared with the plain one all the same."""
    (load,) = [value for value in chain.nest.kernel.values if value.memory is not None]
    assert load.memory is not None
    load.memory.source = None
    tuner = Tuner(CPU, lambda *_: None, lambda *_: "wrong", card(chain, 1e-6, 2e-6, 3e-6))
    assert len(tuner.measure(chain.nest, chain.write, "kernel", chain.options, {})) == 3


def test_sets_of_tensors_rotate_and_the_first_holds_what_is_given() -> None:
    """Three, so that no cache holds the inputs; fewer of what is large. All keep what the memories of the program are past 16 bytes."""
    (x,) = tensors(HALF, 3, (5, 64))
    made = kernel(relu, x)
    (memory,) = {value.memory for value in made.nest.kernel.values if value.memory is not None}
    assert memory.misaligned == 6
    pretended = PretendedCard({})
    bench = Bench(pretended, CPU, {memory.name: x})
    plain = made.options[0]
    source = made.write(made.nest, plain)
    run = bench.run(made.nest, source, pretended.build(source))
    given = [bench.tensor(memory, False, copy) for copy in range(run.sets)]
    assert run.sets == 3
    assert given[0] is x
    assert {one.data_ptr() % 16 for one in given} == {6}
    assert len({one.data_ptr() for one in given}) == 3
    assert not torch.equal(given[1], given[2])
    run.start(3)  # the first set again
    (out,) = run.outputs.values()
    assert torch.equal(out, relu(x))


def test_the_coarsest_dtype_says_how_far_apart_is_the_same() -> None:
    def allowed(function: object, dtype: torch.dtype) -> float:
        (limit,) = limits(kernel(function, *tensors(dtype, 0, (3, 40))).nest).values()  # type: ignore[arg-type]
        return limit

    assert allowed(relu, FULL) == LIMITS[FULL]
    assert allowed(relu, HALF) == LIMITS[HALF]
    assert allowed(lambda x: x.float() + 1, HALF) == LIMITS[FULL]  # nothing is rounded to it
    assert allowed(lambda x: (x.sum(-1, keepdim=True) + x).bfloat16().float() * 3, FULL) == LIMITS[torch.bfloat16]
    assert allowed(lambda x: x > 0, FULL) == SHARE  # a rounding may tip it
    assert allowed(lambda x: (x.long() * 3 + 7) % 5, FULL) == SHARE
    whole = kernel(lambda x: (x * 3 + 7 > 9, x * 2), torch.arange(60))
    assert set(limits(whole.nest).values()) == {0.0}


def test_each_output_is_held_to_its_own_dtype() -> None:
    """A launch of several writes what was cast down beside what was not."""
    x, y = tensors(FULL, 0, (3, 700), (5, 400))
    made = kernel(lambda x, y: (x * 2.0, y.bfloat16()), x, y)
    assert len(made.nest.kernel.stores) == 2
    change = {made.options[-1]: lambda text: text.replace("x_1 * 2.0", "x_1 * 2.003")}
    (why,) = refused(made, change).values()
    assert why.startswith("mul differs by 1.5e-03 from ")


def entropy(p: torch.Tensor) -> torch.Tensor:
    """No number in any row where some p is negative, as random ones are."""
    return -(p * torch.log(p)).sum(-1)


def test_what_gives_no_numbers_is_compared_on_tamer_inputs() -> None:
    made = kernel(entropy, *tensors(FULL, 0, (64, 300)))
    nothing, wrong, *_ = reversed(made.options)
    said = refused(
        made,
        {
            nothing: lambda text: re.sub(r"tl.store.*", "pass", text),
            wrong: lambda text: text.replace("tl.sum(", "1.01 * tl.sum("),
        },
    )
    assert said[nothing].startswith("neg has 64 elements that were not written")
    assert said[wrong].startswith("neg differs by 1.0e-02 from ")


def test_what_gives_no_numbers_at_all_is_told() -> None:
    made = kernel(lambda x: torch.log(-x * x - 1), *tensors(FULL, 0, (3, 700)))
    assert len(made.measure(PretendedCard({}))) == len(made.options)
    plain, *others = made.options
    assert made.said[plain][1] == "an output holds next to no finite numbers to compare others with"
    assert {made.said[other][1] for other in others} == {""}


def test_where_tame_inputs_find_no_memory_the_next_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel(entropy, *tensors(FULL, 0, (64, 300)))
    tame, calls = Bench.tame, []

    def short(bench: Bench) -> Bench:
        calls.append(bench)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("out of memory")
        return tame(bench)

    monkeypatch.setattr(Bench, "tame", short)
    plain, second, *_, wrong = made.options
    taken = made.measure(PretendedCard({}), {wrong: lambda text: text.replace("tl.sum(", "1.01 * tl.sum(")})
    assert second in taken
    assert not {plain, wrong} & {*taken}
    assert made.said[wrong][1].endswith(f" from {second.text()}")


def test_a_choice_is_for_tensors_that_start_alike(chain: Kernel) -> None:
    source = chain.write(chain.nest, chain.options[0])
    aligned = tuned_path(source, chain.options, "card")
    assert tuned_path(source, chain.options, "another card") != aligned
    assert tuned_path(source, chain.options[:2], "card") != aligned
    source.args[0].misaligned = 4
    assert tuned_path(source, chain.options, "card") != aligned


def test_a_choice_of_an_older_tuner_is_none(chain: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    source = chain.write(chain.nest, chain.options[0])
    now = tuned_path(source, chain.options, "card")
    monkeypatch.setattr(tune, "VERSION", tune.VERSION - 1)
    assert tuned_path(source, chain.options, "card") != now


def test_tuning_leaves_the_programs_random_numbers_alone(chain: Kernel) -> None:
    before = torch.random.get_rng_state()
    chain.measure(card(chain, 1e-6, 2e-6, 3e-6))
    assert torch.equal(torch.random.get_rng_state(), before)
