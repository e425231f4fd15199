"""Sizes, layouts and dtypes that change."""

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


@problem("dynamic-size")
def batch_size(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return (x * 2).sum(1)

    out = []
    for n in (4, 6, 9):
        x = x0(n, 3)
        if fixed:
            torch._dynamo.mark_dynamic(x, 0)
        out.append(f(x))
    return tuple(out)


@problem("dynamic-disabled", "recompile-storm", "recompile-limit")
def dynamic_false(fixed):
    @torch.compile(backend="eager", dynamic=None if fixed else False)  # HERE
    def f(x):
        return (x * 2).sum(1)

    return tuple(f(x0(n, 3)) for n in range(4, 15))


@problem("size-zero-one")
def one_row(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return (x * 2).sum(1)

    out = []
    for n in (4, 6, 1):
        x = x0(n, 3)
        if fixed:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        out.append(f(x))
    return tuple(out)


@problem("shape-expression", "dynamic-size")
def size_branch(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        if fixed or x.shape[0] > 8:  # ASKED
            return x * 2
        return x + x

    return tuple(f(x0(n, 3)) for n in (10, 12, 5, 6))


@problem("shape-expression", "dynamic-size")
def size_divides(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        n = x.shape[0]
        if not fixed and n % 4 == 0:  # ASKED
            return x.reshape(n // 4, -1).sum()
        return x.sum()

    return tuple(f(x0(n, 4)) for n in (8, 12, 13, 16))


@problem("shape-expression", "recompile-storm", "recompile-limit")
def size_table(fixed):
    edges = [4, 8, 12, 16, 20, 24, 28, 32, 36, 40]

    @torch.compile(backend="eager", dynamic=True)  # HERE
    def f(x):
        for k, e in enumerate(edges):
            if fixed or x.shape[0] <= e:  # ASKED
                return x * (1 if fixed else k)
        return x

    for n in range(3, 41, 4):
        f(x0(n, 2))
    return ()


@problem("unrolled-loop", "recompile-storm", "recompile-limit", "changing-number")
def loop_over_int(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, n):
        if fixed:
            return x + n
        for _ in range(n):  # ASKED
            x = x + 1
        return x

    return tuple(f(x0(), torch.tensor(n) if fixed else n) for n in range(2, 13))


@problem("unrolled-loop", "recompile-storm", "recompile-limit")
def loop_over_rows(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        if fixed:
            return x.sum(0)
        h = torch.zeros(3)
        for row in x:  # ASKED
            h = h + row
        return h

    return tuple(f(torch.ones(n, 3)) for n in range(2, 13))


@problem("unrolled-loop", "recompile-storm", "recompile-limit")
def loop_over_time(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        if fixed:
            return x.cumsum(0)[-1]
        h = x[0]
        for t in range(1, x.shape[0]):  # ASKED
            h = h + x[t]
        return h

    return tuple(f(torch.ones(n, 3)) for n in range(3, 14))


@problem("dtype-or-device")
def dtype_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    return f(x0()), f(x0().double() if not fixed else x0()).float()


@problem("layout")
def stride_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    return f(x0(3, 3)), f(x0(3, 3).t() if not fixed else x0(3, 3).t().contiguous())


@problem("layout")
def channels_last(fixed):
    conv = nn.Conv2d(3, 4, 1).requires_grad_(False)

    @torch.compile(backend="eager")  # HERE
    def f(x):
        return conv(x)

    a = f(x0(2, 3, 4, 4))
    y = x0(2, 3, 4, 4)
    b = f(y if fixed else y.to(memory_format=torch.channels_last))
    return a.sum(), b.sum()


@problem("tensor-rank", "dynamic-size", same=False)
def rank_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x.sum(-1)

    return f(x0(3, 4)), f(x0(3, 4) if fixed else x0(2, 3, 4)).reshape(-1)[:3]


@problem("mark-dynamic-violated")
def marked_but_fixed(fixed):
    @torch.compile(backend="eager")
    def f(x):
        return x.view(x.shape[0] if fixed else 6, -1)  # HERE

    x = x0(6, 2)
    torch._dynamo.mark_dynamic(x, 0)
    try:
        return (f(x),)
    except Exception:
        return (x0(6, 2),)


@problem("recompile-limit", "dynamic-size", "recompile-storm")
def config_limit(fixed):
    with torch._dynamo.config.patch(recompile_limit=8 if fixed else 1):

        @torch.compile(backend="eager")  # HERE
        def f(x):
            return x * 2

        return tuple(f(x0(n)) for n in (3, 4, 5))
