"""Values and shapes that depend on data, one small program per kind."""

import numpy as np
import torch
from harness import problem, x0


@problem("data-dependent-branch")
def branch(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return torch.where(y.sum() > 0, y + 1, y - 1)
        if y.sum() > 0:  # HERE
            return y + 1
        return y - 1

    return f(x0()), f(-x0())


@problem("data-dependent-value")
def loop_over_values(fixed):
    @torch.compile(backend="eager")
    def f(x):
        order = x.argsort(descending=True)
        if fixed:
            return x[order]
        out = []
        for i in order.tolist():  # HERE
            out.append(x[i])
        return torch.stack(out)

    return (f(x0()),)


@problem("data-dependent-branch")
def branch_any(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return torch.where(torch.isnan(x).any(), torch.nan_to_num(x), x) * 2
        if torch.isnan(x).any():  # HERE
            x = torch.nan_to_num(x)
        return x * 2

    return (f(x0()),)


@problem("data-dependent-branch")
def ternary(fixed):
    @torch.compile(backend="eager")
    def f(x, scale):
        s = torch.where(scale > 1, scale, 1.0) if fixed else (scale if scale > 1 else 1.0)  # HERE
        return x * s

    return f(x0(), torch.tensor(2.0)), f(x0(), torch.tensor(0.5))


@problem("data-dependent-branch", since=("2.14", "data-dependent-branch", "frame-skipped"))
def while_loop(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            (y,) = torch._higher_order_ops.while_loop(lambda y: y.sum() < 10, lambda y: (y + 1,), (x,))
            return y
        while x.sum() < 10:  # HERE
            x = x + 1
        return x

    return (f(x0()),)


@problem("data-dependent-branch")
def assertion_on_data(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            torch._assert_async((y < 100).all(), "too large")
        elif not (y < 100).all():  # HERE
            raise ValueError("too large")
        return y + 1

    return (f(x0()),)


@problem("data-dependent-value")
def item(fixed):
    @torch.compile(backend="eager")
    def f(x):
        m = x.max() if fixed else x.max().item()  # HERE
        return x / m

    return (f(x0()),)


@problem("data-dependent-value")
def float_of_tensor(fixed):
    @torch.compile(backend="eager")
    def f(x):
        m = x.max() if fixed else float(x.max())  # HERE
        return x / m

    return (f(x0()),)


@problem("data-dependent-value")
def tolist(fixed):
    @torch.compile(backend="eager")
    def f(x, lengths):
        if fixed:
            mask = torch.arange(x.shape[0]) < lengths.sum()
            return (x * mask).sum()
        n = sum(lengths.tolist())  # HERE
        return x[:n].sum()

    return (f(x0(), torch.tensor([2, 3])),)


@problem("data-dependent-value", "frame-skipped")
def slice_by_tensor(fixed):
    @torch.compile(backend="eager")
    def f(x, n):
        if fixed:
            return (x * (torch.arange(x.shape[0]) < n)).sum()
        return x[:n].sum()  # HERE

    return (f(x0(), torch.tensor(3)),)


@problem("data-dependent-value")
def range_of_tensor(fixed):
    @torch.compile(backend="eager")
    def f(x, n):
        if fixed:
            return x + n
        for _ in range(int(n)):  # HERE
            x = x + 1
        return x

    return (f(x0(), torch.tensor(3)),)


@problem("dynamic-output-shape")
def nonzero(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return (y * (y > 0)).sum()
        return y[torch.nonzero(y > 0)[:, 0]].sum()  # HERE

    return (f(x0()),)


@problem("dynamic-output-shape")
def boolean_mask(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return torch.where(y > 0, y, 0.0).sum()
        return y[y > 0].sum()  # HERE

    return (f(x0()),)


@problem("dynamic-output-shape")
def unique(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            s = x.sort().values
            return (s[1:] != s[:-1]).sum() + 1
        return torch.unique(x).shape[0] + torch.zeros((), dtype=torch.long)  # HERE

    return (f(torch.tensor([1, 2, 2, 3])),)


@problem("dynamic-output-shape")
def repeat_interleave(fixed):
    @torch.compile(backend="eager")
    def f(x, r):
        if fixed:
            return torch.repeat_interleave(x, r, output_size=6) * 2
        return torch.repeat_interleave(x, r) * 2  # HERE

    return (f(x0(3), torch.tensor([1, 2, 3])),)


@problem("numpy")
def numpy_interp(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return y.clamp(0, 1)
        return torch.from_numpy(np.interp(y.numpy(), [0.0, 1.0], [0.0, 1.0]).astype(np.float32))  # HERE

    return (f(x0()),)


@problem("fullgraph-error", "data-dependent-branch")
def fullgraph(fixed):
    @torch.compile(backend="eager", fullgraph=True)
    def f(x):
        if fixed:
            return torch.where(x.sum() > 0, x + 1, x - 1)
        if x.sum() > 0:  # HERE
            return x + 1
        return x - 1

    try:
        return (f(x0()),)
    except Exception:
        return (x0() + 1,)


@problem("unsupported-builtin", "data-dependent-value")
def sort_by_tensor(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return x.sort().values
        return torch.stack(sorted(x, key=lambda t: t.item()))  # HERE

    return (f(x0()),)
