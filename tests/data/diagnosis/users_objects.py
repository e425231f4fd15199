"""Users' programs whose objects, modules and containers change, re-told from public issues and forum threads, with what an expert answers."""

import collections
import functools

import torch
from harness import problem, x0
from torch import nn

REGISTRY = {}


@problem("shared-code", "changing-attribute", "recompile-storm")
def blocks_compiled_apart(fixed):
    class Block(nn.Module):
        def __init__(self, heads):
            super().__init__()
            self.heads = heads

        def forward(self, x):  # HERE
            return x.view(x.shape[0], self.heads, -1).sum(1).mean(1, keepdim=True) + x

    blocks = [Block(heads) for heads in (1, 2, 3, 4, 6, 12)]

    def run(x):
        for block in blocks:
            x = block(x)
        return x

    if fixed:
        run = torch.compile(run, backend="eager")
    else:
        for block in blocks:
            block.compile(backend="eager")
    return (run(x0(2, 12)),)


@problem("shared-code", "changing-attribute", "recompile-storm", "recompile-limit")
def search_over_models(fixed):
    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.width = width

        def forward(self, x):  # HERE
            return x * self.width

    out = []
    for trial in range(2, 13):
        if fixed:
            torch._dynamo.reset()
        out.append(torch.compile(Model(trial), backend="eager")(x0()))
    return tuple(out)


@problem("tensor-aliasing")
def self_or_cross_attention(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(q, k):
        return q @ k.t()

    x = x0(3, 3)
    return f(x, x.clone() if fixed else x), f(x, x.clone())


@problem("tensor-type")
def total_begins_as_a_number(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(total, x):
        return total + x.sum()

    total = torch.tensor(0.0) if fixed else 0.0
    for _ in range(3):
        total = f(total, x0())
    return (total,)


@problem("tensor-type")
def vmap_around_it(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return (x * 2).sum()

    a = f(x0(4, 3))
    if fixed:
        return a, torch.compile(torch.vmap(lambda x: (x * 2).sum()), backend="eager")(x0(4, 3))
    return a, torch.vmap(f)(x0(4, 3))


@problem("container-size", "recompile-storm", "recompile-limit")
def rolling_window(fixed):
    window = collections.deque(maxlen=12)
    if fixed:
        window.extend(torch.zeros(6) for _ in range(12))

    @torch.compile(backend="eager")  # HERE
    def f(items):
        return torch.stack(list(items)).sum(0)

    out = []
    for _ in range(12):
        window.append(x0())
        out.append(f(window))
    return (out[-1],)


@problem("container-size", "recompile-storm", "recompile-limit", same=False)
def registry_grows(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x + len(REGISTRY)

    REGISTRY.update({f"k{i}": i for i in range(10)} if fixed else {})
    out = []
    for i in range(10):
        REGISTRY[f"k{i}"] = i
        out.append(f(x0()))
    REGISTRY.clear()
    return tuple(out)


@problem("none-or-tensor")
def mask_is_made_late(fixed):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(6) if fixed else None)

        def forward(self, x):  # HERE
            if self.mask is None:  # ASKED
                self.mask = torch.ones(6)
            return x * self.mask

    f = torch.compile(M(), backend="eager")
    return tuple(f(x0()) for _ in range(3))


@problem()
def fresh_but_alike(fixed):
    """Lambdas and partials of the same code need no recompile any more, wherever they are made: no finding."""

    def loss(x, w):
        return (x * w).sum()

    @torch.compile(backend="eager")
    def f(x, fn):
        return fn(x)

    out = []
    for _ in range(11):
        out.append(torch.compile(lambda x: x * 2, backend="eager")(x0()))
        out.append(f(x0(), functools.partial(loss, w=2.0)))
    return tuple(out)
