"""Every lowering against eager, through the plan and through proven, executed instructions, on several machines."""

import pytest
import torch
import torch.nn.functional as F
from torch._decomp import core_aten_decompositions
from torch._functorch.aot_autograd import aot_function
from torch.fx.experimental.proxy_tensor import make_fx

from fxscope.targets.npu import machine as machines
from fxscope.targets.npu.compile import compile_island
from fxscope.targets.npu.device import TABLE, NpuTarget
from fxscope.targets.npu.executable import NpuExecutable
from fxscope.targets.npu.lowering import LOWERINGS, Island
from fxscope.targets.op_table import OpTable

GEMMINI = machines.load("gemmini-16x16")
# Few lines, so that every loop runs more than once; on-chip memory, so that buffers spill.
TINY = machines.with_values(
    GEMMINI,
    {"array.rows": 4, "array.cols": 4, "local.scratchpad": 4096, "local.accumulator": 8192, "chip.bytes": 2048},
)


def t(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def island(function, *inputs):
    """The functional ATen graph that AOTAutograd hands to a backend."""
    seen = []
    captured = aot_function(
        function, fw_compiler=lambda gm, _: seen.append(gm) or gm, decompositions=core_aten_decompositions()
    )
    with torch.no_grad():
        captured(*inputs)
    return seen[0]


def tuple_of(result):
    return result if isinstance(result, tuple) else (result,)


def check(function, *inputs, machine=GEMMINI, tolerance=1e-5, gm=None):
    """Supported, and right both ways."""
    gm = gm or island(function, *inputs)
    gm.graph.eliminate_dead_code()
    target = NpuTarget(machine)
    for node in gm.graph.nodes:
        if node.op == "call_function" and "getitem" not in str(node.target):
            assert target.supports(node) == (), node.format_node()
    compiled = compile_island(gm, machine)
    expected = tuple_of(function(*inputs))
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


def image(*shape, **kw):
    return t(*shape, **kw)


MATRIX = {
    "mm": (lambda a, b: a @ b, t(33, 70), t(70, 21)),
    "mm-transposed-b": (lambda a, b: a @ b.t(), t(9, 40), t(50, 40)),
    "mm-transposed-a": (lambda a, b: a.t() @ b, t(40, 9), t(40, 17)),
    "mm-one-row": (lambda a, b: a @ b, t(1, 64), t(64, 5)),
    "mm-one-column": (lambda a, b: a @ b, t(19, 64), t(64, 1)),
    "mm-k-1": (lambda a, b: a @ b, t(8, 1), t(1, 8)),
    "bmm": (torch.bmm, t(3, 17, 20), t(3, 20, 9)),
    "bmm-broadcast": (lambda a, b: a @ b, t(2, 3, 8, 20), t(20, 9)),
    "addmm": (lambda b, x, w: torch.addmm(b, x, w), t(12), t(7, 30), t(30, 12)),
    "addmm-alpha-beta": (lambda b, x, w: torch.addmm(b, x, w, alpha=0.5, beta=2), t(12), t(7, 30), t(30, 12)),
    "baddbmm": (lambda b, x, w: torch.baddbmm(b, x, w), t(2, 7, 5), t(2, 7, 6), t(2, 6, 5)),
    "mv": (torch.mv, t(9, 30), t(30)),
    "linear-relu-residual": (lambda x, w, b: torch.relu(F.linear(x, w, b)) + x, t(5, 24), t(24, 24), t(24)),
    "mlp-3d": (lambda x, w, v: F.gelu(x @ w) @ v, t(2, 9, 16), t(16, 40), t(40, 16, seed=3)),
}
CONV = {
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), image(2, 5, 9, 11), t(7, 5, 3, 3), t(7)),
    "conv2d-stride-dilation": (lambda x, w: F.conv2d(x, w, stride=2, padding=2, dilation=2), image(1, 4, 13, 12), t(6, 4, 3, 3)),
    "conv2d-1x1": (lambda x, w: F.conv2d(x, w), image(2, 8, 6, 5), t(3, 8, 1, 1)),
    "conv2d-1x1-stride": (lambda x, w: F.conv2d(x, w, stride=2), image(1, 8, 7, 9), t(3, 8, 1, 1)),
    "conv2d-groups": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), image(1, 6, 7, 7), t(4, 3, 3, 3)),
    "conv2d-depthwise": (lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2, groups=20), image(2, 20, 9, 9), t(20, 1, 3, 3), t(20)),
    "conv2d-depthwise-multiplier": (lambda x, w: F.conv2d(x, w, groups=3), image(1, 3, 6, 6), t(6, 1, 3, 3)),
    "conv2d-asymmetric": (lambda x, w: F.conv2d(x, w, padding=(2, 0), stride=(1, 3)), image(1, 2, 5, 10), t(3, 2, 5, 1)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=2, stride=2), t(2, 4, 15), t(6, 4, 5), t(6)),
    "conv-transpose": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1), image(1, 4, 5, 6), t(4, 3, 3, 3)),
    "conv-transpose-groups": (lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2, dilation=2), image(2, 4, 4, 4), t(4, 2, 2, 3)),
    "conv-conv": (lambda x, w, v: F.conv2d(torch.relu(F.conv2d(x, w, padding=1)), v, padding=1), image(1, 3, 8, 8), t(6, 3, 3, 3), t(4, 6, 3, 3)),
    "conv-bn-relu": (
        lambda x, w, m, v, g, b: torch.relu(F.batch_norm(F.conv2d(x, w), m, v, g, b)),
        image(2, 3, 8, 8), t(6, 3, 3, 3), t(6), t(6).abs() + 0.5, t(6, seed=1), t(6, seed=2),
    ),
    "residual": (lambda x, w: torch.relu(F.conv2d(x, w, padding=1) + x), image(1, 4, 6, 6), t(4, 4, 3, 3)),
    "max-pool": (lambda x: F.max_pool2d(x, 3, 2, 1), image(2, 5, 9, 8)),
    "max-pool-ceil": (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), image(1, 5, 7, 7)),
    "avg-pool": (lambda x: F.avg_pool2d(x, 2), image(2, 20, 6, 6)),
    "avg-pool-pad": (lambda x: F.avg_pool2d(x, 3, 1, 1), image(1, 3, 6, 6)),
    "adaptive-pool": (lambda x: F.adaptive_avg_pool2d(x, 2), image(1, 5, 6, 8)),
    "global-pool": (lambda x: F.adaptive_avg_pool2d(x, 1), image(2, 9, 5, 7)),
    "patches": (lambda x, w: F.conv2d(x, w, stride=4).flatten(2).transpose(1, 2), image(2, 3, 12, 8), t(10, 3, 4, 4)),
}  # fmt: skip
VECTOR = {
    "chain": (lambda x: torch.sigmoid(x * 2 + 1) - 0.5, t(7, 33)),
    "broadcast-row": (lambda x, y: x + y, t(5, 40), t(40)),
    "broadcast-col": (lambda x, y: x * y, t(5, 40), t(5, 1)),
    "broadcast-both": (lambda x, y: x - y, t(1, 40), t(5, 1)),
    "broadcast-middle": (lambda x, y: x + y, t(3, 4, 5), t(3, 1, 5)),
    "scalar-tensor": (lambda x, y: x / y, t(6, 6), t(1).abs() + 1),
    "transposed-operand": (lambda x, y: x + y.t(), t(9, 6), t(6, 9)),
    "channels-last": (
        lambda x, s: torch.relu(x) * s,
        image(2, 5, 4, 3).to(memory_format=torch.channels_last),
        t(5, 1, 1),
    ),
    "zero-d": (lambda x: x.sum() * 2, t(5, 6)),
    "one-d": (lambda x: torch.tanh(x), t(1037)),
    "comparison": (lambda x, y: torch.where(x > y, x, y * 0.1), t(9, 20), t(9, 20, seed=4)),
    "where-constants": (lambda x: torch.where(x > 0, 1.0, -1.0), t(9, 20)),
    "where-row-mask": (lambda x, m: x.masked_fill(m, float("-inf")), t(4, 9, 9), t(9, 9) > 0),
    "where-nan": (lambda x: torch.where(x > 0, x, float("nan")), t(6, 6)),
    "bool-out": (lambda x: x > 0, t(5, 9)),
    "clamp": (lambda x: torch.clamp(x, -0.5, 0.5), t(30)),
    "relu6": (lambda x: F.relu6(x), t(30)),
    "leaky": (lambda x: F.leaky_relu(x), t(30)),
    "pow": (lambda x: x**3 + x**2, t(30)),
    "rsub": (lambda x: 1 - x, t(30)),
    "silu": (lambda x: F.silu(x), t(30)),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), t(30)),
    "alpha": (lambda x, y: torch.add(x, y, alpha=2) - torch.sub(x, y, alpha=3), t(12), t(12, seed=2)),
    "many-values": (lambda *x: sum(torch.exp(-v) * v.sin() for v in x), *(t(8, 16, seed=s) for s in range(12))),
    "two-outputs": (lambda x: (x + 1, (x + 1) * 2), t(5, 5)),
    "input-as-output": (lambda x: (x, x * 1.5), t(5, 5)),
    "same-output-twice": (lambda x: (lambda y: (y, y))(x * 1.5), t(5, 5)),
}
ROWS = {
    "softmax": (lambda x: F.softmax(x, -1), t(6, 50)),
    "softmax-first-dim": (lambda x: F.softmax(x, 0), t(6, 50)),
    "softmax-large": (lambda x: F.softmax(x * 100, -1), t(3, 9)),
    "softmax-wide": (lambda x: F.softmax(x, -1), t(2, 3000)),
    "log-softmax": (lambda x: F.log_softmax(x, -1), t(6, 50)),
    "layer-norm": (lambda x, w, b: F.layer_norm(x, (40,), w, b), t(3, 7, 40), t(40), t(40, seed=2)),
    "layer-norm-2d": (lambda x: F.layer_norm(x, (6, 8)), t(5, 6, 8)),
    "layer-norm-residual": (lambda x, y, w: F.layer_norm(x + y, (40,), w) * 2, t(7, 40), t(7, 40, seed=5), t(40)),
    "rms-norm": (lambda x, w: F.rms_norm(x, (40,), w), t(7, 40), t(40)),
    "var-mean": (lambda x: torch.var_mean(x, -1), t(5, 30)),
    "var-unbiased-keepdim": (lambda x: x.var(-1, keepdim=True), t(5, 30)),
    "sum-last": (lambda x: x.sum(-1), t(5, 30)),
    "sum-first": (lambda x: x.sum(0), t(37, 30)),
    "sum-middle": (lambda x: x.sum(1), t(5, 7, 9)),
    "sum-all": (lambda x: x.sum(), t(50, 70)),
    "sum-two-dims-keepdim": (lambda x: x.sum((0, 2), keepdim=True), t(5, 7, 9)),
    "mean-nchw": (lambda x: x.mean((2, 3)), t(2, 5, 6, 7)),
    "amax-amin": (lambda x: x.amax(1) - x.amin(1), t(5, 70)),
    "normalise-columns": (lambda x: x / x.abs().sum(0, keepdim=True), t(20, 30)),
    "attention": (
        lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v, t(2, 3, 10, 8), t(2, 3, 10, 8, seed=1), t(2, 3, 10, 8, seed=2)
    ),
    "scaled-dot-product": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), t(1, 2, 9, 8), t(1, 2, 9, 8, seed=1), t(1, 2, 9, 8, seed=2)),
}  # fmt: skip
SHAPES = {
    "cat": (lambda x, y: torch.cat([x * 2, y, x], 1), t(4, 5, 6), t(4, 3, 6)),
    "cat-channels": (
        lambda x, w: torch.cat([F.conv2d(x, w), x[:, :, 1:-1, 1:-1]], 1),
        image(1, 3, 6, 6),
        t(5, 3, 3, 3),
    ),
    "slice-step": (lambda x: x[1:9:3] * 2, t(10, 6)),
    "slice-negative": (lambda x: x[:, -3:-1] + 1, t(4, 9)),
    "select": (lambda x: x[:, 2] + 1, t(4, 9, 3)),
    "permute-add": (lambda x, y: x.permute(2, 0, 1) + y, t(4, 5, 6), t(6, 4, 5)),
    "transpose-copy": (lambda x: x.transpose(0, 1).contiguous().view(-1) + 1, t(30, 20)),
    "view-of-result": (lambda x: (x * 2).view(6, 20).sum(1), t(4, 5, 6)),
    "view-transposed-result": (lambda x: (x * 2).transpose(1, 2).reshape(4, 30) + 1, t(4, 5, 6)),
    "expand": (lambda x: x.expand(4, 5, 6) * 1.5, t(4, 1, 6)),
    "squeeze": (lambda x: (x + 1).squeeze(1).unsqueeze(0), t(4, 1, 6)),
    "split": (lambda x: [p * 2 for p in x.split(4, 1)][2] + 1, t(3, 10)),
    "unbind": (lambda x: x.unbind(0)[1] + x.unbind(0)[0], t(2, 3, 4)),
    "pad": (lambda x: F.pad(x * 2, (1, 2, 0, 3), value=7.0), t(4, 5)),
    "pad-cut": (lambda x: F.pad(x, (-1, 2)), t(4, 5)),
    "constants": (lambda x: x + torch.ones_like(x) * 3 - torch.full_like(x, 0.5), t(4, 5)),
    "heads": (
        lambda x: (x.view(2, 6, 3, 4).transpose(1, 2) @ x.view(2, 6, 3, 4).permute(0, 2, 3, 1)).sum(-1),
        t(2, 6, 12),
    ),
}
ALL = {**MATRIX, **CONV, **VECTOR, **ROWS, **SHAPES}


