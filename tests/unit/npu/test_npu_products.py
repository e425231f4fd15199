"""Products in floating point and in integers against eager, through the plan and through proven instructions."""

import torch
import torch.nn.functional as F

from tests.unit.npu.programs import PRODUCTS, t


def test_int8_product_is_exact_and_requantised(npu):
    a = torch.randint(-128, 128, (19, 70), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    b = torch.randint(-128, 128, (70, 24), dtype=torch.int8, generator=torch.Generator().manual_seed(2))
    npu.check(torch._int_mm, a, b, tolerance=0)
    npu.check(torch._int_mm, a, b, machine=npu.tiny, tolerance=0)

    def requantised(x, w):
        return torch.clamp(torch.round(torch._int_mm(x, w).float() * 0.0021) + 3, -128, 127).to(torch.int8)

    npu.check(requantised, a, b, tolerance=0)


def test_quantise_rounds_half_to_even_and_saturates(npu):
    import torch.ao.quantization.fx._decomposed

    q, dq = torch.ops.quantized_decomposed.quantize_per_tensor, torch.ops.quantized_decomposed.dequantize_per_tensor
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0, 0.0])
    npu.check(lambda v: q(v, 1.0, 0, -128, 127, torch.int8), x, tolerance=0)
    npu.check(lambda v: q(v, 0.1, 5, -128, 127, torch.int8), t(9, 20), tolerance=0)
    npu.check(lambda v: dq(v, 0.1, 5, -128, 127, torch.int8), torch.arange(-60, 60, dtype=torch.int8))


def integers(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def test_quantised_layers_run_on_integers_and_requantise(npu):
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
    compiled = npu.check(network, *values, tolerance=0)
    products = [i.args["dtype"] for i in compiled.program.instructions if i.op == "gemm"]
    assert set(products) == {"i8"}
    assert {i.args["dtype"] for i in compiled.program.instructions if i.op == "st"} == {"i8"}
    assert npu.check(network, *values, machine=npu.tiny, tolerance=0).program.instructions


def test_unfused_gives_the_same(npu):
    function, *inputs = PRODUCTS["linear-relu-residual"]
    gm = npu.island(function, *inputs)
    fused, plain = npu.compile_island(gm, npu.gemmini), npu.compile_island(gm, npu.gemmini, fuse=False)
    assert len(plain.groups) > len(fused.groups)
    for a, b in zip(
        npu.NpuExecutable(fused, gm)(*inputs), npu.NpuExecutable(plain, gm, mode="instructions")(*inputs), strict=True
    ):
        torch.testing.assert_close(a, b)
