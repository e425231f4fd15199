"""The graph that a compiler gets for a case, its inputs, its result in float64, and the error of a result."""

from __future__ import annotations

import operator
from typing import Any

import torch
from gpu_cases import Case
from torch.fx import GraphModule, Node

VIEWS = {torch.ops.aten.view.default, torch.ops.aten.permute.default, torch.ops.aten.t.default, operator.getitem}


def graph_of(case: Case, inputs: list[torch.Tensor]) -> tuple[GraphModule, list[Any]]:
    """The functional ATen graph that a compiler gets, with fake inputs: the forward, or the backward that AOTAutograd gives."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    found: dict[str, tuple[GraphModule, list[Any]]] = {}

    def keep(kind: str) -> Any:
        def compiler(gm: GraphModule, example: Any) -> Any:
            found[kind] = (gm, list(example))
            return make_boxed_func(gm)

        return compiler

    def cut(*args: Any, **kwargs: Any) -> Any:
        forward, backward = min_cut_rematerialization_partition(*args, **kwargs)
        found["backward"] = (backward, [n.meta["val"] for n in backward.graph.find_nodes(op="placeholder")])
        return forward, backward

    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            out = case.f(*args)
            return out if isinstance(out, tuple) else (out,)

    if case.backward:
        inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    with torch.set_grad_enabled(case.backward):
        aot_module_simplified(
            Module(),
            inputs,
            fw_compiler=keep("forward"),
            inference_compiler=keep("forward"),
            partition_fn=cut,
            decompositions={},
        )
    return found["backward" if case.backward else "forward"]


def inputs_of(case: Case, gm: GraphModule, example: list[Any], seed: int) -> list[Any]:
    """Random inputs of the case's graph; what a forward saved per row fits its input."""
    if not case.backward:
        return case.make("cuda", seed)
    generator = torch.Generator(device="cuda").manual_seed(seed + 100)
    primals = dict(zip([f"primals_{i + 1}" for i in range(len(case.inputs))], case.make("cuda", seed), strict=True))
    with torch.no_grad():
        x = primals["primals_1"].double()
        mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    out = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), example, strict=True):
        if node.name in primals:
            out.append(primals[node.name])
        elif tuple(value.shape) == (case.rows, 1):  # what the forward saved per row
            if case.f.__name__ == "layernorm":
                pick = mean if "1" in node.name else torch.rsqrt(square - mean.square() + 1e-5)
            else:
                pick = torch.rsqrt(square + 1e-6) if "rsqrt" in node.name else square
            out.append(pick.to(value.dtype))
        else:
            out.append(
                torch.randn(value.shape, generator=generator, device="cuda", dtype=torch.float32).to(value.dtype)
            )
    return out


def reference(gm: GraphModule, inputs: list[Any]) -> list[Any]:
    """The graph in float64: every cast to a floating dtype is dropped."""

    class Exact(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            kwargs = {
                k: (torch.float64 if k == "dtype" and isinstance(v, torch.dtype) and v.is_floating_point else v)
                for k, v in kwargs.items()
            }
            args = tuple(torch.float64 if isinstance(a, torch.dtype) and a.is_floating_point else a for a in args)
            return super().call_function(target, args, kwargs)

    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        return list(Exact(gm, garbage_collect_values=True).run(*wide))


def error_of(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative norm error, by rows so that the float64 copy stays small; NaN where anything is not finite."""
    if not got.is_floating_point():
        return float((got != want).float().mean())
    top, bottom = (
        torch.zeros((), dtype=torch.float64, device=got.device),
        torch.zeros((), dtype=torch.float64, device=got.device),
    )
    flat, exact = got.reshape(-1), want.reshape(-1)
    step = 2**26
    for i in range(0, flat.numel(), step):
        piece = exact[i : i + step].double()
        top += (flat[i : i + step].double() - piece).square().sum()
        bottom += piece.square().sum()
    return float((top / bottom).sqrt())


def exact_outputs(gm: GraphModule, inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The graph's results in float64, in order and by the names that a plan gives their memories."""
    exact = reference(gm, inputs)
    names: dict[str, Any] = {}
    for node, value in zip(gm.graph.output_node().args[0], exact, strict=True):
        if isinstance(node, Node):
            base: Any = node
            while base.target in VIEWS:
                base = base.args[0]
            index = node.args[1] if node.target is operator.getitem else 0
            names[base.name if not index else f"{base.name}_{index}"] = value
    return exact, names
