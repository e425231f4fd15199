"""An encoder trained for two epochs: AdamW, a schedule, gradient clipping, a smaller last batch, evaluation in between."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, vocabulary=50, width=32, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(1, 24, width))
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position[:, : tokens.shape[1]]
        return self.head(self.encoder(x).mean(dim=1))


def evaluate(model, batches):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for tokens, labels in batches:
            right += (model(tokens).argmax(-1) == labels).sum().item()
            total += len(labels)
    model.train()
    return right / total


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, 50, (38, 16)), torch.randint(0, 4, (38,)))
    batches = DataLoader(data, batch_size=16)
    model = torch.compile(Classifier(), backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    for epoch in range(2):
        for tokens, labels in batches:
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {evaluate(model, batches):.2f}")


if __name__ == "__main__":
    main()