@pytest.mark.parametrize("name", ALL)
def test_against_eager(name):
    function, *inputs = ALL[name]
    check(function, *inputs, machine=GEMMINI)


# On few lines every loop runs more than once; one case of each kind of loop is enough.
SMALL = [
    "mm",
    "mm-transposed-a",
    "bmm",
    "addmm-alpha-beta",
    "mlp-3d",
    "conv2d",
    "conv2d-groups",
    "conv2d-depthwise",
    "conv-transpose",
    "conv-bn-relu",
    "max-pool",
    "avg-pool",
    "global-pool",
    "broadcast-both",
    "channels-last",
    "where-row-mask",
    "many-values",
    "softmax",
    "layer-norm-residual",
    "sum-first",
    "sum-all",
    "sum-two-dims-keepdim",
    "attention",
    "cat-channels",
    "permute-add",
    "transpose-copy",
    "pad",
    "heads",
]


@pytest.mark.parametrize("name", SMALL)
def test_against_eager_on_a_tiny_machine(name):
    function, *inputs = ALL[name]
    check(function, *inputs, machine=TINY)


@pytest.mark.parametrize("preset", ["ethos-u65-512", "tpu-v1-256x256"])
@pytest.mark.parametrize(
    "name", ["mlp-3d", "conv-bn-relu", "attention", "max-pool", "conv2d-depthwise", "transpose-copy"]
)
def test_against_eager_on_other_presets(name, preset):
    function, *inputs = ALL[name]
    check(function, *inputs, machine=machines.load(preset))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", ["mm", "conv-bn-relu", "layer-norm", "attention", "mlp-3d", "max-pool", "cat", "chain"]
)
def test_narrow_types(name, dtype):
    function, *inputs = ALL[name]
    check(function, *(x.to(dtype) for x in inputs), tolerance=0.03 if dtype == torch.bfloat16 else 0.004)


