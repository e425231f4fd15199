"""Two networks against each other, each with an optimizer of its own; the losses are compiled functions."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 16), nn.Tanh())
critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
entropy = nn.functional.binary_cross_entropy_with_logits


@torch.compile(backend="aot_eager")
def critic_loss(real, noise):
    with torch.no_grad():
        fake = generator(noise)
    yes, no = critic(real), critic(fake)
    return entropy(yes, torch.ones_like(yes)) + entropy(no, torch.zeros_like(no))


@torch.compile(backend="aot_eager")
def generator_loss(noise):
    verdict = critic(generator(noise))
    return entropy(verdict, torch.ones_like(verdict))


for step in range(6):
    for_critic.zero_grad()
    loss = critic_loss(torch.randn(12, 16), torch.randn(12, 8))
    loss.backward()
    for_critic.step()

    for_generator.zero_grad()
    loss = generator_loss(torch.randn(12, 8))
    loss.backward()
    for_generator.step()
    print(step, round(loss.item(), 3))
