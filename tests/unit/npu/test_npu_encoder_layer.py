"""The fused encoder layer taken apart, against the fused op itself."""

import pytest
import torch

from fxscope.targets.npu.encoder_layer import PADDING, SOURCE, encoder_layer

WIDTH, HEADS, BATCH, LENGTH = 12, 3, 2, 5


def arguments(*, use_gelu, norm_first):
    generator = torch.Generator().manual_seed(1)

    def t(*shape):
        return torch.randn(shape, generator=generator)

    return (
        t(BATCH, LENGTH, WIDTH), WIDTH, HEADS, t(3 * WIDTH, WIDTH), t(3 * WIDTH), t(WIDTH, WIDTH), t(WIDTH), use_gelu,
        norm_first, 1e-5, t(WIDTH), t(WIDTH), t(WIDTH), t(WIDTH), t(20, WIDTH), t(20), t(WIDTH, 20), t(WIDTH),
    )  # fmt: skip


def masks():
    generator = torch.Generator().manual_seed(2)
    source = torch.ones(LENGTH, LENGTH).triu(1).bool()
    padding = torch.tensor([[False] * 5, [False, False, True, False, True]])
    both = torch.rand(BATCH, HEADS, LENGTH, LENGTH, generator=generator) > 0.6
    both[..., 0] = False  # no row without any place to look at
    return {
        "none": (None, None),
        "source": (source, SOURCE),
        "padding": (padding, PADDING),
        "both": (both, 2),
        "float": (torch.zeros(BATCH, LENGTH).masked_fill(padding, float("-inf")), PADDING),
    }


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("name", masks())
def test_same_as_the_fused_op(name, use_gelu, norm_first):
    values = (*arguments(use_gelu=use_gelu, norm_first=norm_first), *masks()[name])
    with torch.no_grad():
        torch.testing.assert_close(
            encoder_layer(*values), torch.ops.aten._transformer_encoder_layer_fwd(*values), rtol=1e-4, atol=1e-5
        )


def test_whole_layer_is_one_island():
    torch._dynamo.reset()
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 20, batch_first=True).eval()
    reports = []
    run = torch.compile(layer, backend="fxscope_npu", options={"on_report": reports.append, "tried": 1})
    x, padding = torch.randn(BATCH, LENGTH, WIDTH), masks()["padding"][0]
    with torch.no_grad():
        torch.testing.assert_close(
            run(x, src_key_padding_mask=padding), layer(x, src_key_padding_mask=padding), rtol=1e-4, atol=1e-5
        )
    assert [(report.coverage, len(report.executables)) for report in reports] == [(1.0, 1)]
