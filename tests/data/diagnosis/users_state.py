"""Users' programs whose modes and settings change, re-told from public issues and forum threads, with what an expert answers."""

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


@problem("grad-mode", "recompile-storm", "recompile-limit", until=("2.11",))
def layers_unfreeze(fixed):
    layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(10)).requires_grad_(False)
    f = torch.compile(nn.Sequential(*layers), backend="eager")
    out = []
    for layer in reversed(layers):
        layer.requires_grad_(True)
        if fixed:
            torch._dynamo.reset()
        out.append(f(x0(2, 6)).sum().detach())  # HERE
    return tuple(out)


@problem("dtype-or-device", same=False)
def half_after_compiling(fixed):
    net = nn.Linear(6, 6).requires_grad_(False)
    f = torch.compile(net, backend="eager")
    if fixed:
        net.bfloat16()
    f(x0(2, 6).to(net.weight.dtype))
    net.bfloat16()
    return (f(x0(2, 6).bfloat16()).float(),)  # HERE


@problem("grad-mode")
def warm_up_in_another_mode(fixed):
    net = nn.Linear(6, 6)
    f = torch.compile(net, backend="eager")
    with torch.inference_mode() if fixed else torch.no_grad():
        a = f(x0(2, 6)).sum()
    with torch.inference_mode():
        return a.clone(), f(x0(2, 6)).sum().clone()  # HERE


@problem("grad-mode", "autocast")
def evaluation_without_autocast(fixed):
    net = nn.Linear(6, 6)
    f = torch.compile(net, backend="eager")
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            f(x0(2, 6))
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=fixed):
            f(x0(2, 6))  # HERE
    return ()


@problem("autocast")
def autocast_of_two_kinds(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x @ x.t()

    for dtype in (torch.bfloat16, torch.bfloat16 if fixed else torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            f(x0(3, 3))
    return ()


@problem("global-state")
def deterministic_now_and_then(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x @ x.t()

    a = f(x0(3, 3))
    torch.use_deterministic_algorithms(not fixed)
    b = f(x0(3, 3))
    torch.use_deterministic_algorithms(False)
    return a, b


@problem("changing-number", "recompile-storm", "recompile-limit", "fullgraph-error", same=False)
def whole_graph_at_the_limit(fixed):
    @torch.compile(backend="eager", fullgraph=True)  # HERE
    def f(x, name):
        return x * len(name)

    out = []
    try:
        for i in range(11):
            out.append(f(x0(), "a" if fixed else "a" * i))
    except Exception:
        out.append(x0())
    return tuple(out)


@problem("dynamic-size", "recompile-error")
def recompiles_are_errors(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    out = []
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (3, 4):
            x = x0(n, 3)
            if fixed:
                torch._dynamo.mark_dynamic(x, 0)
            try:
                out.append(f(x))
            except Exception:
                out.append(x * 2)
    return tuple(out)
