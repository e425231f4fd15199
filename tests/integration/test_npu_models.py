"""Whole models through torch.compile(backend="fxscope_npu"): results, coverage, islands, training."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxscope.errors import UsageError


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions, batch norms folded or not."""

    def __init__(self, inputs, middle, stride, folded):
        super().__init__()
        outputs = 4 * middle

        def conv(i, o, k, s=1):
            layers = [nn.Conv2d(i, o, k, s, k // 2, bias=folded)]
            return nn.Sequential(*layers, *([] if folded else [nn.BatchNorm2d(o)]))

        self.first, self.second, self.third = (
            conv(inputs, middle, 1),
            conv(middle, middle, 3, stride),
            conv(middle, outputs, 1),
        )
        self.down = conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x):
        y = torch.relu(self.first(x))
        y = self.third(torch.relu(self.second(y)))
        return torch.relu(y + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    """ResNet-50 with (3, 4, 6, 3) blocks."""

    def __init__(self, blocks=(3, 4, 6, 3), *, folded=True):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=folded), *([] if folded else [nn.BatchNorm2d(64)]))
        layers, inputs = [], 64
        for count, (middle, stride) in zip(blocks, [(64, 1), (128, 2), (256, 2), (512, 2)], strict=True):
            for number in range(count):
                layers.append(Bottleneck(inputs, middle, stride if number == 0 else 1, folded))
                inputs = 4 * middle
        self.layers = nn.Sequential(*layers)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, 1000)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        return self.head(torch.flatten(self.pool(self.layers(x)), 1))


class Block(nn.Module):
    """A transformer block, pre-norm; causal like GPT-2 or not like ViT."""

    def __init__(self, width, heads, length, causal):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool)) if causal else None
        self.register_buffer("mask", mask)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2)
        )
        scores = (q @ k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        mixed = (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class ViT(nn.Module):
    """Patches, a class token, positions, one block."""

    def __init__(self, width=96, heads=3):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.cls, self.position = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        self.block = Block(width, heads, 17, causal=False)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.block(x)


def compiled(model, **options):
    torch._dynamo.reset()
    reports = []
    return torch.compile(model, backend="fxscope_npu", options={"on_report": reports.append, **options}), reports


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.slow
def test_resnet50_folded_runs_in_at_most_three_islands():
    model, x = ResNet().eval(), torch.randn(1, 3, 224, 224)
    run, reports = compiled(model)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x), rtol=1e-3, atol=1e-4)
    (report,) = reports
    assert report.coverage == 1.0
    assert len(report.executables) <= 3
    (island,) = report.executables.values()
    assert sum(group.note.get("macs", 0) for group in island.compiled.groups) == 4_089_184_256
    timing = island.timing
    assert timing.lower <= timing.total <= timing.upper


def test_small_resnet_folded_and_unfolded():
    for folded in (True, False):
        model, x = ResNet((1, 1, 1, 1), folded=folded).eval(), torch.randn(2, 3, 64, 64)
        run, reports = compiled(model, tried=1)
        with torch.no_grad():
            torch.testing.assert_close(run(x), model(x), rtol=1e-3, atol=1e-4)
        assert [(r.kind, r.coverage, len(r.executables)) for r in reports] == [("inference", 1.0, 1)]


def test_gpt2_block_is_one_island_when_softmax_is_decomposed():
    model, x = Block(64, 4, 32, causal=True).eval(), torch.randn(2, 32, 64)
    expected = model(x).detach()
    found = {}
    for softmax in ("decompose", "host"):
        run, reports = compiled(model, softmax=softmax)
        with torch.no_grad():
            torch.testing.assert_close(run(x), expected, rtol=1e-4, atol=1e-5)
        (report,) = reports
        found[softmax] = (len(report.executables), report.coverage)
    assert found["decompose"] == (1, 1.0)
    assert found["host"][0] > 1
    assert found["host"][1] < 1.0


def test_vit_block():
    model, image = ViT().eval(), torch.randn(2, 3, 32, 32)
    run, reports = compiled(model)
    with torch.no_grad():
        torch.testing.assert_close(run(image), model(image), rtol=1e-4, atol=1e-5)
    assert [(r.coverage, len(r.executables)) for r in reports] == [(1.0, 1)]


