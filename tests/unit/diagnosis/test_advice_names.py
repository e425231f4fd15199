"""Advice names functions and settings of torch: every one of them exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import fxscope.diagnosis.registry as registry
from tests.versions_of_torch import TORCH

ROOM = Path(registry.__file__).parent
NAME = re.compile(r"\btorch(?:\.[A-Za-z_]\w*)+")
# Written in advice, and no attribute to look up: patterns of text that the code searches in logs.
TEXTS = (
    "advice.toml",
    "remedies.py",
    "remedies_size.py",
    "branching.py",
    "failures.py",
    "breaks.py",
    "nothing.py",
    "cost.py",
    "threads.py",
    "rewrites.py",
    "caches.py",
)
# Newer than the oldest torch that is supported; the advice says "where the version has it", or is a file name in a pattern.
ELSEWHERE = {"torch.optim", "torch.distributed"}

NEWER = {"torch._dynamo.config.enable_trace_load_build_class": (2, 13)}  # the advice says so


def exists(name: str) -> bool:
    parts = name.split(".")
    value = importlib.import_module("torch")
    for index, part in enumerate(parts[1:], 1):
        if not hasattr(value, part):
            try:
                value = importlib.import_module(".".join(parts[: index + 1]))
            except ImportError:
                return False
            continue
        value = getattr(value, part)
    return True


def test_every_name_in_an_advice_exists() -> None:
    missing = {}
    seen = 0
    for file in TEXTS:
        for name in NAME.findall((ROOM / file).read_text()):
            seen += 1
            if name not in ELSEWHERE and NEWER.get(name, (2, 11)) <= TORCH and not exists(name):
                missing[name] = file
    assert seen > 100
    assert not missing
