"""``torch.compile(model, backend="fxscope_npu")``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxscope.errors import UsageError

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.targets.backend import Lowered

OPTIONS = ("machine", "softmax", "mode", "tried", "sizes", "report", "benefit", "on_report")
SIZES = 8


def fxscope_npu(gm: GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Run what the NPU supports on the NPU, the rest eagerly, in inference and training.

    Options (``torch.compile(..., options={...})``):
        machine: Preset or TOML file (default: FXSCOPE_NPU, else gemmini-16x16).
        softmax: ``decompose`` or ``host``.
        mode: ``plan`` or ``instructions``.
        tried: Tile factors per shape that the event model compares (3).
        sizes: How many sets of sizes of a graph with symbolic sizes get a program (8); further ones run eagerly.
        report: True prints coverage, islands and modelled time of each graph on standard error.
        benefit: True drops islands whose modelled time on the NPU, transfers included, exceeds what the host is assumed to take.
        on_report: Called with each ``Lowered`` graph.

    Raises:
        UsageError: An unknown option.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from fxscope.passes.cost import benefit_of
    from fxscope.targets.backend import make_backend
    from fxscope.targets.npu.device import NpuTarget
    from fxscope.targets.npu.encoder_layer import decompositions

    options = dict(options or {})
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"fxscope_npu: no option {unknown[0]!r}; options: {', '.join(OPTIONS)}")
    target = NpuTarget(
        options.get("machine"),
        softmax=options.get("softmax", "decompose"),
        mode=options.get("mode", "plan"),
        tried=options.get("tried"),
    )

    def report(made: Lowered) -> None:
        if options.get("report"):
            from fxscope.targets.npu.report import lowered_text

            print(lowered_text(made), file=sys.stderr)
        if "on_report" in options:
            options["on_report"](made)

    compile_with = make_backend(
        target,
        decompositions=decompositions(),
        benefit=benefit_of(target) if options.get("benefit") else None,
        specialise=options.get("sizes", SIZES),
        on_report=report,
    )
    # Attention as products and a softmax, in the backward graph too: the core table takes the fused op apart in the
    # forward only, and the fused backward then reads another value than the logarithm of the sums that it needs.
    with sdpa_kernel(SDPBackend.MATH):
        return compile_with(gm, inputs)
