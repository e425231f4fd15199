"""What PyTorch's own folding would do to a module, compared with the module: right, not applied, refused, or silently wrong."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.errors import described
from fxscope.passes import numeric
from fxscope.passes.convolution import Convolution, read_convolution
from fxscope.passes.private import private
from fxscope.passes.split import boundary, extract

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

TOOLS = ("fx.optimization.fuse", "inductor freezing", "efficient_conv_bn_eval")
MOST = 16  # convolutions that are tried alone
LOOSE = 20.0  # upstream compilers may reorder: wrong is what lies this many tolerances off


class Upstream(msgspec.Struct, kw_only=True):
    """One tool on one module.

    Attributes:
        status: ``right``, ``wrong`` (silently other values or shapes), ``raised``, or ``not-applied``.
        max_rel: Largest difference relative to the output's scale; null where there is none to measure.
        nodes: Where it goes wrong, as far as can be told (see ``suspects``).
    """

    tool: str
    status: str
    max_abs: float | None = None
    max_rel: float | None = None
    nodes: list[str] = []
    text: str


def would_do(gm: GraphModule, inputs: Sequence[Any], tools: Sequence[str] = TOOLS) -> list[Upstream]:
    """Run each tool on a copy of the module and compare its results with the module's own.

    Args:
        gm: Any graph in evaluation; ``fuse`` reads module calls only, the other two what Dynamo makes of it.
        inputs: Probe inputs.
        tools: Names among TOOLS.
    """
    expected = numeric.outcome(gm, inputs).outputs
    runs: dict[str, Callable[[GraphModule, Sequence[Any]], Callable[..., Any] | None]] = {
        "fx.optimization.fuse": _fuse,
        "inductor freezing": _freezing,
        "efficient_conv_bn_eval": _efficient,
    }
    return [_one(tool, runs[tool], gm, inputs, expected) for tool in tools]


def _one(
    tool: str,
    make: Callable[..., Any],
    gm: GraphModule,
    inputs: Sequence[Any],
    expected: list[Any],
    *,
    blame: bool = True,
) -> Upstream:
    import torch

    try:
        with torch.no_grad():
            function = make(copy.deepcopy(gm).eval() if not gm.training else copy.deepcopy(gm), inputs)
            if function is None:
                return Upstream(tool=tool, status="not-applied", text="finds nothing that it could fold")
            given = [item.detach().clone() if isinstance(item, torch.Tensor) else item for item in inputs]
            got = list(torch.utils._pytree.tree_leaves(function(*given)))
    except Exception as error:  # noqa: BLE001 - that upstream raises is the finding
        return Upstream(tool=tool, status="raised", text=f"{described(error)}{_explain(tool, gm)}")
    loose = {dtype: LOOSE * tolerance for dtype, tolerance in numeric.TOLERANCES.items()}
    found = numeric.difference(got, expected, tolerances=loose)
    if found.within:
        return Upstream(
            tool=tool,
            status="right",
            max_abs=found.max_abs,
            max_rel=found.max_rel,
            text=f"right: max |Δ| {found.max_abs:.1e}, relative {found.max_rel:.1e}",
        )
    nodes = suspects(gm, make, inputs) if blame else []
    detail = found.text or f"max |Δ| {found.max_abs:.3g}, relative {found.max_rel:.2g}"
    return Upstream(
        tool=tool,
        status="wrong",
        max_abs=found.max_abs if not found.text else None,
        max_rel=found.max_rel if not found.text else None,
        nodes=nodes,
        text=f"SILENTLY WRONG: {detail}" + (f"; look at {', '.join(nodes)}" if nodes else ""),
    )


def _explain(tool: str, gm: GraphModule) -> str:
    """Why a tool cannot work on a graph, where it does not say so itself."""
    import torch

    double = any(item.dtype == torch.float64 for item in (*gm.parameters(), *gm.buffers()))
    if tool == "inductor freezing" and double:
        return "; freezing prepacks convolution weights, which has no float64 form: leave it off, fold and freeze here instead"
    return ""


def _fuse(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
    fuse = private("torch.fx.experimental.optimization.fuse", "fx.optimization.fuse")
    if not any(node.op == "call_module" for node in gm.graph.nodes):
        return None
    before = len(gm.graph.nodes)
    fused: Any = fuse(gm, no_trace=True)
    return fused if len(fused.graph.nodes) < before else None


def _freezing(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return _compiled(gm, freezing=True)


def _efficient(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return _compiled(gm, efficient_conv_bn_eval_fx_passes=True)


def _compiled(gm: GraphModule, **settings: Any) -> Callable[..., Any]:
    """Compiled by Inductor under settings that hold while it compiles, on its first call."""
    import torch

    config = private("torch._inductor.config", "Inductor's own folding")

    def call(*inputs: Any) -> Any:
        torch._dynamo.reset()
        with config.patch(**settings, force_disable_caches=True), torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*force_disable_caches"
            )  # we know: the settings above must count
            return torch.compile(gm, backend="inductor", dynamic=False)(*inputs)

    return call


def suspects(gm: GraphModule, tool: Callable[..., Any], inputs: Sequence[Any]) -> list[str]:
    """Which convolutions a tool gets wrong: each is cut out with what follows it and given to the tool alone.

    Where none is wrong alone, the fault lies in what they share: convolutions called more than once, or all of them.
    """
    import torch

    kept: dict[Node, Any] = {}

    class Keep(torch.fx.Interpreter):
        def run_node(self, node: Node) -> Any:
            kept[node] = super().run_node(node)
            return kept[node]

    convolutions = [node for node in gm.graph.nodes if isinstance(read_convolution(node), Convolution)]
    with torch.no_grad():
        Keep(gm).run(*inputs)
    wrong = []
    for node in convolutions[:MOST]:
        region = [node]
        while len(region) < 4 and len(region[-1].users) == 1:
            after = next(iter(region[-1].users))
            if after.op == "output":
                break
            region.append(after)
        alone = extract(gm, region)
        given = [kept[value] for value in boundary(region)[0]]
        if _one("", tool, alone, given, numeric.outcome(alone, given).outputs, blame=False).status == "wrong":
            wrong += [item.name for item in region[:2]]
    if wrong:
        return list(dict.fromkeys(wrong))
    targets = [node.target for node in convolutions if node.op == "call_module"]
    shared = [node.name for node in convolutions if node.op == "call_module" and targets.count(node.target) > 1]
    return shared or [node.name for node in convolutions]
