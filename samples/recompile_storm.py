"""A compiled function that is compiled again for every call, because a string that it is given changes each time.

Record it with ``fxscope run samples/recompile_storm.py``.
"""

from __future__ import annotations

import torch


def scale(x: torch.Tensor, tag: str) -> torch.Tensor:
    """Strings are guarded by value: each new tag is a new graph."""
    return x * 2 if tag.endswith("even") else x * 3


def main() -> None:
    """Six calls, six compiles."""
    compiled = torch.compile(scale)
    x = torch.ones(8)
    for number in range(6):
        tag = f"request {number}, {'even' if number % 2 == 0 else 'odd'}"
        print(tag, compiled(x, tag).sum().item())


if __name__ == "__main__":
    main()
