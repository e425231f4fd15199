"""Users' programs that call what does not belong into a graph, re-told from public issues and forum threads, with what an expert answers."""

import contextlib
import ctypes
import io
import json
import logging
import sys
import time
import uuid

import torch
import torch._dynamo.config
from harness import problem, x0
from torch import nn

logger = logging.getLogger("users")


@problem("print", "frame-skipped")
def progress_bar(fixed):
    from tqdm import tqdm

    @torch.compile(backend="eager")
    def sample(x):
        if fixed:
            for _ in range(4):
                x = x - 0.1 * x.sin()
            return x
        for _ in tqdm(range(4), disable=True):  # HERE
            x = x - 0.1 * x.sin()
        return x

    return (sample(x0()),)


@problem("logging")
def warned_in_forward(fixed):
    class Attention(nn.Module):
        def forward(self, x, output_attentions=False):
            if not output_attentions and not (fixed and torch.compiler.is_compiling()):
                logger.warning("sdpa does not return the weights")  # HERE
            return x * 2

    logger.disabled = True
    return (torch.compile(Attention(), backend="eager")(x0()),)


@problem("clock", "frame-skipped")
def own_timer(fixed):
    times = {}

    @contextlib.contextmanager
    def timed(name):
        start = time.time()  # HERE
        yield
        times[name] = time.time() - start

    @torch.compile(backend="eager")
    def f(x):
        if fixed:
            return x.relu() * 2 + 1
        with timed("mlp"):
            y = x.relu() * 2
        return y + 1

    with timed("whole"):
        return (f(x0()),)


@problem("exception", since=("2.14",))
def shape_error_caught(fixed):
    """The program catches what view() raises; while it is traced the error ends the call."""

    @torch.compile(backend="eager")
    def f(x, n):
        y = x * 2
        if fixed:
            return y.view(n, -1) if y.numel() % n == 0 else y.reshape(-1)
        try:
            z = y.view(n, -1)  # HERE
        except RuntimeError:
            z = y.reshape(-1)
        return z

    try:
        return (f(x0(), 4),)
    except RuntimeError:
        return (x0() * 2,)


@problem("c-extension")
def foreign_library(fixed):
    library = ctypes.CDLL(None)

    @torch.compile(backend="eager")
    def f(x, offset):
        y = x * 2
        return y + (offset if fixed else library.abs(-3))  # HERE

    return (f(x0(), library.abs(-3)),)


@problem("unsupported-builtin", "library-code", until=("2.11", "unsupported-builtin"))
def saved_inside(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not fixed:
            torch.save(y, io.BytesIO())  # HERE
        return y + 1

    return (f(x0()),)


@problem("unsupported-builtin", since=("2.14", "c-extension"))
def parsed_inside(fixed):
    text = '{"scale": 3}'
    scale = json.loads(text)["scale"]

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        return y * (scale if fixed else json.loads(text)["scale"])  # HERE

    return (f(x0()),)


@problem("random")
def tagged(fixed):
    @torch.compile(backend="eager")
    def f(x, tag):
        y = x * 2
        tag = tag if fixed else str(uuid.uuid4())  # HERE
        return y, tag

    return (f(x0(), str(uuid.uuid4()))[0],)


@problem("print")
def written_to_stdout(fixed):
    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        if not (fixed and torch.compiler.is_compiling()):
            sys.stdout.write("here\n")  # HERE
        return y + 1

    with contextlib.redirect_stdout(io.StringIO()):
        return (f(x0()),)


@problem("print", "higher-order-op")
def printed_in_a_checkpoint(fixed):
    from torch.utils.checkpoint import checkpoint

    def block(x):
        y = x.sin()
        if not (fixed and torch.compiler.is_compiling()):
            print("in the block")  # HERE
        return y.relu()

    f = torch.compile(lambda x: checkpoint(block, x, use_reentrant=False), backend="eager")
    with contextlib.redirect_stdout(io.StringIO()):
        return (f(x0().requires_grad_()).detach(),)


@problem("logging")
def logged_by_the_module(fixed):
    """logging.info itself: Logger.info in the set of torch's hint does not stand for it."""

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        logging.info("working")  # HERE  # noqa: LOG015
        return y + 1

    ignored = {logging.info} if fixed else {logging.Logger.info}
    with torch._dynamo.config.patch(ignore_logging_functions=ignored):
        return (f(x0()),)


@problem("unsupported-builtin")
def class_inside(fixed):
    """Before torch 2.13 there is no such setting: the class is to be defined outside."""
    setting = hasattr(torch._dynamo.config, "enable_trace_load_build_class")

    class Outside:
        value = 2

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2

        if fixed and not setting:
            return y * Outside.value

        class Scale:  # HERE
            value = 2

        return y * Scale.value

    with torch._dynamo.config.patch({"enable_trace_load_build_class": fixed} if setting else {}):
        return (f(x0()),)


@problem("higher-order-op")
def counted_in_a_checkpoint(fixed):
    from torch.utils.checkpoint import checkpoint

    calls = []

    def block(x):
        calls.append(1)  # HERE
        return x.sin()

    f = torch.compile(lambda x: checkpoint(block, x * 2, use_reentrant=False), backend="eager")
    with torch._dynamo.config.patch(skip_fwd_side_effects_in_bwd_under_checkpoint=fixed):
        return (f(x0().requires_grad_()).detach(),)
