"""Quantised layers with zero points and scales per channel: on the integers, against torch's own quantised engine and f64."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
import torch.nn.functional as F

from tests.unit.npu.programs import t

OPS = torch.ops.quantized_decomposed


def integers(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def up(x, scale, zero):
    return OPS.dequantize_per_tensor(x, scale, zero, -128, 127, torch.int8)


def up_channels(w, scales, zeros, axis=0):
    return OPS.dequantize_per_channel(w, scales, zeros, axis, -128, 127, torch.int8)


def down(x, scale, zero):
    return OPS.quantize_per_tensor(x, scale, zero, -128, 127, torch.int8)


def products(compiled):
    return {i.args["dtype"] for i in compiled.program.instructions if i.op == "gemm"}


def scales_of(channels):
    """Powers of two: eager's f32 sums are exact with them, so that results can be compared bit by bit."""
    return 2.0 ** torch.randint(-6, -2, (channels,), generator=torch.Generator().manual_seed(channels)).float()


LAYERS = {
    "linear": (lambda x, w, b: F.linear(x, w, b), (7, 20), (12, 20)),
    "linear-without-bias": (lambda x, w, b: x @ w.t() + b, (7, 20), (12, 20)),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2), (2, 5, 7, 8), (12, 5, 3, 3)),
    "conv2d-dilated": (lambda x, w, b: F.conv2d(x, w, b, padding=(2, 1), dilation=2), (1, 4, 7, 8), (12, 4, 3, 2)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=2), (2, 5, 9), (12, 5, 3)),
}


@pytest.mark.parametrize("zeros", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("name", LAYERS)
def test_zero_points_and_scales_per_channel(npu, name, zeros):
    layer, x_shape, w_shape = LAYERS[name]
    offsets = torch.zeros(12, dtype=torch.int64) if zeros == "symmetric" else torch.arange(-5, 7)

    def quantised(x, w, scales, offsets, bias):
        return down(layer(up(x, 0.5, -3), up_channels(w, scales, offsets), bias), 32.0, 9)

    inputs = (
        integers(-100, 100, *x_shape), integers(-20, 20, *w_shape, seed=1), scales_of(12), offsets, t(12).round()
    )  # fmt: skip
    gm = npu.island(quantised, *inputs)
    compiled = npu.check(quantised, *inputs, tolerance=0, gm=gm)
    assert products(compiled) == {"i8"}
    assert len(npu.NpuExecutable(compiled, gm)(*inputs)[0].unique()) > 5  # neither saturated nor all zero
    if zeros == "asymmetric":
        npu.check(quantised, *inputs, tolerance=0, gm=gm, machine=npu.tiny)


def test_one_scale_and_zero_point_for_each_operand(npu):
    def quantised(x, w):
        return down(F.conv2d(up(x, 0.5, 17), up(w, 0.125, -4), padding=1), 64.0, -20)

    compiled = npu.check(quantised, integers(-100, 100, 2, 6, 5, 7), integers(-90, 90, 8, 6, 3, 3), tolerance=0)
    assert products(compiled) == {"i8"}


def test_batches_of_products(npu):
    def scores(a, b):
        return torch.bmm(up(a, 0.5, 3), up(b, 0.25, -7))

    compiled = npu.check(scores, integers(-50, 50, 3, 9, 16), integers(-50, 50, 3, 16, 5), tolerance=0)
    assert products(compiled) == {"i8"}


def test_kernels_that_the_integer_path_leaves_out_are_right_too(npu):
    """Grouped, depthwise, transposed and deep kernels with zero points are dequantised first."""
    cases = [
        (lambda x, w, s: F.conv2d(up(x, 0.5, 3), up_channels(w, s, None), groups=2), (1, 4, 5, 5), (6, 2, 3, 3)),
        (lambda x, w, s: F.conv2d(up(x, 0.5, 3), up_channels(w, s, None), groups=6), (1, 6, 5, 5), (6, 1, 3, 3)),
        (lambda x, w, s: F.conv_transpose2d(up(x, 0.5, 3), up_channels(w, s, None, 1), stride=2), (1, 4, 3, 3), (4, 6, 2, 2)),
        (lambda x, w, s: F.conv3d(up(x, 0.5, 3), up_channels(w, s, None), padding=1), (1, 3, 4, 4, 4), (6, 3, 3, 3, 3)),
    ]  # fmt: skip
    for function, x, w in cases:
        npu.check(function, integers(-50, 50, *x), integers(-50, 50, *w, seed=1), scales_of(6))


def test_quantize_per_channel_rounds_half_to_even(npu):
    x = torch.tensor([[0.5, 1.5, 2.5, -300.0], [1.0, 3.0, -1.0, 300.0]])
    scales, zeros = torch.tensor([1.0, 2.0]), torch.tensor([1, -2])
    npu.check(
        lambda x, s, z: OPS.quantize_per_channel(x, s, z, 0, -128, 127, torch.int8), x, scales, zeros, tolerance=0
    )
    npu.check(
        lambda x, s, z: up_channels(OPS.quantize_per_channel(x, s, z, 1, -128, 127, torch.int8), s, z, 1),
        t(5, 2), scales, zeros, tolerance=0,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["linear", "conv2d"])
def test_agrees_with_the_quantised_engine_of_torch(npu, kind):
    """QNNPACK multiplies u8 activations; u8 with zero point z is i8 with z - 128. Its rounding may differ in the last place."""
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("this torch has no QNNPACK")
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"
    try:
        x_shape, w_shape = {"linear": ((16, 64), (24, 64)), "conv2d": ((2, 8, 9, 9), (24, 8, 3, 3))}[kind]
        x, w, bias = t(*x_shape), t(*w_shape, seed=1), t(24, seed=2)
        scales = w.abs().flatten(1).amax(1) / 127
        zeros = torch.zeros(24, dtype=torch.int64)
        qx = torch.quantize_per_tensor(x, 0.031, 131, torch.quint8)
        qw = torch.quantize_per_channel(w, scales.double(), zeros, 0, torch.qint8)
        if kind == "linear":
            packed = torch.ops.quantized.linear_prepack(qw, bias)
            reference = torch.ops.quantized.linear(qx, packed, 0.37, 120).int_repr()
        else:
            packed = torch.ops.quantized.conv2d_prepack(qw, bias, [1, 1], [1, 1], [1, 1], 1)
            reference = torch.ops.quantized.conv2d(qx, packed, 0.37, 120).int_repr()
    finally:
        torch.backends.quantized.engine = before

    def ours(x, w, s, z, b):
        layer = F.linear if kind == "linear" else lambda x, w, b: F.conv2d(x, w, b, padding=1)
        return down(layer(up(x, 0.031, 3), up_channels(w, s, z), b), 0.37, -8)

    inputs = ((qx.int_repr().int() - 128).to(torch.int8), qw.int_repr(), scales, zeros, bias)
    gm = npu.island(ours, *inputs)
    compiled = npu.compile_island(gm, npu.gemmini)
    assert products(compiled) == {"i8"}
    result = npu.NpuExecutable(compiled, gm, mode="instructions")(*inputs)[0]
    difference = (result.int() + 128 - reference.int()).abs()
    assert difference.max() <= 1
    assert (difference == 0).float().mean() > 0.99
    assert len(result.unique()) > 50
