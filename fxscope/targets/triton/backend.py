"""``torch.compile(f, backend="fxscope_triton")``."""

from __future__ import annotations

from fxscope.targets.backend import make_backend
from fxscope.targets.triton.target import TritonTarget

fxscope_triton = make_backend(TritonTarget(), decompositions="none")