def test_casts():
    check(
        lambda x: (x.to(torch.bfloat16), x.to(torch.float16), x.to(torch.int32), x.to(torch.int8), x.bool()),
        t(5, 40) * 9,
    )
    check(lambda x: (x.float() * 0.5, x.to(torch.bool)), torch.arange(-60, 60, dtype=torch.int8).view(6, 20))
    check(lambda x: x.float() + 0.25, torch.arange(-60, 60, dtype=torch.int32).view(6, 20))
    check(lambda x: x.float() + 1, t(5, 9) > 0)


def test_int8_product_is_exact_and_requantised():
    a = torch.randint(-128, 128, (19, 70), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    b = torch.randint(-128, 128, (70, 24), dtype=torch.int8, generator=torch.Generator().manual_seed(2))
    check(torch._int_mm, a, b, tolerance=0)
    check(torch._int_mm, a, b, machine=TINY, tolerance=0)

    def requantised(x, w):
        return torch.clamp(torch.round(torch._int_mm(x, w).float() * 0.0021) + 3, -128, 127).to(torch.int8)

    check(requantised, a, b, tolerance=0)


def test_quantise_rounds_half_to_even_and_saturates():
    import torch.ao.quantization.fx._decomposed

    q, dq = torch.ops.quantized_decomposed.quantize_per_tensor, torch.ops.quantized_decomposed.dequantize_per_tensor
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0, 0.0])
    check(lambda v: q(v, 1.0, 0, -128, 127, torch.int8), x, tolerance=0)
    check(lambda v: q(v, 0.1, 5, -128, 127, torch.int8), t(9, 20), tolerance=0)
    check(lambda v: dq(v, 0.1, 5, -128, 127, torch.int8), torch.arange(-60, 60, dtype=torch.int8))


