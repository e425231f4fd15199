"""Models of many kinds that nobody wrote for the NPU, through torch.compile: right in inference and training, in any type."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Mobile(nn.Module):
    """An inverted residual with depthwise convolution and squeeze-and-excitation, as in MobileNetV3."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.expand = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(24, 24, 3, 1, 1, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 6, 1), nn.SiLU(), nn.Conv2d(6, 24, 1))
        self.project = nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.depth(self.expand(x))
        x = x + self.project(y * F.hardsigmoid(self.gate(y)))
        return self.head(x.mean((2, 3)))


class UNet(nn.Module):
    """Down, up by transposed convolutions, concatenation; group and instance norm."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.LeakyReLU(0.1))
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.InstanceNorm2d(16, affine=True), nn.ELU())
        self.up = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down(x)
        return self.out(torch.cat([self.up(self.middle(a)), a], 1))


class Audio(nn.Module):
    """Strided, dilated, causal and grouped convolutions of a waveform, as in WaveNet and M5."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 8, 20, 4), nn.BatchNorm1d(8), nn.GELU())
        self.gated = nn.Conv1d(8, 16, 2, dilation=2)
        self.grouped = nn.Conv1d(8, 8, 3, groups=4, padding=1)
        self.up = nn.ConvTranspose1d(8, 1, 4, 2)

    def forward(self, x):
        x = self.stem(x)
        a, b = self.gated(F.pad(x, (2, 0))).chunk(2, 1)
        return self.up(F.softplus(self.grouped(x + torch.tanh(a) * torch.sigmoid(b))))


class Video(nn.Module):
    """Convolutions over space and time, whole and factored."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(3, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 8, (1, 3, 3), (1, 2, 2)),
            nn.ReLU(), nn.Conv3d(8, 8, (3, 1, 1), groups=2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 4),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


class Encoder(nn.Module):
    """Embeddings, a padding mask, post-norm attention, as in BERT."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.token, self.place, self.norm = nn.Embedding(50, width), nn.Embedding(16, width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.head = nn.Linear(width, 48), nn.Linear(48, width), nn.Linear(width, 2)
        self.heads = heads

    def forward(self, ids):
        length = ids.shape[1]
        x = self.norm(self.token(ids) + self.place(torch.arange(length)))
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, 2))
        mask = (ids != 0)[:, None, None, :]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.out(mixed))
        x = self.norm2(x + self.down(F.gelu(self.up(x))))
        return self.head(torch.tanh(x[:, 0]))


class Mixer(nn.Module):
    """Patches mixed over places and over channels."""

    def __init__(self):
        super().__init__()
        self.patch, self.norm1, self.norm2 = nn.Conv2d(3, 12, 4, 4), nn.LayerNorm(12), nn.LayerNorm(12)
        self.places = nn.Sequential(nn.Linear(9, 16), nn.GELU(), nn.Linear(16, 9))
        self.channels = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(self.norm2(x))).mean(1)


class Decoder(nn.Module):
    """RMS norm, rotary positions, grouped queries, a gated MLP, as in Llama."""

    def __init__(self, width=16, heads=4, shared=2):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared * self.size, bias=False)
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down = nn.Linear(32, width, bias=False)
        angles = torch.outer(torch.arange(32.0), 1e4 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("angles", torch.cat([angles, angles], -1))

    def turned(self, x):
        a, b = x.chunk(2, -1)
        angles = self.angles[: x.shape[2]]
        return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()

    def forward(self, x):
        y = self.norm1(x)
        q = self.q(y).unflatten(2, (self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(y).unflatten(2, (2 * self.shared, self.size)).transpose(1, 2).chunk(2, 1)
        k, v = (part.repeat_interleave(self.heads // self.shared, 1) for part in (self.turned(k), v))
        y = F.scaled_dot_product_attention(self.turned(q), k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


ZOO = {
    # name: model, input, coverage and islands in inference, coverage of the forward and backward graph in training
    "mobile": (Mobile, lambda: torch.randn(2, 3, 12, 12), 1.0, 1, (0.9, 1.0)),
    "unet": (UNet, lambda: torch.randn(2, 3, 8, 12), 1.0, 1, (1.0, 1.0)),
    "audio": (Audio, lambda: torch.randn(2, 1, 100), 1.0, 1, (0.9, 1.0)),
    "video": (Video, lambda: torch.randn(2, 3, 5, 8, 8), 1.0, 1, (0.9, 1.0)),
    "encoder": (Encoder, lambda: torch.randint(0, 50, (3, 9)), 0.8, 1, (0.8, 0.7)),
    "mixer": (Mixer, lambda: torch.randn(2, 3, 12, 12), 1.0, 1, (1.0, 1.0)),
    "decoder": (Decoder, lambda: torch.randn(2, 7, 16), 0.85, 1, (0.85, 1.0)),
}


def prepared(name, dtype, *, training):
    torch.manual_seed(0)
    torch._dynamo.reset()
    make, inputs, *expected = ZOO[name]
    model, x = make().to(dtype).train(training), inputs()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not training:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 1.5)
    reports = []
    options = {"tried": 1, "on_report": reports.append}
    run = torch.compile(model, backend="fxscope_npu", options=options)
    return model, run, x.to(dtype) if x.is_floating_point() else x, reports, expected


def close(result, wanted, tolerance):
    scale = max(1.0, float(wanted.float().abs().max()))
    torch.testing.assert_close(result.float(), wanted.float(), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", ZOO)
def test_inference(name):
    model, run, x, reports, (coverage, islands, _) = prepared(name, torch.float32, training=False)
    with torch.no_grad():
        result, wanted = run(x), model(x)
    close(result, wanted, 1e-5)
    assert (result.shape, result.dtype, result.stride()) == (wanted.shape, wanted.dtype, wanted.stride())
    assert [(report.coverage >= coverage, len(report.executables)) for report in reports] == [(True, islands)]
    on_host = [node for node, clauses in reports[0].partition.clauses.items() if clauses]
    assert all(clause.text for node in on_host for clause in reports[0].partition.clauses[node])
    assert len(on_host) >= (reports[0].coverage < 1)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("mobile", torch.bfloat16), ("unet", torch.float16), ("decoder", torch.bfloat16)],
)
def test_narrow_types(name, dtype):
    model, run, x, reports, _ = prepared(name, dtype, training=False)
    with torch.no_grad():
        close(run(x), model(x), 0.03 if dtype == torch.bfloat16 else 0.004)
    assert reports[0].coverage > 0.85


@pytest.mark.parametrize("name", ZOO)
def test_training_step(name):
    """Loss, every gradient, and the buffers that the step moves."""
    model, run, x, reports, (_, _, coverage) = prepared(name, torch.float32, training=True)
    other = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing may say that it runs eagerly
        result = run(x)
    wanted = other(x)
    close(result, wanted, 1e-5)
    for out in (result, wanted):
        out.square().mean().backward()
    for (path, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), path
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=2e-6, msg=lambda text, at=path: f"{at}: {text}")
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert [report.kind for report in reports] == ["forward", "backward"]
    for report, least in zip(reports, coverage, strict=True):
        assert report.coverage >= least, {n.name: c for n, c in report.partition.clauses.items() if c}
