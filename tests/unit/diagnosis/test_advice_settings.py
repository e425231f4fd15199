"""The settings and calls that advice names without a rewrite: each is tried, and does what the advice says."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
from torch import nn

pytestmark = pytest.mark.timeout(600)
LOGGER = logging.getLogger("advice")


class Log(logging.Handler):
    """Counts breaks and graphs that torch writes to its trace log."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks = 0
        self.graphs = 0

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None) or {}
        self.breaks += metadata.get("artifact", {}).get("name") == "dynamo_graph_break_reason"
        self.graphs += "dynamo_output_graph" in metadata


@contextmanager
def watched(**settings: Any) -> Iterator[Log]:
    torch._dynamo.reset()
    trace = logging.getLogger("torch.__trace")
    level, log = trace.level, Log()
    trace.setLevel(logging.DEBUG)
    trace.addHandler(log)
    try:
        with torch._dynamo.config.patch(settings):
            yield log
    finally:
        trace.removeHandler(log)
        trace.setLevel(level)
        torch._dynamo.reset()


def shout(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    print("sum", y.sum())
    return y + 1


def warn(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    warnings.warn("careful")  # noqa: B028 - torch 2.14 moves no call with keyword arguments
    return y + 1


def tell(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    LOGGER.debug("working")
    return y + 1


def item(x: torch.Tensor) -> torch.Tensor:
    return x / x.max().item()


def mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0] * 2


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (shout, {"reorderable_logging_functions": {print}}),
        (warn, {"reorderable_logging_functions": {warnings.warn}}),
        (tell, {"ignore_logging_functions": {logging.Logger.debug}}),
        (item, {"capture_scalar_outputs": True}),
        (mask, {"capture_dynamic_output_shape_ops": True}),
    ],
)
def test_a_setting_removes_the_break(
    function: Any, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with watched() as before:
            expected = torch.compile(function, backend="eager")(x)
        printed = capsys.readouterr().out
        with watched(**settings) as after:
            found = torch.compile(function, backend="eager")(x)
    assert before.breaks >= 1
    assert (after.breaks, after.graphs) == (0, 1)
    assert torch.equal(expected, found)
    assert capsys.readouterr().out == printed  # a reordered print still prints


def test_an_rnn_is_captured() -> None:
    rnn = nn.GRU(4, 4)
    x = torch.ones(3, 2, 4)
    with torch.no_grad():
        with watched() as before:
            torch.compile(lambda x: rnn(x * 2)[0] + 1, backend="eager")(x)
        with watched(allow_rnn=True) as after:
            torch.compile(lambda x: rnn(x * 2)[0] + 1, backend="eager")(x)
    assert before.breaks >= 1
    assert (after.breaks, after.graphs) == (0, 1)


def hooked(settings: dict[str, Any], reset: bool = False, early: bool = False) -> int:
    calls: list[int] = []
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with watched(**settings), torch.no_grad():
        fast = torch.compile(net, backend="eager")
        if early:
            net[0].register_forward_hook(lambda *_: calls.append(1))
        fast(torch.ones(2, 3))
        if not early:
            net[0].register_forward_hook(lambda *_: calls.append(1))
        if reset:
            torch.compiler.reset()
        fast(torch.ones(2, 3))
    return len(calls)


def test_late_hooks() -> None:
    assert hooked({}) == 0  # what the finding warns of
    assert hooked({"skip_nnmodule_hook_guards": False}) == 1
    assert hooked({}, reset=True) == 1
    assert hooked({}, early=True) == 2


def test_gradients_of_gradients_need_another_backend() -> None:
    def energy(x: torch.Tensor) -> torch.Tensor:
        return (x**3).sum()

    def second(backend: str) -> torch.Tensor:
        x = torch.ones(3, requires_grad=True)
        (force,) = torch.autograd.grad(torch.compile(energy, backend=backend)(x), x, create_graph=True)
        force.sum().backward()
        assert x.grad is not None
        return x.grad

    with watched(), pytest.raises(RuntimeError, match="double backward"):
        second("aot_eager")
    with watched():
        assert torch.equal(second("eager"), torch.full((3,), 6.0))


def test_module_guards_can_be_filtered() -> None:
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
    options = {"guard_filter_fn": torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe}
    with watched() as log, torch.no_grad():
        x = torch.ones(2, 3)
        assert torch.allclose(torch.compile(net, backend="eager", options=options)(x), net(x))
    assert log.graphs == 1


def test_a_dense_product_replaces_the_split() -> None:
    """The before and after of the advice on counts that cut a tensor, row for row."""
    weights, x = torch.randn(3, 4, 5), torch.randn(6, 4)
    index = torch.tensor([2, 0, 1, 0, 2, 2])
    order = torch.argsort(index, stable=True)

    def before(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(index, minlength=3).tolist()
        parts = torch.split(x, counts)
        return torch.cat([part @ w for part, w in zip(parts, weights, strict=True)])

    def after(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        choice = torch.nn.functional.one_hot(index, 3).to(x.dtype)
        return torch.einsum("td,edf,te->tf", x, weights, choice)

    with watched() as broken:
        expected = torch.compile(before, backend="eager")(x[order], index)
    with watched() as whole:
        found = torch.compile(after, backend="eager")(x, index)
    assert broken.breaks >= 2
    assert (whole.breaks, whole.graphs) == (0, 1)
    assert torch.allclose(found[order], expected, atol=1e-5)


def test_the_optimizer_compiles_on_its_own() -> None:
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with watched() as log:
        step = torch.compile(opt.step, backend="eager")
        net(torch.ones(2, 3)).sum().backward()
        before = net.weight.detach().clone()
        step()
    assert log.graphs >= 1
    assert not torch.equal(before, net.weight)


def test_marking_sizes_saves_the_recompile() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with watched() as log:
        fast = torch.compile(f, backend="eager")
        for n in (4, 6, 9):
            x = torch.ones(n, 2)
            torch._dynamo.mark_dynamic(x, 0)
            fast(x)
    assert log.graphs == 1
    with watched() as log:
        fast = torch.compile(f, backend="eager")
        for n in (4, 1, 0):
            x = torch.ones(n, 2)
            torch._dynamo.decorators.mark_unbacked(x, 0)
            fast(x)
    assert log.graphs == 1


def _graphs(function: Any, calls: list[tuple[Any, ...]], **options: Any) -> int:
    counter = torch._dynamo.testing.CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=counter, **options)
    for call in calls:
        compiled(*call)
    return counter.frame_count


def test_what_is_said_of_numbers() -> None:
    """One recompile and dynamic, none with dynamic=True; on a module only with the setting."""
    x = torch.ones(6)
    for values in ([2, 3, 4, 5], [0.5, 0.7, 0.9, 1.1]):
        assert _graphs(lambda x, n: x * n, [(x, value) for value in values]) == 2
        assert _graphs(lambda x, n: x * n, [(x, value) for value in values], dynamic=True) == 1

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        assert _graphs(Counter(), [(x,)] * 6) == 2


def test_parameters_have_dynamic_sizes_with_the_setting() -> None:
    parameters = [(nn.Parameter(torch.ones(4, size)),) for size in range(2, 9)]
    with torch.no_grad():
        assert _graphs(lambda w: w * 2, parameters) == len(parameters)
        with torch._dynamo.config.patch(force_parameter_static_shapes=False):
            assert _graphs(lambda w: w * 2, parameters) == 2
