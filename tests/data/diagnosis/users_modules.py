"""Users' modules, operators and gradients, re-told from public issues and forum threads, with what an expert answers."""

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


@problem("autograd-function", "frame-skipped", same=False, until=("2.12",))
def rounded_in_place(fixed):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if fixed:
                return x.round()
            ctx.mark_dirty(x)  # HERE
            return x.round_()

        @staticmethod
        def backward(ctx, g):
            return g

    f = torch.compile(lambda x: Round.apply(x * 3).sum(), backend="eager")
    return (f(x0().requires_grad_()).detach(),)


@problem(
    "rnn-module",
    "library-code",
    "frame-skipped",
    until=("2.11", "rnn-module", "unsupported-builtin", "frame-skipped"),
    since=("2.15", "rnn-module", "library-code"),
)
def packed_sequence(fixed):
    """allow_rnn does not help where the sequence is packed: the RNN stays outside."""
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    torch.manual_seed(0)
    rnn = nn.GRU(3, 3, batch_first=True)

    def encode(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(rnn(packed)[0], batch_first=True)[0]

    def whole(x, lengths):
        x = x * 2
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = rnn(packed)  # HERE
        return pad_packed_sequence(h, batch_first=True)[0]

    lengths = torch.tensor([4, 2])
    with torch.no_grad():
        if fixed:
            return (encode(torch.compile(lambda x: x * 2, backend="eager")(x0(2, 4, 3)), lengths),)
        return (torch.compile(whole, backend="eager")(x0(2, 4, 3), lengths),)


@problem("torchscript")
def traced_layer(fixed):
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    inner = layer if fixed else torch.jit.trace(layer, torch.zeros(2, 3))

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        return inner(y)  # HERE

    with torch.no_grad():
        return (f(x0(2, 3)),)


@problem("unsupported-tensor", "frame-skipped")
def ragged_as_nested(fixed):
    @torch.compile(backend="eager")
    def f(xs):
        if fixed:
            return torch.nn.utils.rnn.pad_sequence([x * 2 for x in xs], batch_first=True)
        nested = torch.nested.nested_tensor(xs)  # HERE
        return torch.nested.to_padded_tensor(nested * 2, 0.0)

    return (f([x0(2, 3), x0(3, 3)]),)


@problem("requires-grad", "train-step")
def forces_from_energy(fixed):
    """Forces as the gradient of an energy, inside of the compiled function."""

    def energy(x):
        return (x**3).sum()

    @torch.compile(backend="eager")
    def forces(x):
        if fixed:
            return -torch.func.grad(energy)(x)
        x = x.requires_grad_(True)
        e = energy(x)
        return -torch.autograd.grad(e, x)[0]  # HERE

    return (forces(x0()).detach(),)


@problem("train-step")
def gradient_penalty(fixed):
    """The setting that torch names makes the gradient part of the graph."""

    @torch.compile(backend="eager")
    def penalty(x, w):
        y = (x * w).sin().sum()
        (g,) = torch.autograd.grad(y, w)  # HERE
        return g.norm()

    with torch._dynamo.config.patch(trace_autograd_ops=fixed):
        return (penalty(x0(), torch.ones(6, requires_grad=True)),)


@problem("backward-failed", "backend-failed")
def operator_without_backward(fixed):
    name = f"fxdiag::square_{'ok' if fixed else 'bad'}"

    @torch.library.custom_op(name, mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    square.register_fake(lambda x: torch.empty_like(x))

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad

    if fixed:
        torch.library.register_autograd(name, backward, setup_context=setup_context)

    @torch.compile(backend="aot_eager")
    def f(x):
        y = x + 1
        return square(y).sum()  # HERE

    x = x0().requires_grad_()
    try:
        f(x).backward()
    except RuntimeError:
        if fixed:
            raise
        return (2 * (x0() + 1),)
    return (x.grad,)


@problem("user-error")
def wrong_width(fixed):
    torch.manual_seed(0)
    first, second = nn.Linear(3, 5), nn.Linear(5 if fixed else 3, 2)

    @torch.compile(backend="eager")
    def f(x):
        return second(first(x))  # HERE

    try:
        return (f(x0(2, 3)).shape,)
    except RuntimeError:
        return (torch.Size([2, 2]),)


@problem("fullgraph-error", "logging")
def logged_under_fullgraph(fixed):
    import logging

    log = logging.getLogger("users.fullgraph")

    @torch.compile(backend="eager", fullgraph=True)
    def f(x):
        y = x * 2
        if not (fixed and torch.compiler.is_compiling()):
            log.debug("shape %s", y.shape)  # HERE
        return y

    try:
        return (f(x0()),)
    except Exception:
        return (x0() * 2,)


@problem("hook")
def gradient_hook_on_a_layer(fixed):
    """torch's hint (compiled_autograd) raises with this backend; a hook on the tensor is part of the graph."""
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    if not fixed:
        first.register_full_backward_hook(lambda module, before, after: tuple(g.clamp(-0.1, 0.1) for g in before))

    @torch.compile(backend="aot_eager")
    def f(x):
        y = x * 2
        if fixed:
            y.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        h = first(y)  # HERE
        return second(h).sum()

    x = x0(2, 3).requires_grad_()
    f(x).backward()
    return (x.grad,)
