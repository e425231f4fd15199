"""Users' programs that decide, index or shape by data, re-told from public issues and forum threads, with what an expert answers."""

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn


@problem("data-dependent-branch")
def nan_guard(fixed):
    class Net(nn.Module):
        def forward(self, x):
            h = x * 2
            if fixed:
                torch._assert_async(
                    torch.logical_not(torch.logical_or(torch.isnan(h).any(), torch.isinf(h).any())), "bad activations"
                )
            elif torch.isnan(h).any() or torch.isinf(h).any():  # HERE
                raise ValueError("bad activations")
            return h.relu()

    return (torch.compile(Net(), backend="eager")(x0()),)


@problem("data-dependent-value", "break-value")
def trim_to_longest(fixed):
    """Padding is cut to the longest sequence of the batch: the number is a bound, so only the setting helps."""

    @torch.compile(backend="eager")
    def trim(tokens, mask):
        longest = int(mask.sum(dim=1).max())  # HERE
        return tokens[:, :longest] * mask[:, :longest]

    masks = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]), torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    with torch._dynamo.config.patch(capture_scalar_outputs=fixed):
        return tuple(trim(x0(2, 4), mask) for mask in masks)


@problem("data-dependent-value")
def history_of_losses(fixed):
    history = {}

    @torch.compile(backend="eager")
    def step(x):
        loss = (x * x).mean()
        history["loss"] = loss.detach() if fixed else loss.item()  # HERE
        return loss * 2

    return step(x0()), float(history["loss"])


@problem(
    "data-dependent-branch",
    "frame-skipped",
    until=("2.11", "data-dependent-branch", "break-value"),
    since=("2.14", "data-dependent-branch", "break-value"),
)
def early_exit(fixed):
    @torch.compile(backend="eager")
    def solve(z, x):
        done = torch.zeros((), dtype=torch.bool, device=z.device)
        for _ in range(5):
            new = torch.tanh(z + x)
            if fixed:
                done = done | ((new - z).norm() < 0.3)
                z = torch.where(done, z, new)
                continue
            if (new - z).norm() < 0.3:  # HERE
                break
            z = new
        return z

    return (solve(x0() * 0, x0()),)


@problem("data-dependent-value", "frame-skipped")
def mean_of_each(fixed):
    @torch.compile(backend="eager")
    def f(xs):
        means = []
        for x in xs:
            means.append(x.mean().detach() if fixed else x.mean().item())  # HERE
        return torch.tensor(means)

    return (f([x0(3), x0(4)]),)


@problem("data-dependent-value", "frame-skipped")
def suppression_loop(fixed):
    """A loop over what is left, as in non-maximum suppression: one operator for the whole of it."""

    def suppress(boxes, order):
        keep = []
        while order.numel() > 0:  # ASKED
            i = order[0]
            keep.append(i)
            order = order[(boxes[order] - boxes[i]).abs() > 0.5]  # HERE
        return torch.stack(keep)

    @torch.library.custom_op("fxdiag::suppress", mutates_args=())
    def as_operator(boxes: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros_like(boxes, dtype=torch.bool)
        mask[suppress(boxes, order)] = True
        return mask

    as_operator.register_fake(lambda boxes, order: torch.empty_like(boxes, dtype=torch.bool))

    def f(boxes):
        order = boxes.argsort(descending=True)
        if fixed:
            return (boxes * as_operator(boxes, order)).sum()
        return boxes[suppress(boxes, order)].sum()

    called = torch.compile(f, backend="eager") if fixed else torch.compile(suppress, backend="eager")
    return (called(x0()) if fixed else x0()[called(x0(), x0().argsort(descending=True))].sum(),)


@problem("dynamic-output-shape")
def one_hot_without_classes(fixed):
    @torch.compile(backend="eager")
    def f(labels):
        if fixed:
            return torch.nn.functional.one_hot(labels + 1, num_classes=4).float()
        return torch.nn.functional.one_hot(labels + 1).float()  # HERE

    return (f(torch.tensor([0, 1, 2])),)


@problem("dynamic-output-shape")
def histogram_of_ids(fixed):
    @torch.compile(backend="eager")
    def f(ids):
        counts = torch.nn.functional.one_hot(ids + 0, 2).sum(0) if fixed else torch.bincount(ids + 0)  # HERE
        return counts.float() / counts.sum()

    return (f(torch.tensor([0, 1, 1])),)


@problem("dynamic-output-shape")
def rows_of_a_mask(fixed):
    @torch.compile(backend="eager")
    def f(x, mask):
        rows = torch.where(mask)[0]  # HERE
        return x[rows].sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=fixed):
        return (f(x0(4), torch.tensor([True, False, True, False])),)