def integers(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def test_quantised_layers_run_on_integers_and_requantise():
    """dequantize, product, quantize become an i8 product with i32 sums, one scale and a rounding store."""
    import torch.ao.quantization.fx._decomposed

    q, dq = torch.ops.quantized_decomposed.quantize_per_tensor, torch.ops.quantized_decomposed.dequantize_per_tensor

    def up(v, scale):
        return dq(v, scale, 0, -128, 127, torch.int8)

    def down(v, scale):
        return q(v, scale, 0, -128, 127, torch.int8)

    # Scales are powers of two, so that eager's f32 sums are exact too and every rounding can be compared.
    def network(x, w1, b1, w2, w3, b3):
        x = torch.relu(F.conv2d(up(x, 0.5), up(w1, 0.25), b1, padding=1))
        x = F.conv2d(up(down(x, 64.0), 64.0), up(w2, 0.25))
        x = up(down(x, 128.0).flatten(1), 128.0)
        return down(torch.addmm(b3, x, up(w3, 0.5).t()), 4096.0)

    values = [
        integers(-128, 128, 2, 8, 6, 6), integers(-8, 8, 16, 8, 3, 3, seed=1), t(16).round(),
        integers(-128, 128, 4, 16, 1, 1, seed=2), integers(-128, 128, 10, 144, seed=3), t(10).round(),
    ]  # fmt: skip
    compiled = check(network, *values, tolerance=0)
    products = [i.args["dtype"] for i in compiled.program.instructions if i.op == "gemm"]
    assert set(products) == {"i8"}
    assert {i.args["dtype"] for i in compiled.program.instructions if i.op == "st"} == {"i8"}
    assert check(network, *values, machine=TINY, tolerance=0).program.instructions


def traced(function, *inputs):
    return make_fx(function, decomposition_table=core_aten_decompositions(), tracing_mode="fake")(*inputs)


def test_backward_graphs():
    x, w, g = t(6, 12), t(12, 9), t(6, 9)

    def backward(x, w, g):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return torch.autograd.grad(F.layer_norm(F.gelu(x @ w), (9,)), (x, w), g)

    check(backward, x, w, g, tolerance=2e-5, gm=traced(backward, x, w, g))

    def softmax(x, g):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.log_softmax(x, -1) + F.softmax(x, -1), x, g)

    both = (t(5, 9), t(5, 9, seed=3))
    check(softmax, *both, gm=traced(softmax, *both))


