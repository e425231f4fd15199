"""Users' programs that decide by data in loops, tuples and calls: where torch's hint does not help, or crashes."""

import math

import numpy as np
import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


@problem("data-dependent-value")
def diverged(fixed):
    """math.* asks the tensor for its number as item() does: its twin stays on the device."""

    @torch.compile(backend="eager")
    def loss_of(x):
        loss = (x * x).mean()
        if fixed:
            torch._assert_async(torch.isfinite(loss), "diverged")
        elif not math.isfinite(loss.item()):  # HERE
            raise RuntimeError("diverged")
        return loss

    return (loss_of(x0()),)


@problem("data-dependent-branch")
def flag_and_data(fixed):
    class Net(nn.Module):
        def forward(self, x):
            y = x * 2
            if self.training and fixed:
                y = torch.where(y.max() > 3, y / y.max(), y)
            elif self.training and y.max() > 3:  # HERE
                y = y / y.max()
            return y

    return (torch.compile(Net(), backend="eager")(x0()),)


@problem("data-dependent-value")
def token_and_flag(fixed):
    @torch.compile(backend="eager")
    def sample(logits):
        token = logits.argmax()
        if fixed:
            return (token, torch.where(token == 3, True, False))
        if token.item() == 3:  # HERE
            return token, True
        return token, False

    return tuple(int(each) for logits in (x0(5), -x0(5)) for each in sample(logits))


@problem("numpy", "data-dependent-value")
def padded_by_numpy(fixed):
    """torch's hint (capture_scalar_outputs) raises PendingUnbackedSymbolNotFound here."""

    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return torch.nn.functional.pad(x, (0, 2))
        return torch.from_numpy(np.pad(x.numpy(), (0, 2)))  # HERE

    return (f(x0()),)


@problem("data-dependent-value", "frame-skipped")
def text_of_a_mean(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if fixed:
            return y, 0
        text = "mean=%s" % y.mean()  # HERE  # noqa: UP031
        return y, len(text) * 0

    return f(x0())


@problem("dynamic-output-shape")
def loop_over_nonzero(fixed):
    """torch's hint (capture_dynamic_output_shape_ops) loses the whole function here."""

    @torch.compile(backend="eager")
    def f(x):
        out = x * 0
        if fixed:
            return out + (x != 0)
        for i in x.nonzero():  # HERE
            out[i] += 1
        return out

    return (f(torch.tensor([0.0, 1.0, 2.0])),)


@problem("data-dependent-value")
def dropout_by_buffer(fixed):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("p", torch.tensor(0.0))
            self.rate = float(self.p)

        def forward(self, x):
            if fixed:
                return nn.functional.dropout(x * 2, p=self.rate, training=self.training)
            return nn.functional.dropout(x * 2, p=float(self.p), training=self.training)  # HERE

    return (torch.compile(Net(), backend="eager")(x0()),)


@problem("data-dependent-branch")
def dropout_by_captured_buffer(fixed):
    """The same with torch's hint: the function checks the number, and that breaks."""

    @torch.compile(backend="eager")
    def f(x, p):
        return nn.functional.dropout(x * 2, p=0.0 if fixed else p.item(), training=True)  # HERE

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return (f(x0(), torch.tensor(0.0)),)


@problem("data-dependent-value")
def batch_with_a_length(fixed):
    class Batch:
        def __init__(self, mask):
            self.mask = mask

        def __len__(self):
            return int(self.mask.sum())  # HERE

    @torch.compile(backend="eager")
    def f(x, batch):
        return x * 2 + len(batch)

    with torch._dynamo.config.patch(capture_scalar_outputs=fixed):
        return (f(x0(), Batch(torch.ones(3, dtype=torch.long))),)


@problem("data-dependent-branch", "frame-skipped", "dynamic-size", until=("2.11", "data-dependent-branch"))
def stop_at_the_end_token(fixed):
    """The loop and its exit stay outside; its body is compiled."""

    def step(ids):
        return torch.cat([ids, (ids[:, -1:] + 1) % 5], 1)

    def generate(ids, step):
        for _ in range(4):
            ids = step(ids)
            if (ids[:, -1] == 2).all():  # HERE
                break
        return ids

    start = torch.zeros(2, 3, dtype=torch.long)
    if fixed:
        return (generate(start, torch.compile(step, backend="eager", dynamic=True)),)
    return (torch.compile(generate, backend="eager")(start, step),)


@problem("data-dependent-value", since=("2.14", "data-dependent-value", "frame-skipped"))
def rows_one_by_one(fixed):
    @torch.compile(backend="eager")
    def f(x, ids):
        if fixed:
            return x[ids].sum()
        return torch.stack([x[i] for i in ids]).sum()  # HERE

    return (f(x0(5, 3), torch.tensor([0, 2])),)
