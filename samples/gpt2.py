"""Training a small GPT-2 from transformers, with random weights and batches whose length changes.

It needs ``pip install transformers``.

Record it with ``fxscope run samples/gpt2.py``.
"""

from __future__ import annotations

import argparse
import sys

import torch


def main() -> None:
    """A few optimizer steps, each with another sequence length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 24, 32, 48])
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        sys.exit("this sample needs transformers: pip install transformers")

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=128,
        n_embd=arguments.width,
        n_layer=arguments.layers,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).to(arguments.device).train()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for length in arguments.lengths:
        tokens = torch.randint(0, 256, (4, length), device=arguments.device)
        loss = compiled(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"length {length}: loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
