"""Inference of a small ConvNet under inference_mode and autocast, batch after batch of one size."""

import torch
from torch import nn


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


@torch.inference_mode()
def predict(model, images):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(images).float().softmax(-1)


model = nn.Sequential(block(3, 8), block(8, 16), nn.Flatten(), nn.Linear(16 * 8 * 8, 10)).eval()
model = torch.compile(model, backend="aot_eager")
labels = [int(predict(model, torch.randn(4, 3, 32, 32)).argmax(-1)[0]) for _ in range(8)]
print(labels)
