"""Torch's global state, modes and threads that differ between calls."""

import contextlib

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


@problem("grad-mode")
def no_grad_flip(fixed):
    w = torch.ones(6, requires_grad=True)

    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * w

    a = f(x0())
    with torch.no_grad() if not fixed else contextlib.nullcontext():
        b = f(x0())
    return a.detach(), b.detach()


@problem("grad-mode")
def requires_grad_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    return f(x0()).detach(), f(x0().requires_grad_(not fixed)).detach()


@problem("grad-mode")
def inference_mode_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    a = f(x0())
    with torch.inference_mode() if not fixed else contextlib.nullcontext():
        b = f(x0())
    return a.clone(), b.clone()


@problem("autocast")
def autocast_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not fixed):
        a = f(x0())
    return a, f(x0())


@problem("function-mode")
def default_device(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2 + torch.ones(6)

    a = f(x0())
    with torch.device("cpu") if not fixed else contextlib.nullcontext():
        b = f(x0())
    return a, b


@problem("dynamic-size", "grad-mode")
def usual_training(fixed):
    """A smaller last batch, and an evaluation between: nothing to mend, so severity info in the test."""
    f = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager", dynamic=True if fixed else None)
    out = []
    for _ in range(2):
        for n in (8, 8, 5):
            out.append(f(x0(n, 4)).detach())  # HERE
        with torch.no_grad():
            out.append(f(x0(8, 4)))
    return tuple(out)


@problem("train-eval")
def train_eval(fixed):
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0))
    f = torch.compile(net, backend="eager")
    net.train()
    a = f(x0())  # HERE
    if not fixed:
        net.eval()
    return (a - f(x0())).abs().max(), torch.zeros(())  # HERE


@problem("break-value", "data-dependent-value")
def value_across_break(fixed):
    @torch.compile(backend="eager")
    def f(x):
        n = x.sum() if fixed else int(x.sum())  # HERE
        return x * n

    return tuple(f(torch.full((3,), float(i))).sum() for i in (3, 4, 5))


@problem(
    "per-thread-config",
    "recompile-limit",
    "changing-number",
    "recompile-storm",
    until=("2.11", "changing-number", "recompile-storm"),  # its settings are the whole process's
)
def thread_config(fixed):
    import threading

    out = []

    @torch.compile(backend="eager")  # OLDER HERE
    def f(x, name):
        return x * len(name)

    torch._dynamo.config.recompile_limit = 64  # HERE

    def serve():
        if fixed:
            torch._dynamo.config.recompile_limit = 64
        out.extend(f(x0(), "a" * i) for i in range(11))

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    torch._dynamo.config.recompile_limit = 8
    return tuple(out)
