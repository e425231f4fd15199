"""Plain arithmetic after a convolution, where freezing is silently wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxscope.passes.affine import fold_affine
from tests.unit.passes.folding import check, image


class Scaled(nn.Module):
    """Folding of plain arithmetic, where Inductor's freezing is silently wrong."""

    def __init__(self, body):
        super().__init__()
        self.one = nn.Conv2d(4, 4, 3)
        self.two = nn.Conv2d(4, 4, 3)
        self.t = nn.Parameter(torch.randn(4, 1, 1))
        self.register_buffer("count", torch.tensor(3))
        self.body = body

    def forward(self, x):
        return self.body(self, x)


BODIES = {
    "two factors (freezing reads one buffer)": (lambda m, x: m.two(torch.relu(m.one(x) * 2.0)) * 3.0, 2, []),
    "add alpha": (lambda m, x: torch.add(m.one(x), m.t, alpha=2), 1, []),
    "sub alpha": (lambda m, x: torch.sub(m.one(x), m.t, alpha=3), 1, []),
    "reversed add": (lambda m, x: m.t + m.one(x), 1, []),
    "div": (lambda m, x: m.one(x) / m.t, 1, []),
    "chain": (lambda m, x: ((m.one(x) - 0.5) * m.t + 2) / 3, 1, []),
    "const minus conv": (lambda m, x: 1.5 - m.one(x), 0, ["alpha"]),
    "const over conv": (lambda m, x: m.t / m.one(x), 0, ["alpha"]),
    "alpha on the convolution": (lambda m, x: torch.add(m.t, m.one(x), alpha=2), 0, ["alpha"]),
    "spatial factor": (lambda m, x: m.one(x) * x[:1, :, 1:-1, 1:-1], 0, ["not-constant"]),
    "factor of more dimensions": (lambda m, x: m.one(x) * m.t.sum().reshape(1, 1, 1, 1, 1), 0, ["not-constant"]),
    "integer factor": (lambda m, x: m.one(x) * m.count, 0, ["not-constant"]),
    "square": (lambda m, x: (lambda y: y * y)(m.one(x)), 0, ["not-constant"]),
    "rounded": (lambda m, x: torch.div(m.one(x), m.t, rounding_mode="floor"), 0, []),
}


@pytest.mark.parametrize("name", BODIES)
def test_arithmetic_after_a_convolution(name):
    body, applied, skipped = BODIES[name]
    torch.manual_seed(0)
    result = check(Scaled(body).eval(), [image(2, 4, 8, 8)], "aten", run=fold_affine, tolerance=2e-6)
    assert result[:2] == (applied, skipped)


def test_a_transposed_convolution_scales_its_output_channels():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.ConvTranspose2d(4, 4, 3)
            self.t = nn.Parameter(torch.randn(4, 1, 1))

        def forward(self, x):
            return self.conv(x) * self.t

    assert check(Model().eval(), [image(2, 4, 8, 8)], "aten", run=fold_affine)[:2] == (1, [])
