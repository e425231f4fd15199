"""Small programs whose graphs break, one per kind of cause, each with the rewrite that the diagnosis proposes.

``python breaks.py OUT [NAME...]`` records every problem twice (as is, and fixed) into OUT/<name> and OUT/<name>.fixed,
and writes OUT/results.json with what they returned. The line that a diagnosis must name carries ``# HERE``.
"""

import copy
import logging
import random
import time
import warnings

import numpy as np
import torch
import torch._dynamo.config
from harness import main, problem
from torch import nn

log = logging.getLogger("breaks")


def x0(*shape):
    return torch.linspace(-1, 2, int(np.prod(shape or (6,)))).reshape(shape or (6,))


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


@problem("backward-failed")
def wrong_backward(fixed):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):  # HERE
            (x,) = ctx.saved_tensors
            return 2 * x * g if fixed else (2 * x * g)[:2]

    f = torch.compile(lambda x: Square.apply(x).sum(), backend="aot_eager")
    x = x0().requires_grad_()
    try:
        f(x).backward()
    except Exception:
        if fixed:
            raise
    return (f(x.detach() * 0),) if fixed else (torch.zeros(()),)


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


@problem("data-dependent-branch")
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


@problem("print")
def print_shape(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not (fixed and torch.compiler.is_compiling()):
            print("sum", y.sum())  # HERE
        return y + 1

    return (f(x0()),)


@problem("logging")
def logger(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not (fixed and torch.compiler.is_compiling()):
            log.debug("working")  # HERE
        return y + 1

    return (f(x0()),)


@problem("warnings")
def warn(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not (fixed and torch.compiler.is_compiling()):
            warnings.warn("deprecated", stacklevel=2)  # HERE
        return y + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (f(x0()),)


@problem("clock")
def clock(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not fixed:
            f.t = time.perf_counter()  # HERE
        return y + 1

    return (f(x0()),)


@problem("clock")
def clock_time(fixed):
    @torch.compile(backend="eager")
    def f(x):
        t = 0.0 if fixed else time.time()  # HERE
        y = x * 2
        return y + 1, t

    return (f(x0())[0],)


@problem("random")
def python_random(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return x + torch.rand(()) * 0
        return x + random.gauss(0, 1) * 0  # HERE

    return (f(x0()),)


@problem("random")
def python_choice(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return x[torch.randint(0, 6, (1,))] * 0
        return x[[random.choice([0, 1, 2])]] * 0  # HERE

    return (f(x0()),)


@problem("random")
def numpy_random(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return x + torch.rand(()) * 0
        return x + float(np.random.default_rng(0).random()) * 0  # HERE

    return (f(x0()),)


@problem("random-seed")
def manual_seed(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if not fixed:
            torch.manual_seed(0)  # HERE
        return x + torch.rand(6)

    torch.manual_seed(0)
    return (f(x0()),)


@problem("random-seed", "random")
def generator_object(fixed):
    g = torch.Generator().manual_seed(0)

    @torch.compile(backend="eager")
    def f(x, noise):
        if fixed:
            return x + noise
        return x + torch.rand(6, generator=g)  # HERE

    noise = torch.rand(6, generator=g) if fixed else None
    return (f(x0(), noise),)


class Timer:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


@problem("context-manager", "print", "frame-skipped")
def custom_context(fixed):
    def f(x):
        with Timer():
            y = x * 2
            if not fixed:
                print("inside")  # HERE
        return y + 1

    return (torch.compile(f, backend="eager")(x0()),)


@problem("context-manager", "frame-skipped")
def unsupported_context(fixed):
    lock = __import__("threading").Lock()

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return y + 1
        with lock:  # HERE
            return y + 1

    return (f(x0()),)


@problem("higher-order-op", same=False)
def cond_shapes(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return torch.cond(x.sum() > 0, lambda x: (x + 1, x), lambda x: x - 1, (x,))[0]  # HERE

    try:
        return (f(x0()),)
    except Exception as error:
        return (type(error).__name__,)


@problem("rnn-module", "frame-skipped")
def gru(fixed):
    torch.manual_seed(0)
    rnn = nn.GRU(4, 4)
    head = nn.Linear(4, 2)

    def f(x):
        y = x * 2
        y, _ = rnn(y)  # HERE
        return head(y)

    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=fixed):
        return (torch.compile(f, backend="eager")(x0(3, 2, 4)),)


@problem("train-step")
def backward_inside(fixed):
    w = torch.ones(6, requires_grad=True)

    def loss_of(x):
        return (x * w).square().mean()

    @torch.compile(backend="eager")
    def f(x):
        loss = loss_of(x)
        if not fixed:
            loss.backward()  # HERE
        return loss

    loss = f(x0())
    if fixed:
        loss.backward()
    return loss.detach(), w.grad


@problem("train-step")
def autograd_grad(fixed):
    w = torch.ones(6, requires_grad=True)

    @torch.compile(backend="eager")
    def f(x):
        loss = (x * w).square().mean()
        if fixed:
            return loss
        return torch.autograd.grad(loss, w)[0]  # HERE

    return (torch.autograd.grad(f(x0()), w)[0] if fixed else f(x0()),)


@problem("unsupported-builtin")
def deepcopy_config(fixed):
    class Config:
        scale = 2

    config = Config()

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        c = config if fixed else copy.deepcopy(y)  # HERE
        return y + (0 if fixed else c * 0)

    return (f(x0()),)


@problem("unsupported-builtin")
def open_file(fixed):
    text = open(__file__).read()

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        n = len(text) if fixed else len(open(__file__).read())  # HERE
        return y + n

    return (f(x0()),)


@problem("unsupported-builtin", "frame-skipped")
def id_of_tensor(fixed):
    seen = {}

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        k = 0 if fixed else id(y)
        seen[k] = 1
        return y + 1  # HERE

    return (f(x0()),)


@problem("c-extension", "unsupported-builtin")
def c_extension(fixed):
    import zlib

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        n = 907060870 if fixed else zlib.crc32(b"hello")  # HERE
        return y + n

    return (f(x0()),)


@problem("numpy")
def numpy_interp(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return y.clamp(0, 1)
        return torch.from_numpy(np.interp(y.numpy(), [0.0, 1.0], [0.0, 1.0]).astype(np.float32))  # HERE

    return (f(x0()),)


@problem("exception", "frame-skipped")
def exception_raised(fixed):
    @torch.compile(backend="eager")
    def f(x, mode):
        y = x * 2
        if fixed:
            return y + 1 if mode == "a" else y
        raise NotImplementedError("unknown mode " + mode)  # HERE

    try:
        return (f(x0(), "a").sum() * 0,)
    except NotImplementedError:
        return (torch.tensor(0.0),)


@problem("disabled-function")
def disabled(fixed):
    def helper(x):
        return x + 1

    if not fixed:
        helper = torch.compiler.disable(helper)

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        z = helper(y)  # HERE
        return z * 3

    return (f(x0()),)


@problem("disabled-function")
def explicit_break(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not fixed:
            torch._dynamo.graph_break()  # HERE
        return y * 3

    return (f(x0()),)


@problem("hook")
def module_hook(fixed):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    seen = []
    if not fixed:
        net[0].register_full_backward_hook(lambda m, gi, go: None)

    @torch.compile(backend="eager")
    def f(x):
        return net(x) * 2  # HERE

    return (f(x0()).detach(),)


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


@problem("requires-grad")
def requires_grad_inside(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not fixed:
            x.requires_grad_(True)  # HERE
        return y + 1

    x = x0()
    if fixed:
        x.requires_grad_(True)
    return (f(x).detach(),)


@problem("unsupported-builtin", "data-dependent-value")
def sort_by_tensor(fixed):
    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return x.sort().values
        return torch.stack(sorted(x, key=lambda t: t.item()))  # HERE

    return (f(x0()),)


@problem("unsupported-tensor", "frame-skipped")
def sparse(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return y.sum()
        return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), y[:2], (6,)).to_dense().sum() + y[2:].sum()  # HERE

    return (f(x0()),)


@problem("missing-fake-kernel")
def no_fake(fixed):
    name = f"fxdiag::halve_{'ok' if fixed else 'bad'}"

    @torch.library.custom_op(name, mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    if fixed:
        halve.register_fake(lambda x: torch.empty_like(x))

    @torch.compile(backend="eager")
    def f(x):
        return halve(x) + 1  # HERE

    try:
        return (f(x0()),)
    except Exception:
        return (x0() / 2 + 1,)


@problem("grad-across-boundary")
def grad_across(fixed):
    @torch.compile(backend="eager")
    def f(h, w):
        loss = (h * w).sum()
        return torch.autograd.grad(loss, w)[0] if not fixed else loss  # HERE

    w = torch.ones(6, requires_grad=True)
    h = w * 2
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        try:
            out = f(h, w)
        except Exception as error:
            return (type(error).__name__,)
    return (torch.autograd.grad(out, w)[0] if fixed else out.detach(),)


if __name__ == "__main__":
    main()