def test_instructions_and_plan_agree_on_a_block():
    model, x = Block(32, 2, 16, causal=True).eval(), torch.randn(1, 16, 32)
    results = []
    for mode in ("plan", "instructions"):
        run, _ = compiled(model, mode=mode)
        with torch.no_grad():
            results.append(run(x))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_mlp_training_step():
    def make():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.LayerNorm(40), nn.Linear(40, 7))

    plain, ours = make(), make()
    run, reports = compiled(ours)
    optimisers = [torch.optim.SGD(model.parameters(), 0.1) for model in (plain, ours)]
    for _ in range(3):
        x, y = torch.randn(16, 20), torch.randn(16, 7)
        losses = []
        for model, call, optimiser in zip((plain, ours), (plain, run), optimisers, strict=True):
            optimiser.zero_grad()
            loss = F.mse_loss(call(x), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
            assert all(parameter.grad is not None for parameter in model.parameters())
        torch.testing.assert_close(losses[0], losses[1])
    for a, b in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert [report.kind for report in reports] == ["forward", "backward"]
    assert all(report.coverage == 1.0 and len(report.executables) == 1 for report in reports)


def test_weights_that_change_in_any_way_are_seen():
    layer, x = nn.Linear(8, 4), torch.randn(3, 8)
    run, _ = compiled(layer)
    with torch.no_grad():
        for change in (
            lambda: None,
            lambda: layer.weight.mul_(2),
            lambda: layer.weight.data.add_(1),
            lambda: setattr(layer.weight, "data", torch.randn(4, 8)),
            lambda: layer.bias.data.fill_(3),
        ):
            change()
            torch.testing.assert_close(run(x), layer(x))


def test_threads_share_one_compiled_model():
    from concurrent.futures import ThreadPoolExecutor

    layer = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    run, _ = compiled(layer)
    inputs = [torch.randn(5, 32) for _ in range(40)]

    def call(x):
        with torch.no_grad():
            return run(x)

    call(inputs[0])
    with ThreadPoolExecutor(4) as pool, torch.no_grad():
        for x, out in zip(inputs, pool.map(call, inputs), strict=True):
            torch.testing.assert_close(out, layer(x))


def test_bfloat16_model():
    model = Block(32, 2, 16, causal=False).eval().to(torch.bfloat16)
    x = torch.randn(2, 16, 32, dtype=torch.bfloat16)
    run, reports = compiled(model)
    with torch.no_grad():
        torch.testing.assert_close(run(x).float(), model(x).float(), rtol=0.05, atol=0.05)
    assert reports[0].coverage == 1.0


def test_host_ops_between_islands():
    def model(x, index):
        y = torch.relu(x * 2)
        y = torch.cumsum(y, 0)  # not in the table
        return torch.sigmoid(y)[index] + 1

    run, reports = compiled(model)
    x, index = torch.randn(6, 5), torch.tensor([3, 1])
    torch.testing.assert_close(run(x, index), model(x, index))
    (report,) = reports
    assert len(report.executables) >= 2
    refused = {node.name: clauses[0].text for node, clauses in report.partition.clauses.items() if clauses}
    assert any("aten.cumsum" in text for text in refused.values())


def test_nothing_supported_runs_eagerly_and_says_so():
    run, _ = compiled(lambda x: torch.cumsum(x.double(), 0))
    x = torch.randn(5)
    with pytest.warns(UserWarning, match="npu: nothing in this .* runs on it"):
        out = run(x)
    torch.testing.assert_close(out, torch.cumsum(x.double(), 0))


def test_embedding_stays_on_the_host():
    table, layer = nn.Embedding(50, 16), nn.Linear(16, 8)
    model = nn.Sequential(table, layer).eval()
    run, reports = compiled(model)
    ids = torch.randint(0, 50, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(run(ids), model(ids))
    assert len(reports[0].executables) == 1


def test_report_option_prints_coverage(capsys):
    run, _ = compiled(nn.Linear(8, 4), report=True, machine="ethos-u65-512")
    with torch.no_grad(), warnings.catch_warnings():
        run(torch.randn(3, 8))
    text = capsys.readouterr().err
    assert "100% on the NPU in 1 island" in text
    assert "modelled on ethos-u65-512" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machine": "nope"}, "unknown machine 'nope'"),
        ({"speed": 3}, "no option 'speed'; options: machine"),
        ({"mode": "fast"}, "mode='fast': one of plan, instructions"),
        ({"softmax": "both"}, "softmax='both': one of decompose, host"),
    ],
)
def test_bad_options_are_one_line(options, message):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"fxscope|machine|option|mode|softmax") as caught:
        torch.compile(lambda x: x + 1, backend="fxscope_npu", options=options)(torch.ones(2))
    assert message in str(caught.value)
    assert isinstance(caught.value, UsageError) or "UsageError" in str(caught.value)


def test_null_backend_counts():
    from fxscope.targets import null

    torch._dynamo.reset()
    null.reset()

    @torch.compile(backend="fxscope_null", dynamic=False)
    def f(x):
        return torch.relu(x) + 1

    for size in (3, 3, 4):
        assert f(torch.ones(size)).shape == (size,)
    assert [counted.calls for counted in null.counts] == [2, 1]
    assert [counted.inputs[0].split(": ")[1] for counted in null.counts] == ["float32[3]", "float32[4]"]
    assert "ran 2 times" in null.table()
    assert "relu" in null.table()
