"""Users' programs whose sizes and layouts change, re-told from public issues and forum threads, with what an expert answers."""

import numpy as np
import torch
import torch.nn.functional as F
from harness import problem, x0
from torch import nn


@problem("shared-code", "dynamic-size", "recompile-storm", "recompile-limit")
def muon_over_shapes(fixed):
    params = [nn.Parameter(torch.ones(4, n)) for n in range(2, 13)]

    @torch.compile(backend="eager")  # HERE
    def orthogonalize(w):
        return w / (w.norm() + 1e-6)

    with torch.no_grad():
        return tuple(orthogonalize(p.detach() if fixed else p).sum() for p in params)


@problem("layout")
def positions_are_a_slice(fixed):
    @torch.compile(backend="eager", dynamic=False)  # HERE
    def f(pos):
        return pos * 2

    out = []
    for full in (10, 11, 12):
        pos = torch.arange(full).repeat(3, 1)[:, :4]
        out.append(f(pos.contiguous() if fixed else pos))
    return tuple(out)


@problem("layout")
def expanded_guidance(fixed):
    @torch.compile(backend="eager", dynamic=True)  # HERE
    def f(x, guidance):
        return x * guidance[:, None]

    out = []
    for guidance in (torch.full((2,), 3.5), torch.full((1,), 3.5).expand(3)):
        out.append(f(x0(len(guidance), 4), guidance.contiguous() if fixed else guidance))
    return tuple(out)


@problem("dynamic-size")
def key_value_cache(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, past):
        k, v = torch.cat([past[0], x], 1), torch.cat([past[1], x], 1)
        return (x @ k.transpose(1, 2)).softmax(-1) @ v, (k, v)

    past = (x0(1, 4, 8), x0(1, 4, 8))
    if fixed:
        for each in past:
            torch._dynamo.mark_dynamic(each, 1)
    y = x0(1, 1, 8)
    for _ in range(6):
        y, past = f(y, past)
    return (y,)


@problem("size-zero-one")
def prefill_then_decode(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, k):
        return (x @ k.t()).sum()

    out = []
    for n in (4, 1, 1):
        x = x0(n, 8)
        if fixed:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        out.append(f(x, torch.ones(5, 8)))
    return tuple(out)


@problem("dynamic-size", "shape-expression")
def padding_to_a_window(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        pad = -x.shape[1] % 8
        if pad > 0:  # ASKED
            x = F.pad(x, (0, pad))
        return x.reshape(-1, 8).sum(1).mean()

    sizes = (12, 16, 20, 24, 28)
    return tuple(f(F.pad(x0(2, n), (0, -n % 8)) if fixed else x0(2, n)) for n in sizes)


@problem("dynamic-size")
def marked_after_the_warm_up(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    out = []
    for warm in (True, False):
        x = x0(4, 3)
        if fixed or not warm:
            torch._dynamo.mark_dynamic(x, 0)
        out.append(f(x))
    return tuple(out)


@problem("dynamic-disabled")
def marked_static(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    out = []
    for n in (3, 4, 5, 6):
        x = torch.ones(n, 2)
        if fixed:
            torch._dynamo.mark_dynamic(x, 0)
        else:
            torch._dynamo.mark_static(x, 0)
        out.append(f(x))
    return tuple(out)


@problem("shape-expression", "dynamic-size")
def batch_is_an_attribute(fixed):
    class M(nn.Module):
        def forward(self, x):  # HERE
            return x.view(x.shape[0] if fixed else self.batch, -1).sum(1)  # ASKED

    m = M()
    f = torch.compile(m, backend="eager")
    out = []
    for n in (3, 4, 5, 6):
        m.batch = n
        out.append(f(x0(n, 2)))
    return tuple(out)


@problem("mark-dynamic-violated")
def marked_and_compared(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if not fixed and x.shape[0] == 6:  # HERE
            return x * 2
        return x + x

    x = x0(6, 2)
    torch._dynamo.mark_dynamic(x, 0)
    try:
        return (f(x),)
    except Exception:
        return (x0(6, 2) * 2,)


@problem("mark-dynamic-violated")
def marked_and_added(fixed):
    table = torch.ones(6, 4)

    @torch.compile(backend="eager")
    def f(x, longer):
        return x + (longer[: x.shape[0]] if fixed else table)  # HERE

    x = x0(6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    try:
        return (f(x, torch.ones(64, 4)),)
    except Exception:
        return (x0(6, 4) + 1,)


@problem("size-zero-one")
def empty_batches(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x.sum(0) * 2

    out = []
    for n in (5, 7, 0, 1):
        x = torch.ones(n, 3)
        if fixed:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        out.append(f(x))
    return tuple(out)


@problem("size-zero-one", "shape-expression")
def mask_of_one_channel(fixed):
    @torch.compile(backend="eager", dynamic=True)  # HERE
    def f(x, mask):
        return x * mask

    mask = torch.ones(4, 1)
    return f(x0(4, 3), torch.ones(4, 3)), f(x0(4, 3), mask.expand(4, 3).contiguous() if fixed else mask)


@problem("dynamic-size", "shape-expression")
def square_by_chance(fixed):
    """Nobody asks whether the sizes are equal: they were so in the first call, and share a symbol."""
    import torch.fx.experimental._config as symbolic

    with symbolic.patch(use_duck_shape=not fixed):

        @torch.compile(backend="eager", dynamic=True)  # HERE
        def f(ids):
            return ids * 2

        return f(torch.ones(2, 2)), f(torch.ones(2, 3))


@problem("dynamic-size")
def arrays_of_numpy(fixed):
    @torch.compile(backend="eager", dynamic=True if fixed else None)  # HERE
    def f(a):
        return (a * 2).sum()

    return tuple(float(f(np.ones(n))) for n in (3, 4, 5))
