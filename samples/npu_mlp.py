"""An MLP whose graph runs on the NPU model: real results, modelled cycles.

python samples/npu_mlp.py
fxscope run -o mlp.fxscope samples/npu_mlp.py    # the same, recorded
"""

from __future__ import annotations

import torch
from torch import nn


def main() -> None:
    """Compare the NPU's result with eager."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval()
    x = torch.randn(16, 64)
    compiled = torch.compile(model, backend="fxscope_npu")
    with torch.no_grad():
        difference = (compiled(x) - model(x)).abs().max().item()
    print(f"largest difference to eager {difference:.1e}")


if __name__ == "__main__":
    main()
