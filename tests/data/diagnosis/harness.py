"""Runs the problems of a module in one process, each recorded into its own folder as TORCH_TRACE would."""

import inspect
import json
import logging
import math
import os
import re
import sys
import traceback

import torch
import torch._dynamo
import torch._logging._internal as logging_internal
from torch._logging import structured

PROBLEMS = {}


def x0(*shape):
    """The same values for every problem."""
    shape = shape or (6,)
    return torch.linspace(-1, 2, math.prod(shape)).reshape(shape)


VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def _version(text):
    return tuple(int(part) for part in text.split("."))


def problem(*expect, same=True, until=(), since=()):
    """Registers ``run(fixed)`` with the finding ids that its unfixed run must show; ``same``: both runs return the same.

    ``until`` and ``since``: a version of torch and what it and all before (after) it show instead, where torch itself differs
    (or the Python that docs/versions.md pairs with it: 3.12 inlines comprehensions).
    """
    older = bool(until) and _version(until[0]) >= VERSION
    if older or (since and _version(since[0]) <= VERSION):
        expect = until[1:] if older else since[1:]

    def register(run):
        PROBLEMS[run.__name__] = (run, expect, same, older)
        return run

    return register


class Trace:
    """What TORCH_TRACE does, for the length of a ``with``, into a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        os.makedirs(self.folder, exist_ok=True)
        structured.INTERN_TABLE.clear()
        log = logging_internal.trace_log
        self.handler = logging_internal.LazyTraceHandler(self.folder)
        self.handler.setFormatter(logging_internal.TorchLogsFormatter(trace=True))
        log.setLevel(logging.DEBUG)
        log.addHandler(self.handler)

    def __exit__(self, *exc):
        logging_internal.trace_log.removeHandler(self.handler)
        self.handler.close()


def plain(value):
    """A result as JSON."""
    return (
        value.tolist()
        if isinstance(value, torch.Tensor)
        else repr(value)
        if not isinstance(value, (int, float, str, list, tuple))
        else value
    )


def facts(run, expect, same, older):
    """What a test needs to know of a problem: ids, whether results agree, and the lines marked HERE and ASKED.

    ``# OLDER HERE`` marks the line that is found where ``until`` holds; ``older`` tells whether it does.
    """
    source, first = inspect.getsourcelines(run)

    def lines(mark):
        return [first + i for i, line in enumerate(source) if re.search(rf"# {mark}\b", line)]

    here = (older and lines("OLDER HERE")) or lines("HERE")
    asked = [line for line in lines("ASKED") if not (older and line in here)]
    return {"expect": expect, "same": same, "here": here if expect else [], "asked": asked, "older": older}


def main():
    out, first, step, *named = sys.argv[1:]
    names = (named or list(PROBLEMS))[int(first) :: int(step)]
    results = {}
    for name in names:
        run, *expected = PROBLEMS[name]
        for fixed in (False, True):
            torch._dynamo.reset()
            torch.manual_seed(0)
            key = name + (".fixed" if fixed else "")
            with Trace(os.path.join(out, key)):
                try:
                    results[key] = {"result": [plain(v) for v in run(fixed)], "error": None, **facts(run, *expected)}
                except Exception as error:
                    results[key] = {
                        "result": None,
                        "error": f"{type(error).__name__}: {error}",
                        "trace": traceback.format_exc(),
                        **facts(run, *expected),
                    }
    with open(os.path.join(out, f"results-{first}.json"), "w") as file:
        json.dump(results, file, indent=1)
