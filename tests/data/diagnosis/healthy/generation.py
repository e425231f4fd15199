"""Greedy generation with a cache of fixed size; the prompt's length is marked dynamic."""

import torch
from torch import nn

WIDTH, LENGTH, VOCABULARY = 32, 64, 40


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, positions, keys, values):
        q, k, v = self.qkv(self.embed(tokens)).chunk(3, dim=-1)
        keys = keys.index_copy(1, positions, k)
        values = values.index_copy(1, positions, v)
        mask = torch.arange(LENGTH) <= positions[:, None]
        y = nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.out(y[:, -1]), keys, values


@torch.no_grad()
def generate(prefill, decode, prompt, steps):
    keys = torch.zeros(1, LENGTH, WIDTH)
    values = torch.zeros(1, LENGTH, WIDTH)
    torch._dynamo.mark_dynamic(prompt, 1)
    positions = torch.arange(prompt.shape[1])
    torch._dynamo.mark_dynamic(positions, 0)
    logits, keys, values = prefill(prompt, positions, keys, values)
    text = []
    for step in range(steps):
        token = logits.argmax(-1, keepdim=True)
        text.append(token)
        position = torch.tensor([prompt.shape[1] + step])
        logits, keys, values = decode(token, position, keys, values)
    return torch.cat(text, dim=1)


def main():
    torch.manual_seed(0)
    model = Decoder().eval()
    prefill = torch.compile(model, backend="aot_eager")
    decode = torch.compile(model, backend="aot_eager", dynamic=False)
    for length in (5, 9, 17):
        print(generate(prefill, decode, torch.randint(0, VOCABULARY, (1, length)), 6).tolist())


if __name__ == "__main__":
    main()
