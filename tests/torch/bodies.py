"""What the ranks of the torch tests do: each function is one rank's part, and returns JSON."""

import hashlib
import json
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def check(right, what):
    if not right:
        raise AssertionError(what)


def collectives():
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.full((5,), float(rank + 1))
    dist.all_reduce(x)
    check(x.eq(world * (world + 1) / 2).all(), x)
    work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
    check(work.wait(), "wait() is true")
    mean = torch.tensor([float(rank)])
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    check(mean.item() == (world - 1) / 2, mean)
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    check(bits.item() == (1 << world) - 1, bits)
    columns = torch.zeros(4, 6)[:, ::2] + rank
    dist.all_reduce(columns)
    check(columns.eq(world * (world - 1) / 2).all(), columns)
    x = torch.full((3,), rank, dtype=torch.int64)
    dist.reduce(x, dst=world - 1)
    check(rank != world - 1 or x.eq(world * (world - 1) // 2).all(), x)
    x = torch.full((3,), rank, dtype=torch.bfloat16)
    dist.broadcast(x, src=1)
    check(x.eq(1).all(), x)
    dist.barrier()


def blocks():
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(2, 3, dtype=torch.int32) for _ in range(world)]
    dist.all_gather(parts, torch.full((2, 3), rank, dtype=torch.int32))
    check(all(part.eq(i).all() for i, part in enumerate(parts)), parts)
    flat = torch.empty(2 * world)
    dist.all_gather_into_tensor(flat, torch.full((2,), float(rank)))
    check(flat.tolist() == [i // 2 for i in range(2 * world)], flat)
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * world))
    check(out.tolist() == [world * 2 * rank, world * (2 * rank + 1)], out)
    dist.reduce_scatter(out, [torch.full((2,), float(i)) for i in range(world)])
    check(out.eq(world * rank).all(), out)
    root = world - 1
    parts = [torch.empty(2) for _ in range(world)] if rank == root else None
    dist.gather(torch.full((2,), float(rank)), parts, dst=root)
    check(rank != root or all(part.eq(i).all() for i, part in enumerate(parts)), parts)
    dist.scatter(out, parts, src=root)
    check(out.eq(rank).all(), out)
    received = torch.empty(world)
    dist.all_to_all_single(received, torch.arange(float(world)) + 10 * rank)
    check(received.tolist() == [rank + 10.0 * i for i in range(world)], received)
    parts = [torch.empty(2) for _ in range(world)]
    dist.all_to_all(parts, [torch.full((2,), 10.0 * rank + i) for i in range(world)])
    check(all(part.eq(10 * i + rank).all() for i, part in enumerate(parts)), parts)


def objects():
    rank, world = dist.get_rank(), dist.get_world_size()
    got = [None] * world
    dist.all_gather_object(got, {"rank": rank})
    check(got == [{"rank": i} for i in range(world)], got)
    got = [None] * world if rank == 0 else None
    dist.gather_object("x" * rank, got, dst=0)
    check(rank != 0 or got == ["x" * i for i in range(world)], got)
    got = [("told", 7)] if rank == 0 else [None]
    dist.broadcast_object_list(got, src=0)
    check(got == [("told", 7)], got)


def subgroups():
    """Two groups of the same ranks, and one that not all are in, used in different orders."""
    rank, world = dist.get_rank(), dist.get_world_size()
    whole = [dist.new_group() for _ in range(2)]
    pair = dist.new_group([0, world - 1])
    for group in whole if rank == 0 else reversed(whole):
        x = torch.ones(3)
        work = dist.all_reduce(x, group=group, async_op=True)
        work_of_all = (work, x)
        whole_works.append(work_of_all)
    for work, x in whole_works:
        work.wait()
        check(x.eq(world).all(), x)
    if rank in (0, world - 1):
        x = torch.full((2,), float(rank))
        dist.all_reduce(x, group=pair)
        check(x.eq(world - 1).all(), x)


whole_works = []


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def train(module, parameters, steps=3):
    """The hash of the parameters after some steps, the same data whatever the backend."""
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
    for step in range(steps):
        torch.manual_seed(100 * step + dist.get_rank())
        loss = module(torch.randn(4, 3, 8, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def digest(tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def ddp():
    module = model()
    train(nn.parallel.DistributedDataParallel(module), module.parameters())
    return digest(module.parameters())


def ddp_unused():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = model(), nn.Linear(3, 3)

        def forward(self, x):
            return self.used(x)

    torch.manual_seed(1)
    module = Half()
    train(nn.parallel.DistributedDataParallel(module, find_unused_parameters=True,
                                              gradient_as_bucket_view=True),
          module.parameters())
    return digest(module.parameters())


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    module = model()
    fully_shard(module)
    train(module, module.parameters())
    return digest([p.full_tensor() for p in module.parameters()])


def dies():
    """Rank 1 is killed in the third step; the others tell how their backward() failed."""
    module = nn.parallel.DistributedDataParallel(model())
    for step in range(100):
        if dist.get_rank() == 1 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            module(torch.randn(4, 3, 8, 8)).square().mean().backward()
        except RuntimeError as error:
            return {"error": str(error), "seconds": time.monotonic() - begin}
    return None


def wrong():
    """Wrong calls are refused, each with its sentence, and the group stays usable."""
    world = dist.get_world_size()
    told = []
    for call in (
            lambda: dist.all_gather_into_tensor(torch.empty(1), torch.empty(5)),
            lambda: dist.all_gather_into_tensor(torch.empty(10, dtype=torch.float64),
                                                torch.empty(5)),
            lambda: dist.reduce_scatter_tensor(torch.empty(5, dtype=torch.float64),
                                               torch.empty(10)),
            lambda: dist.all_to_all_single(torch.empty(3, 2), torch.empty(3, 2)),
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), op=dist.ReduceOp.AVG),
            lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND),
            lambda: dist.all_reduce(torch.empty(2, dtype=torch.float8_e4m3fn))):
        try:
            call()
            told.append(None)
        except (RuntimeError, ValueError) as error:
            told.append(str(error))
    x = torch.ones(2)
    dist.all_reduce(x)
    check(x.eq(world).all(), x)
    return told


def main():
    body, backend = sys.argv[1:]
    if backend == "tutti":
        import tutti.torch  # noqa: F401: registers it.
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    result = globals()[body]()
    dist.destroy_process_group()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
