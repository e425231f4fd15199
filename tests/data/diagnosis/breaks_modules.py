"""Modules, gradients and operators, one small program per kind."""

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


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


@problem("rnn-module", "frame-skipped", since=("2.15", "rnn-module"))
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


@problem("hook")
def module_hook(fixed):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    if not fixed:
        net[0].register_full_backward_hook(lambda m, gi, go: None)

    @torch.compile(backend="eager")
    def f(x):
        return net(x) * 2  # HERE

    return (f(x0()).detach(),)


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
