"""Trains a model of linear layers with DistributedDataParallel, all ranks sharing the GPUs that
there are. Prints, on rank 0, a digest of the parameters and the median time of a step:

    torchrun --nproc-per-node 2 tests/gpu/train.py --backend tutti --parameters 1000000
"""

import argparse
import hashlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def model(parameters, layers=8):
    """About so many parameters, the same on all ranks."""
    torch.manual_seed(0)
    width = max(16, int((parameters / layers) ** 0.5))
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts), width


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(arguments, device):
    net, width = model(arguments.parameters)
    net = DistributedDataParallel(net.to(device))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    times = []
    for step in range(arguments.steps):
        torch.manual_seed(1000 * step + dist.get_rank())
        batch = torch.randn(16, width).to(device)
        synchronize(device)
        began = time.perf_counter()
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        synchronize(device)
        times.append(time.perf_counter() - began)
    flat = torch.cat([parameter.detach().reshape(-1).cpu() for parameter in net.parameters()])
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16], statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="tutti", choices=["tutti", "nccl", "gloo"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.backend == "tutti":
        import tutti.torch  # noqa: F401: registers the backend.
    dist.init_process_group(arguments.backend)
    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    digest, seconds = train(arguments, device)
    if dist.get_rank() == 0:
        print(f"{arguments.backend} {dist.get_world_size()} ranks: parameters {digest}, "
              f"step {seconds * 1000:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
