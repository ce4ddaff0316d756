#!/usr/bin/env python3
"""Training steps of torch under Tutti and under Gloo, interleaved in the same processes.

    torchrun --nproc-per-node 2 tests/bench/torch_steps.py [--model cnn|10m|100m]
        [--wrap ddp|fsdp2|calls] [--rounds N]

Prints the medians over all rounds of rank 0: milliseconds of a step without communication, under
Gloo and under Tutti, and the communication of both that is exposed: what their steps take longer.
Without communication means: with ddp, a backend that does nothing, because DDP's own copies are no
communication; with fsdp2, the model alone, because nothing can be trained without its all_gather.
`calls` times dist.all_reduce of 4 B to 16 MiB instead. The parameters of both are compared, bit
for bit with 2 ranks. Needs PYTHONPATH and TUTTI_LIBRARY, unless Tutti is installed.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401: registers it.

_WARM_UP = 2


class Transformer(nn.Module):
    """Tokens to logits; most parameters are in the layers."""

    def __init__(self, width, layers, words=1000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.Sequential(*[
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True)
            for _ in range(layers)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)))


def cnn():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 36, 64),
                         nn.ReLU(), nn.Linear(64, 10))


MODELS = {"cnn": (cnn, lambda: torch.randn(8, 3, 32, 32)),
          "10m": (lambda: Transformer(256, 12), lambda: torch.randint(1000, (2, 16))),
          "100m": (lambda: Transformer(768, 14), lambda: torch.randint(1000, (1, 16)))}


class NoCommunication(dist.BackendBase if hasattr(dist, "BackendBase")
                      else torch._C._distributed_c10d.Backend):
    """A backend whose operations do nothing, so that a step takes what torch itself needs."""

    class Ended(dist._Work):
        def __init__(self, tensors):
            super().__init__()
            self._future = torch.futures.Future()
            self._future.set_result(tensors)

        def wait(self, timeout=None):
            return True

        def is_completed(self):
            return True

        def get_future(self):
            return self._future

    def _nothing(self, tensors, opts):
        return self.Ended(tensors) if opts.asyncOp else None

    allreduce = broadcast = _nothing

    def allgather(self, outputs, inputs, opts):
        for parts, source in zip(outputs, inputs):
            for part in parts:
                part.copy_(source)
        return self._nothing(inputs, opts)

    def getBackendName(self):
        return "none"


class Contestant:
    """A model in training under one backend; without a group, alone."""

    def __init__(self, make, wrap, group):
        torch.manual_seed(0)
        self.module = make()
        self._call = self.module
        if group is not None and wrap == "ddp":
            self._call = DistributedDataParallel(self.module, process_group=group)
        elif group is not None:
            mesh = DeviceMesh.from_group(group, "cpu")
            for layer in getattr(self.module, "layers", []):
                fully_shard(layer, mesh=mesh)
            fully_shard(self.module, mesh=mesh)
        self._optimizer = torch.optim.SGD(self.module.parameters(), 0.01)
        self.seconds = []

    def step(self, batch):
        dist.barrier()
        begin = time.perf_counter()
        self._call(batch).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - begin)

    def median_ms(self):
        return 1000 * statistics.median(self.seconds[_WARM_UP:])

    def parameters(self):
        return [p.full_tensor() if hasattr(p, "full_tensor") else p
                for p in self.module.parameters()]


def time_steps(arguments, groups):
    make, batch = MODELS[arguments.model]
    racers = {name: Contestant(make, arguments.wrap, group) for name, group in groups.items()}
    for round_ in range(arguments.rounds + _WARM_UP):
        torch.manual_seed(1000 * round_ + dist.get_rank())
        data = batch()
        for racer in racers.values():
            racer.step(data)
    tolerance = {} if dist.get_world_size() == 2 else {"rtol": 1e-3, "atol": 1e-5}
    for mine, theirs in zip(racers["tutti"].parameters(), racers["gloo"].parameters()):
        same = torch.allclose(mine, theirs, **tolerance) if tolerance else mine.equal(theirs)
        if not same:
            raise SystemExit("wrong: the parameters under Tutti are not those under Gloo")
    alone, gloo, mine = (racers[name].median_ms() for name in ("alone", "gloo", "tutti"))
    if dist.get_rank() == 0:
        base = "no communication" if arguments.wrap == "ddp" else "alone"
        print(f"{arguments.wrap} {arguments.model}, {dist.get_world_size()} ranks, "
              f"{arguments.rounds} rounds: {base} {alone:.2f} ms, gloo {gloo:.2f} ms, tutti "
              f"{mine:.2f} ms; exposed: gloo {gloo - alone:.2f} ms, tutti {mine - alone:.2f} ms, "
              f"ratio {(mine - alone) / (gloo - alone):.2f}")


def time_calls(arguments, groups):
    for count in (1, 256, 4096, 65536, 1 << 20, 1 << 22):
        calls = max(5, min(500, (1 << 22) // count))
        medians = {"alone": [], "gloo": [], "tutti": []}
        x = torch.ones(count)
        for _ in range(arguments.rounds):
            for name, times in medians.items():
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(x, group=groups[name])
                times.append((time.perf_counter() - begin) / calls * 1e6)
            x.fill_(1)
        dist.all_reduce(x, group=groups["tutti"])
        if not x.eq(dist.get_world_size()).all():
            raise SystemExit("wrong: all_reduce of ones")
        none, gloo, mine = (statistics.median(medians[name][1:]) for name in medians)
        if dist.get_rank() == 0:
            print(f"all_reduce of {4 * count} B, {dist.get_world_size()} ranks: no communication "
                  f"{none:.1f} us, gloo {gloo:.1f} us, tutti {mine:.1f} us, ratio "
                  f"{mine / gloo:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--wrap", choices=("ddp", "fsdp2", "calls"), default="ddp")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.Backend.register_backend(
        "none", lambda opts, _: NoCommunication(opts.group_rank, opts.group_size),
        extended_api=True, devices=["cpu"])
    groups = {"alone": None if arguments.wrap == "fsdp2" else dist.new_group(backend="none"),
              "gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    (time_calls if arguments.wrap == "calls" else time_steps)(arguments, groups)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
