"""Containers, objects and modules that differ from call to call."""

import torch
from harness import problem, x0
from torch import nn


@problem("container-size", "recompile-storm", "recompile-limit")
def list_length(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(xs):
        return xs.sum(0) if fixed else sum(xs)

    return tuple(f(torch.stack([x0()] * n) if fixed else [x0()] * n) for n in range(2, 13))


@problem("container-size", "recompile-storm", "recompile-limit")
def list_that_the_code_grows(fixed):
    class M(nn.Module):
        def forward(self, x):  # HERE
            y = x * 2
            if not fixed:
                self.history.append(y.mean())
            return y

    m = M()
    m.history = []
    f = torch.compile(m, backend="eager")
    out = []
    for _ in range(11):
        out.append(f(x0()))
        if fixed:
            m.history.append(out[-1].mean())
    return (*out, *m.history)


@problem("container-size")
def dict_keys(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(d):
        return d["a"] + sum(d.values())

    return tuple(f({"a": x0(), ("b" if fixed else k): x0()}) for k in "bcd")


@problem("container-size")
def kwargs_size(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, **kw):
        return x + kw.get("y", 0)

    return f(x0(), y=torch.zeros(6)), f(x0(), **({"y": torch.zeros(6)} if fixed else {}))


@problem("tensor-type")
def parameter_or_tensor(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, w):
        return x * w

    a = f(x0(), torch.ones(6))
    b = f(x0(), torch.ones(6) if fixed else nn.Parameter(torch.ones(6), requires_grad=False))
    return a, b.detach()


@problem("tensor-type")
def tensor_or_number(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, s):
        return x * s

    return f(x0(), torch.tensor(2.0)), f(x0(), torch.tensor(2.0) if fixed else 2.0)


@problem("none-or-tensor")
def optional_mask(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, mask):
        return x * 2 if mask is None else x * 2 * mask

    return f(x0(), torch.ones(6) if fixed else None), f(x0(), torch.ones(6))


@problem("none-or-tensor")
def optional_first(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, mask=None):
        return x if mask is None else x * mask

    return f(x0(), torch.ones(6)), f(x0(), torch.ones(6) if fixed else None)


@problem("new-compile-each-call", "recompile-storm", "recompile-limit")
def compile_each_call(fixed):
    def f(x):  # HERE
        return x * 2

    once = torch.compile(f, backend=lambda gm, ex: gm.forward)
    return tuple((once if fixed else torch.compile(f, backend=lambda gm, ex: gm.forward))(x0()) for _ in range(11))


@problem("object-identity", "recompile-storm", "recompile-limit", "shared-code")
def fresh_function(fixed):
    def make(i):
        names = {}
        exec("def act(x):\n    return x * 2", names)
        return names["act"]

    kept = make(0)

    @torch.compile(backend="eager")  # HERE
    def f(x, act):
        return act(x)

    return tuple(f(x0(), kept if fixed else make(i)) for i in range(11))


@problem("object-identity")
def fresh_class(fixed):
    kept = type("Scale", (), {"k": 2})

    @torch.compile(backend="eager")  # HERE
    def f(x, scale):
        return x * scale.k

    return tuple(f(x0(), kept if fixed else type("Scale", (), {"k": 2})) for _ in range(4))


@problem("shared-code", "recompile-limit", "changing-attribute", "recompile-storm")
def one_class_many_layers(fixed):
    class Layer(nn.Module):
        def __init__(self, i, n):
            super().__init__()
            self.index = i
            self.lin = nn.Linear(n, n)

        def forward(self, x):  # HERE
            return self.lin(x) * self.index

    layers = [Layer(i, 6) for i in range(11)]

    def run(x):
        for layer in layers:
            x = layer(x)
        return x

    if fixed:
        run = torch.compile(run, backend="eager")
    else:
        for layer in layers:
            layer.compile(backend="eager")
    with torch.no_grad():
        return (run(x0()),)


@problem("shared-code", "recompile-limit", "object-identity", "recompile-storm")
def decorator_wrapper(fixed):
    import functools

    def timed(f):
        @functools.wraps(f)  # HERE
        def wrapper(*args):
            return f(*args)

        return wrapper

    functions = []
    for i in range(11):
        exec_ = {}
        # From a file by name: torch 2.12 wraps what comes from "<string>" in a function of its own.
        exec(compile(f"def g(x):\n    return x * {i}", __file__, "exec"), exec_)
        functions.append(torch.compile(exec_["g"] if fixed else timed(exec_["g"]), backend="eager"))
    return tuple(g(x0()) for g in functions)


@problem("shared-code", "recompile-storm")
def stock_modules(fixed):
    nets = [nn.Linear(4, n) for n in range(2, 8)]
    if fixed:
        run = torch.compile(lambda x: [net(x).sum() * 0 for net in nets], backend="eager")
    else:
        fast = [torch.compile(net, backend="eager") for net in nets]

        def run(x):
            return [net(x).sum() * 0 for net in fast]  # HERE

    with torch.no_grad():
        return tuple(run(x0(2, 4)))