def test_unfused_gives_the_same():
    function, *inputs = ALL["linear-relu-residual"]
    gm = island(function, *inputs)
    fused, plain = compile_island(gm, GEMMINI), compile_island(gm, GEMMINI, fuse=False)
    assert len(plain.groups) > len(fused.groups)
    for a, b in zip(
        NpuExecutable(fused, gm)(*inputs), NpuExecutable(plain, gm, mode="instructions")(*inputs), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_fusion_keeps_a_chain_on_chip():
    compiled = check(*ALL["conv-bn-relu"])
    assert [group.kind for group in compiled.groups] == ["vector", "matrix"]
    compiled = check(*ALL["layer-norm-residual"])
    assert [group.kind for group in compiled.groups] == ["vector"]
    compiled = check(*ALL["residual"])
    assert [group.kind for group in compiled.groups] == ["matrix"]


def test_bound_of_a_convolution_counts_image_and_weights_once():
    compiled = check(*ALL["conv2d"])
    note = compiled.groups[-1].note
    pixels, weights, results = 2 * 5 * 9 * 11, 7 * 5 * 9, 2 * 7 * 9 * 11
    assert note["refetch"] == 9
    assert note["bound"] == 4 * (pixels + weights + results)
    assert check(*ALL["conv2d-1x1"]).groups[-1].note["refetch"] == 1


def test_table_and_lowerings_name_the_same_ops():
    Island(island(lambda x: x + 1, t(3)), GEMMINI)  # registers them
    table = {op for row in OpTable.load(TABLE).rows for op in row.ops}
    assert table == set(LOWERINGS)
