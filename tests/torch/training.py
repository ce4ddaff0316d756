"""Small models and their training, the same whatever the backend."""

import torch
import torch.distributed as dist
from torch import nn


def check(right, what):
    if not right:
        raise AssertionError(what)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 16),
                         nn.ReLU(), nn.Linear(16, 10))


class Half(nn.Module):
    """A model of which a part is not used, the same on all ranks."""

    def __init__(self):
        super().__init__()
        self.used = model()
        torch.manual_seed(1)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.used(x)


def batch(step):
    """This rank's batch of a step."""
    torch.manual_seed(100 * step + dist.get_rank())
    return torch.randn(4, 3, 8, 8)


def sgd(parameters, rate=0.1):
    return torch.optim.SGD(parameters, rate, momentum=0.9)


def train(module, optimizer, steps=3):
    """Trains for some steps; `module` calls what `optimizer` changes."""
    for step in range(steps):
        loss = module(batch(step)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def values(tensors):
    """All elements in one list, which JSON keeps exactly."""
    return torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors]).tolist()
