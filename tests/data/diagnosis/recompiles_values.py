"""Values that a graph holds as constants, and that change."""

import torch
from harness import problem, x0
from torch import nn


class Config:
    pass


COUNTER = 0
TABLE = {"scale": 1}


@problem("changing-attribute")
def plain_object_flag(fixed):
    c = Config()
    c.scale = 1

    @torch.compile(backend="eager")  # HERE
    def f(x, s):
        return x * (s if fixed else c.scale)  # ASKED

    out = []
    for i in range(4):
        c.scale = i
        out.append(f(x0(), torch.tensor(i)))
    return tuple(out)


@problem("changing-attribute", "recompile-storm", "recompile-limit")
def module_string(fixed):
    class M(nn.Module):
        def forward(self, x):  # HERE
            return x + len(self.mode) if not fixed else x + self.n

    m = M()
    m.register_buffer("n", torch.zeros(()))
    f = torch.compile(m, backend="eager")
    out = []
    for i in range(11):
        m.mode = "a" * i
        m.n.fill_(i)
        out.append(f(x0()))
    return tuple(out)


@problem("changing-attribute", same=False)
def module_bool(fixed):
    class M(nn.Module):
        def forward(self, x):  # HERE
            return x + 1 if self.flag else x - 1

    m = M()
    f = torch.compile(m, backend="eager")
    out = []
    for i in (True, False):
        m.flag = True if fixed else i
        out.append(f(x0()))
    return tuple(out)


@problem("changing-number")
def int_argument(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, n):
        return x * n

    return tuple(f(x0(), torch.tensor(i) if fixed else i) for i in range(2, 6))


@problem("changing-number", "recompile-storm", "recompile-limit")
def bool_string_argument(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, name):
        return x * len(name)

    return tuple(f(x0(), "a" if fixed else "a" * i) for i in range(1, 12))[:1]


@problem("changing-global", "recompile-storm", "recompile-limit")
def global_int(fixed):
    global COUNTER
    COUNTER = 0

    @torch.compile(backend="eager")  # HERE
    def f(x, c):
        return x + (c if fixed else COUNTER)

    out = []
    for i in range(12):
        COUNTER = i
        out.append(f(x0(), torch.tensor(i)))
    return tuple(out)


@problem("changing-global")
def global_dict(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, c):
        return x + (c if fixed else TABLE["scale"])

    out = []
    for i in range(3):
        TABLE["scale"] = i
        out.append(f(x0(), torch.tensor(i)))
    return tuple(out)


@problem("changing-number")
def closure_int(fixed):
    out = []

    def make(n):
        def f(x):
            return x + n

        return f

    if fixed:
        g = torch.compile(lambda x, n: x + n, backend="eager")
        return tuple(g(x0(), torch.tensor(i)) for i in range(4))
    n = 0

    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x + n

    for n in range(4):  # noqa: B007 - the closure reads it
        out.append(f(x0()))
    return tuple(out)
