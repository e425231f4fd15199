"""``torch.compile(backend="fxscope_triton")`` in inference and training, and what it says where it cannot run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("triton")
from fxscope.errors import MissingError, UsageError
from fxscope.targets.triton.target import TritonTarget


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, also where there is a GPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 40), nn.Linear(40, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def test_training_gives_eager_gradients() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), Block()), torch.randn(2, 5, 24)
    target = torch.randint(0, 24, (10,))

    def step(run: Any) -> list[torch.Tensor]:
        model.zero_grad()
        loss = nn.functional.cross_entropy(run(x).flatten(0, 1), target)
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    want = step(model)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # "nothing in this graph runs on it"
        got = step(torch.compile(model, backend="fxscope_triton"))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def node(function: Any, *args: torch.Tensor) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    gm = make_fx(function, tracing_mode="fake")(*args)
    gm.graph.output_node().args = ((gm.graph.output_node().args[0],),)
    gm.recompile()
    return gm, next(n for n in gm.graph.nodes if n.op == "call_function")


def test_an_op_or_dtype_outside_the_table_is_a_clause_and_a_named_refusal() -> None:
    x = torch.randn(4, 4)
    gm, first = node(lambda x: torch.cumsum(x, 0), x)
    (clause,) = TritonTarget().supports(first)
    assert clause.code == "op"
    with pytest.raises(UsageError, match="cumsum"):
        TritonTarget().compile(gm, (x,))
    z = torch.randn(4, dtype=torch.complex64)
    _, first = node(lambda z: z * 2, z)
    assert TritonTarget().supports(first)[0].code == "dtype"
    assert "complex64" in TritonTarget().supports(first)[0].text


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ("raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')", "pip install triton"),
        ("raise ImportError('libcuda.so.1: cannot open shared object file')", "libcuda.so.1.* this torch asks for"),
        ("import absent_part", "absent_part.* this torch asks for"),
    ],
    ids=["absent", "broken", "in-part"],
)
def test_without_a_triton_that_can_be_imported(
    package: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "triton.py").write_text(package)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert re.search(told, TritonTarget().unavailable() or "")
    gm, _ = node(torch.relu, torch.randn(3))
    with pytest.raises(MissingError, match=told) as caught:
        TritonTarget().compile(gm, (torch.randn(3),))
    assert caught.value.exit_code == 4


def test_on_a_gpu_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla V100")
    assert "8.0 or later" in (TritonTarget().unavailable() or "")


def test_tensors_on_the_cpu_of_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    gm, _ = node(torch.relu, torch.randn(3))
    with pytest.raises(MissingError, match="move them to cuda"):
        TritonTarget().compile(gm, (torch.randn(3),))


def test_triton_that_was_imported_before_is_interpreted_too() -> None:
    program = (
        "import triton.language, torch\n"
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "from fxscope.targets.triton.target import TritonTarget\n"
        "x = torch.randn(3, 50)\n"
        "gm = make_fx(lambda x: (torch.softmax(x, -1),))(x)\n"
        "assert torch.allclose(TritonTarget().compile(gm, (x,))(x)[0], torch.softmax(x, -1))\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
