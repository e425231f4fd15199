"""Calls that do not belong into a graph, one small program per kind."""

import copy
import logging
import random
import time
import warnings

import numpy as np
import torch
from harness import problem, x0

log = logging.getLogger("breaks")


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


@problem("clock", until=("2.11", "clock", "unsupported-builtin"))
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
    text = open(__file__).read()  # noqa: SIM115

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        n = len(text) if fixed else len(open(__file__).read())  # HERE  # noqa: SIM115
        return y + n

    return (f(x0()),)


@problem("unsupported-builtin", "frame-skipped", until=("2.12", "unsupported-builtin"))
def id_of_tensor(fixed):
    seen = {}

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        k = 0 if fixed else id(y)  # OLDER HERE
        seen[k] = 1
        return y + 1  # HERE

    return (f(x0()),)


@problem("c-extension", "unsupported-builtin", until=("2.11", "unsupported-builtin"))
def c_extension(fixed):
    import zlib

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        n = 907060870 if fixed else zlib.crc32(b"hello")  # HERE
        return y + n

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
