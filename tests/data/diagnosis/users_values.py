"""Users' programs whose Python values change, re-told from public issues and forum threads, with what an expert answers."""

import dataclasses
import enum
import math

import torch
from harness import problem, x0
from torch import nn

REGISTRY = {}


@dataclasses.dataclass
class State:
    step: int = 0
    scale: float = 1.0


class Kind(enum.Enum):
    A = 1
    B = 2
    C = 3


@problem("changing-number", "library-code", same=False)
def one_cycle_momentum(fixed):
    p = nn.Parameter(x0(3))
    p.grad = torch.ones(3)
    opt = torch.optim.AdamW([p], lr=torch.tensor(0.01), betas=(0.9, 0.99))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.02, total_steps=20, cycle_momentum=not fixed)
    step = torch.compile(opt.step, backend="eager")
    for _ in range(6):
        step()  # HERE
        sched.step()
    return (p.detach(),)


@problem("changing-attribute", "recompile-storm", "recompile-limit", same=False)
def lora_adapter(fixed):
    class Lora(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(6, 6)
            self.adapters = nn.ModuleDict({f"a{i}": nn.Linear(6, 6) for i in range(10)})
            self.slot = nn.Linear(6, 6)
            self.active = "a0"

        def forward(self, x):  # HERE
            return self.base(x) + (self.slot if fixed else self.adapters[self.active])(x)

    m = Lora().requires_grad_(False)
    f = torch.compile(m, backend="eager")
    for i in range(10):
        m.active = f"a{i}"
        m.slot.load_state_dict(m.adapters[m.active].state_dict())  # hot swap
        f(x0(2, 6))
    return ()


@problem("changing-attribute")
def dataclass_step(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, state):
        return x * state.scale + state.step  # ASKED

    return tuple(f(x0(), State(step=torch.tensor(i) if fixed else i)) for i in range(5))


@problem("changing-attribute")
def configuration_replaced(fixed):
    base = State(scale=0.1)

    @torch.compile(backend="eager", dynamic=True if fixed else None)  # HERE
    def f(x, state):
        return x * state.scale

    return tuple(f(x0(), dataclasses.replace(base, scale=0.1 + i)) for i in range(6))


@problem("changing-number", "object-identity", same=False, until=("2.12", "object-identity"))
def enum_argument(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, kind):
        return x + 1 if kind is Kind.A else x - 1

    return tuple(f(x0(), Kind.A if fixed else kind) for kind in Kind)


@problem("changing-number", "recompile-storm", "recompile-limit")
def expert_by_number(fixed):
    experts = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(10)).requires_grad_(False)
    weights = torch.stack([m.weight for m in experts])

    @torch.compile(backend="eager")  # HERE
    def f(x, i):
        return x @ weights.index_select(0, i)[0].t() if fixed else experts[i](x)  # ASKED

    return tuple(f(x0(2, 6), torch.tensor([i]) if fixed else i) for i in range(10))


@problem("changing-number", "recompile-storm", "recompile-limit")
def diffusion_time(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, t):
        if fixed:
            return x * torch.exp(-t) + torch.sqrt(t)
        return x * math.exp(-t) + math.sqrt(t)  # ASKED

    return tuple(f(x0(), torch.tensor(0.1 * i) if fixed else 0.1 * i) for i in range(1, 12))


@problem("changing-number")
def every_tenth_step(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, step):
        if step % 10 == 0:  # ASKED
            return x * 2
        return x + step

    return tuple(f(x0(), i) for i in range(1, 25))


@problem("changing-number", "recompile-storm", "recompile-limit")
def several_flags(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, use):
        for i in range(4):
            if fixed:
                x = torch.where(use[i], x + i, x)
            elif use[i]:
                x = x + i
        return x * 2

    flags = [[bool(i & 1), bool(i & 2), bool(i & 4), bool(i & 8)] for i in range(10)]
    return tuple(f(x0(), torch.tensor(each) if fixed else each) for each in flags)


@problem("changing-number")
def crop_sizes(fixed):
    @torch.compile(backend="eager", dynamic=True if fixed else None)  # HERE
    def f(x, size):
        return x[:, : size[0], : size[1]].sum()

    return tuple(f(torch.ones(2, 20, 20), [3 + i, 5 + 2 * i]) for i in range(5))


@problem("dtype-or-device", same=False)
def dtype_argument(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, dtype):
        return x.to(dtype) * 2

    return tuple(f(x0(), torch.float32 if fixed else dtype).float() for dtype in (torch.float32, torch.float64))


@problem("changing-attribute")
def momentum_is_made_late(fixed):
    p = nn.Parameter(x0(3))
    if fixed:
        p.momentum = torch.zeros(3)

    @torch.compile(backend="eager")  # HERE
    def step(p):
        if not hasattr(p, "momentum"):  # ASKED
            p.momentum = torch.zeros_like(p)
        return p * 0.9 + p.momentum

    with torch.no_grad():
        return tuple(step(p) for _ in range(3))


@problem("changing-attribute", same=False, until=("2.11",))
def class_counter(fixed):
    class M(nn.Module):
        steps = 0

        def forward(self, x):  # HERE
            return x + M.steps

    m = M()
    f = torch.compile(m, backend="eager")
    for i in range(6):
        M.steps = 0 if fixed else i
        f(x0())
    return ()


@problem("changing-attribute", "recompile-storm", "recompile-limit")
def counter_of_an_inner_module(fixed):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            if fixed:
                self.register_buffer("count", torch.tensor(0))
            else:
                self.count = 0

        def forward(self, x):
            self.count += 1  # ASKED
            return x + self.count

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = Inner()

        def forward(self, x):  # HERE
            return self.a(x)

    f = torch.compile(Outer(), backend="eager")
    return tuple(f(x0()) for _ in range(11))


@problem("changing-attribute", "recompile-storm", "recompile-limit", "dynamic-size")
def rope_table_grows(fixed):
    class Rope(nn.Module):
        def __init__(self):
            super().__init__()
            self.cached = 64 if fixed else 0
            self.cos = torch.arange(64.0).cos() if fixed else None

        def forward(self, x):  # HERE
            if x.shape[0] > self.cached:  # ASKED
                self.cached = x.shape[0]
                self.cos = torch.arange(x.shape[0], dtype=torch.float32).cos()
            return x * self.cos[: x.shape[0], None]

    f = torch.compile(Rope(), backend="eager")
    return tuple(f(x0(n, 2)).sum() for n in range(3, 14))


@problem()
def numpy_number(fixed):
    """Numbers of numpy are tensors to Dynamo: no recompile, no finding."""
    import numpy as np

    @torch.compile(backend="eager")
    def f(x, s):
        return x * s

    return tuple(f(x0(), s) for s in np.linspace(0.1, 1, 10))
