"""What a case is compared with: eager, Inductor, Inductor tuned, Liger-Kernel."""

from __future__ import annotations

from typing import Any

import torch
from gpu_cases import Case
from torch.fx import GraphModule


def eager(case: Case, gm: GraphModule, sets: list[list[Any]]) -> Any:
    def call(i: int) -> Any:
        with torch.no_grad():
            return case.f(*sets[i % len(sets)]) if not case.backward else gm(*sets[i % len(sets)])

    return call


def inductor(case: Case, gm: GraphModule, sets: list[list[Any]], **config: Any) -> Any:
    """torch.compile with its defaults: of the function, or of the same backward graph."""
    function = case.f if not case.backward else gm.forward
    compiled = torch.compile(function, dynamic=False, options=config or None)

    def call(i: int) -> Any:
        with torch.no_grad():
            return compiled(*sets[i % len(sets)])

    return call


def tuned(case: Case, gm: GraphModule, sets: list[list[Any]]) -> Any:
    """Inductor with coordinate descent and max-autotune for pointwise and reductions."""
    return inductor(case, gm, sets, coordinate_descent_tuning=True, max_autotune=True, max_autotune_pointwise=True)


def liger(case: Case, gm: GraphModule, sets: list[list[Any]]) -> Any:
    """Liger-Kernel's own kernels, called as its modules call them."""
    if not case.liger or case.dtype == torch.float16 or case.shift:
        return None
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.softmax import LigerSoftmaxFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    functions = {
        "swiglu": lambda g, u: LigerSiLUMulFunction.apply(g, u),
        "rmsnorm": lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6),
        "layernorm": lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5),
        "softmax": lambda x: LigerSoftmaxFunction.apply(x),
    }
    if case.liger == "softmax_bwd" or case.backward:
        name = "softmax" if case.liger == "softmax_bwd" else case.liger
        graphs = []
        for seed in range(2):
            made = case.make("cuda", seed)
            args = [x.detach().requires_grad_() for x in (made if case.backward else made[:1])]
            out = functions[name](*args)
            graphs.append((args, out, torch.randn_like(out)))

        def backward(i: int) -> Any:
            args, out, grad = graphs[i % len(graphs)]
            return torch.autograd.grad(out, args, grad, retain_graph=True)

        return backward

    def call(i: int) -> Any:
        with torch.no_grad():
            return functions[case.liger](*sets[i % len(sets)])

    return call


PEERS = {"eager": eager, "inductor": inductor, "tuned": tuned, "liger": liger}
