"""What the tests of the NPU's compiler share: graphs as AOTAutograd hands them over, and the comparison with eager."""

from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def npu():
    """``island(f, *inputs)``, ``traced(f, *inputs)``, ``check(f, *inputs)``; machines ``gemmini`` and ``tiny``."""
    import torch
    from torch._decomp import core_aten_decompositions
    from torch._functorch.aot_autograd import aot_function
    from torch.fx.experimental.proxy_tensor import make_fx

    from fxscope.targets.npu import machine as machines
    from fxscope.targets.npu.compile import compile_island
    from fxscope.targets.npu.device import NpuTarget
    from fxscope.targets.npu.executable import NpuExecutable

    gemmini = machines.load("gemmini-16x16")
    # Few lines, so that every loop runs more than once; on-chip memory, so that buffers spill.
    tiny = machines.with_values(
        gemmini,
        {"array.rows": 4, "array.cols": 4, "local.scratchpad": 4096, "local.accumulator": 8192, "chip.bytes": 2048},
    )

    def island(function, *inputs):
        """The functional ATen graph that AOTAutograd hands to a backend."""
        seen = []
        captured = aot_function(
            function, fw_compiler=lambda gm, _: seen.append(gm) or gm, decompositions=core_aten_decompositions()
        )
        with torch.no_grad():
            captured(*inputs)
        return seen[0]

    def traced(function, *inputs):
        """What a function with gradients inside becomes."""
        return make_fx(function, decomposition_table=core_aten_decompositions(), tracing_mode="fake")(*inputs)

    def check(function, *inputs, machine=gemmini, tolerance=1e-5, gm=None):
        """Supported, and right both ways."""
        gm = gm or island(function, *inputs)
        gm.graph.eliminate_dead_code()
        target = NpuTarget(machine)
        for node in gm.graph.nodes:
            if node.op == "call_function" and "getitem" not in str(node.target):
                assert target.supports(node) == (), node.format_node()
        compiled = compile_island(gm, machine)
        expected = function(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for mode in ("plan", "instructions"):
            results = NpuExecutable(compiled, gm, mode=mode)(*inputs)
            assert len(results) == len(expected)
            for result, wanted in zip(results, expected, strict=True):
                assert result.shape == wanted.shape
                assert result.dtype == wanted.dtype
                scale = max(1.0, float(wanted.float().abs().nan_to_num(0, 0, 0).max())) if wanted.numel() else 1.0
                torch.testing.assert_close(
                    result.float(),
                    wanted.float(),
                    rtol=0,
                    atol=tolerance * scale,
                    equal_nan=True,
                    msg=lambda m, k=mode: f"{k}: {m}",
                )
        return compiled

    return SimpleNamespace(
        island=island, traced=traced, check=check, gemmini=gemmini, tiny=tiny, load=machines.load,
        compile_island=compile_island, NpuExecutable=NpuExecutable,
    )  # fmt: skip
