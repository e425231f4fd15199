"""Small programs that recompile, one per kind of cause, each with the change that the diagnosis proposes."""

import contextlib

import torch
import torch._dynamo.config
from harness import main, problem
from torch import nn


def x0(*shape):
    n = 1
    for s in shape or (6,):
        n *= s
    return torch.linspace(-1, 2, n).reshape(shape or (6,))


class Config:
    pass


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


COUNTER = 0
TABLE = {"scale": 1}


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

    for n in range(4):
        out.append(f(x0()))
    return tuple(out)


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


@problem("grad-mode")
def no_grad_flip(fixed):
    w = torch.ones(6, requires_grad=True)

    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * w

    a = f(x0())
    with torch.no_grad() if not fixed else contextlib.nullcontext():
        b = f(x0())
    return a.detach(), b.detach()


@problem("grad-mode")
def requires_grad_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    return f(x0()).detach(), f(x0().requires_grad_(not fixed)).detach()


@problem("grad-mode")
def inference_mode_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    a = f(x0())
    with torch.inference_mode() if not fixed else contextlib.nullcontext():
        b = f(x0())
    return a.clone(), b.clone()


@problem("autocast")
def autocast_flip(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not fixed):
        a = f(x0())
    return a, f(x0())


@problem("function-mode")
def default_device(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x):
        return x * 2 + torch.ones(6)

    a = f(x0())
    with torch.device("cpu") if not fixed else contextlib.nullcontext():
        b = f(x0())
    return a, b


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


@problem("dynamic-size", "grad-mode")
def usual_training(fixed):
    """A smaller last batch, and an evaluation between: nothing to mend, so severity info in the test."""
    f = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager", dynamic=True if fixed else None)
    out = []
    for _ in range(2):
        for n in (8, 8, 5):
            out.append(f(x0(n, 4)).detach())  # HERE
        with torch.no_grad():
            out.append(f(x0(8, 4)))
    return tuple(out)


@problem("train-eval")
def train_eval(fixed):
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0))
    f = torch.compile(net, backend="eager")
    net.train()
    a = f(x0())  # HERE
    if not fixed:
        net.eval()
    return (a - f(x0())).abs().max(), torch.zeros(())  # HERE


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
        exec(f"def g(x):\n    return x * {i}", exec_)
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


@problem("break-value", "data-dependent-value")
def value_across_break(fixed):
    @torch.compile(backend="eager")
    def f(x):
        n = x.sum() if fixed else int(x.sum())  # HERE
        return x * n

    return tuple(f(torch.full((3,), float(i))).sum() for i in (3, 4, 5))


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


@problem("per-thread-config", "recompile-limit", "changing-number", "recompile-storm")
def thread_config(fixed):
    import threading

    out = []

    @torch.compile(backend="eager")
    def f(x, name):
        return x * len(name)

    torch._dynamo.config.recompile_limit = 64  # HERE

    def serve():
        if fixed:
            torch._dynamo.config.recompile_limit = 64
        out.extend(f(x0(), "a" * i) for i in range(11))

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    torch._dynamo.config.recompile_limit = 8
    return tuple(out)


if __name__ == "__main__":
    main()