@problem("data-dependent-branch")
def assertion_with_text(fixed):
    @torch.compile(backend="eager")
    def f(x, low):
        if fixed:
            torch._assert_async((x >= low).all(), "assertion failed")
        else:
            assert (x >= low).all(), f"below {low}"  # HERE
        return x * 2

    return (f(x0(), -2),)


@problem("data-dependent-branch")
def sorted_by_norm(fixed):
    @torch.compile(backend="eager")
    def f(xs):
        if fixed:
            rows = torch.stack(list(xs))
            return rows[torch.stack([t.norm() for t in rows]).argsort(stable=True)]
        ys = sorted(xs, key=lambda t: t.norm())  # HERE
        return torch.stack(ys)

    return (f([x0(3), x0(3) * 0.5, x0(3) * 2]),)


@problem("data-dependent-value", "break-value")
def branch_on_item(fixed):
    @torch.compile(backend="eager")
    def f(x, t):
        if fixed:
            return torch.where(t > 3, x * 2, x)
        if t.item() > 3:  # HERE
            return x * 2
        return x

    return f(x0(), torch.tensor(4.0)), f(x0(), torch.tensor(1.0))


@problem("data-dependent-value", "break-value")
def expert_by_argmax(fixed):
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

        def forward(self, x, gate):
            if fixed:
                every = torch.stack([each(x) for each in self.experts])
                return every.index_select(0, gate.argmax().reshape(1)).squeeze(0)
            chosen = gate.argmax().item()  # HERE
            return self.experts[chosen](x)  # ASKED

    with torch.no_grad():
        net = torch.compile(Mixture(), backend="eager")
        return net(x0(2, 3), torch.tensor([0.1, 0.9])), net(x0(2, 3), torch.tensor([0.9, 0.1]))


@problem("data-dependent-value")
def weight_by_argmax(fixed):
    @torch.compile(backend="eager")
    def f(x, w, gate):
        if fixed:
            return x @ w.index_select(0, gate.argmax().reshape(1)).squeeze(0)
        return x @ w[gate.argmax().item()]  # HERE

    return (f(x0(2, 3), x0(2, 3, 3), torch.tensor([0.1, 0.9])),)


@problem("data-dependent-branch", "higher-order-op")
def choice_under_vmap(fixed):
    def one(v):
        if fixed:
            return torch.where(v.sum() > 0, v, -v)
        if v.sum() > 0:  # HERE
            return v
        return -v

    f = torch.compile(lambda x: torch.vmap(one)(x * 2), backend="eager")
    try:
        return (f(x0(2, 3)),)
    except RuntimeError:  # vmap refuses the branch in eager mode, too
        return (torch.stack([row if row.sum() > 0 else -row for row in x0(2, 3) * 2]),)


@problem("data-dependent-value", "break-value")
def mask_from_lengths(fixed):
    """A padding mask whose width is the longest length."""

    @torch.compile(backend="eager")
    def f(lengths):
        width = lengths.max().item()  # HERE
        return (torch.arange(width)[None] < lengths[:, None]).float().sum()  # ASKED

    with torch._dynamo.config.patch(capture_scalar_outputs=fixed):
        return f(torch.tensor([2, 3])), f(torch.tensor([4, 1]))
