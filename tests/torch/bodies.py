"""What the ranks of the torch tests do: each function is one rank's part, and returns JSON."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from calls import calls, recorded  # noqa: F401: bodies.
from details import details  # noqa: F401: a body.
from features import features  # noqa: F401: a body.
from gpus import gpu_ends, gpu_failures, gpus  # noqa: F401: bodies.
from options import reproducible, reproducible_split  # noqa: F401: bodies.
from training import check, model

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from inside import wait_until_inside  # noqa: E402


def collectives():
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.full((5,), float(rank + 1))
    dist.all_reduce(x)
    check(x.eq(world * (world + 1) / 2).all(), x)
    work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
    check(work.wait(), "wait() is true")
    for step in range(40):  # No two ranks wait in the same way.
        x = torch.full((10 if step % 2 else 20_000,), float(rank + step))
        way = (step + rank) % 4
        work = dist.all_reduce(x, async_op=way > 0)
        while way == 1 and not work.is_completed():
            pass
        if way == 2:
            work.get_future().wait()
        if way == 3:
            check(work.wait(), "wait() is true")
        check(x.eq(world * step + world * (world - 1) / 2).all(), (step, x))
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
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG),
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


def refused_alone():
    """Rank 0 alone makes a wrong call: it fails on all ranks, and the group goes on."""
    rank, world = dist.get_rank(), dist.get_world_size()
    begin, told = time.monotonic(), None
    try:
        dist.all_gather_into_tensor(torch.empty(5 * world), torch.empty(3 if rank == 0 else 5))
    except RuntimeError as error:
        told = str(error)
    x = torch.ones(2)
    dist.all_reduce(x)
    check(x.eq(world).all(), x)
    return {"error": told, "seconds": time.monotonic() - begin}


def again():
    """The default group is destroyed and made again, twice; each on the store of the first."""
    told = []
    for _ in range(3):
        x = torch.ones(1)
        dist.all_reduce(x)
        told.append(x.item())
        store, rank, world = dist.distributed_c10d._get_default_store(), dist.get_rank(), \
            dist.get_world_size()
        dist.destroy_process_group()
        dist.init_process_group("tutti", store=store, rank=rank, world_size=world)
    return told


def from_a_thread():
    """The private agent does not end with the thread that started it."""
    store, rank, world = dist.distributed_c10d._get_default_store(), dist.get_rank(), \
        dist.get_world_size()
    dist.destroy_process_group()
    thread = threading.Thread(target=lambda: dist.init_process_group(
        "tutti", store=store, rank=rank, world_size=world))
    thread.start()
    thread.join()
    agent = dist.distributed_c10d._get_default_group()._get_backend(
        torch.device("cpu")).members._agent
    dist.barrier()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if agent is not None:
            probe.connect(agent.socket)
    return agent is not None


def killed():
    """All ranks are killed at once."""
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def recovers():
    """Rank 2 dies; the others make a group of two on a new store."""
    rank = dist.get_rank()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError:
        error_type = dist.distributed_c10d._get_default_group()._get_backend(
            torch.device("cpu")).get_error()
    dist.destroy_process_group()
    store = dist.FileStore(os.environ["TUTTI_TEST_FILE"], 2)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=2)
    x = torch.full((3,), rank + 1.0)
    dist.all_reduce(x)
    return {"sum": x.tolist(), "error": error_type.name}


def monitored():
    """Ranks 1 and 3 of 4 miss a barrier; the next one is passed by all. (Before torch 2.15
    dist.monitored_barrier() takes Gloo alone; it calls the group's.)"""
    rank, told = dist.get_rank(), None
    if rank not in (1, 3):
        try:
            dist.group.WORLD.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=True)
        except RuntimeError as error:
            told = str(error)
    else:
        try:
            dist.distributed_c10d._get_default_store().wait(["told"])
            dist.group.WORLD.monitored_barrier(timeout=timedelta(seconds=30))
        except RuntimeError as error:
            told = str(error)
    if rank == 0:
        dist.distributed_c10d._get_default_store().set("told", "")
    dist.group.WORLD.monitored_barrier(timeout=timedelta(seconds=30))
    return told


def aborts():
    """A sub-group is aborted while an operation on it waits; the default group goes on, until rank
    0 aborts it, too. What that does to each rank's operation."""
    rank = dist.get_rank()
    group = dist.new_group()
    told = None
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        threading.Timer(0.2, lambda: group._get_backend(torch.device("cpu")).abort()).start()
        begin = time.monotonic()
        try:
            work.wait()
        except RuntimeError as error:
            told = [str(error), time.monotonic() - begin]
    x = torch.ones(2)
    dist.all_reduce(x)
    check(x.eq(dist.get_world_size()).all(), x)
    work = dist.all_reduce(torch.ones(1), async_op=True) if rank == 1 else None
    if rank == 0:
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        work = dist.group.WORLD
    try:
        work.wait() if rank == 1 else dist.all_reduce(x)
    except dist.DistBackendError as error:
        return [told, str(error)]
    return None


def splits():
    """Sub-groups of sub-groups by split_group(), in several orders of ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    halves = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    x = torch.tensor([float(rank)])
    dist.all_reduce(x, group=halves)
    check(x.item() == (1 if rank < 2 else 5), x)
    told = [None] * 2
    dist.all_gather_object(told, rank, group=halves)
    check(told == [rank // 2 * 2, rank // 2 * 2 + 1], told)
    three = dist.split_group(split_ranks=[[0, 1, 3], [2]])
    if rank == 2:
        return
    told = [None] * 3
    dist.all_gather_object(told, rank, group=three)
    check(told == [0, 1, 3], told)
    pair = dist.split_group(parent_pg=three, split_ranks=[[0, 2], [1]])
    if rank != 1:
        told = [None] * 2
        dist.all_gather_object(told, rank, group=pair)
        check(told == [0, 3], told)
    check(world == 4, world)
    try:
        dist.split_group(parent_pg=three, split_ranks=[[0, 1]])
        check(rank != 3, "rank 3 is not in the group")
    except RuntimeError as error:
        check(rank == 3 and "rank 2 is in none of the new groups" in str(error), error)


def coalesced():
    """Operations in a coalescing region are one work."""
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as region:
        x, y = torch.ones(3), torch.full((2,), float(rank))
        dist.all_reduce(x)
        dist.all_reduce(y)
    region.wait()
    check(x.eq(world).all() and y.eq(world * (world - 1) / 2).all(), (x, y))
    with dist.distributed_c10d._coalescing_manager(device=device):
        flat = torch.empty(world)
        dist.all_gather_into_tensor(flat, torch.tensor([float(rank)]))
    check(flat.tolist() == list(range(world)), flat)
    with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as region:
        x = torch.full((2,), float(rank))
        dist.broadcast(x, src=1)
        dist.broadcast(y, src=0)
    region.wait()
    check(x.eq(1).all() and len(region.works) == 1, x)


def timeouts():
    """Deadlines of a group, of one wait, of a group whose timeout was changed, and of a list of
    tensors: the seconds that each took, and what was raised."""
    from tutti.torch import BackendError
    rank, told = dist.get_rank(), []
    group, changed = (dist.new_group(timeout=timedelta(seconds=s)) for s in (1, 60))
    changed._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=1))

    def run(group, wait, several=False):
        begin = time.monotonic()
        try:
            if several:
                work = group.allgather_into_tensor_coalesced(
                    [torch.ones(2) for _ in range(4)], [torch.ones(1) for _ in range(4)])
            else:
                work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
            wait(work)
        except dist.DistBackendError as error:
            check(isinstance(error, BackendError), type(error))
            told.append([time.monotonic() - begin, str(error)])

    if rank == 0:
        run(group, lambda work: work.wait())
        run(group, lambda work: work.wait(timedelta(seconds=0.5)))
        run(changed, lambda work: work.wait())
        run(changed, lambda work: work.wait(), several=True)
    dist.barrier()
    return told


def allocates():
    """Tensors in shared memory: their values, and that they outlive the group."""
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    check(backend.supports_tensor_alloc(torch.device("cpu")), "supported")
    world = dist.get_world_size()
    for _ in range(50):  # 50 times what the segment holds at once, were they not freed.
        x = backend.allocate_tensor(1 << 20, dtype=torch.float32, device=torch.device("cpu"))
        x.fill_(dist.get_rank() + 1)
        dist.all_reduce(x)
        check(x.eq(world * (world + 1) / 2).all(), x)
    empty = backend.allocate_tensor(0, dtype=torch.float32, device=torch.device("cpu"))
    check(empty.numel() == 0, empty)
    part = x[3:5]
    del x, backend
    store, rank = dist.distributed_c10d._get_default_store(), dist.get_rank()
    dist.destroy_process_group()
    check(part.eq(world * (world + 1) / 2).all(), part)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=world)


def sparse():
    """Sums of sparse tensors with different numbers of values."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for rows in (0, rank, 3):
        indices = torch.arange(rows).unsqueeze(0)
        x = torch.sparse_coo_tensor(indices, torch.ones(rows, 2) * (rank + 1), (4, 2))
        dense = x.to_dense()
        dist.all_reduce(dense)
        dist.all_reduce(x)
        check(x.to_dense().eq(dense).all(), (x, dense))
    check(world > 1, world)


def uneven():
    """Rank r has r + 1 rows for rank 0, r + 2 for rank 1, and so on."""
    rank, world = dist.get_rank(), dist.get_world_size()
    given = [rank + r + 1 for r in range(world)]
    taken = [r + rank + 1 for r in range(world)]
    source = torch.cat([torch.full((n, 3), 10 * rank + r) for r, n in enumerate(given)])
    wanted = torch.cat([torch.full((n, 3), 10 * r + rank) for r, n in enumerate(taken)])
    out = torch.empty(sum(taken), 3, dtype=torch.int64)
    dist.all_to_all_single(out, source, taken, given)
    check(out.eq(wanted).all(), out)
    parts = [torch.empty(n, 3, dtype=torch.int64) for n in taken]
    dist.all_to_all(parts, list(source.split(given)))
    check(torch.cat(parts).eq(wanted).all(), parts)
    parts = [torch.empty(r) for r in range(world)]
    dist.all_gather(parts, torch.full((rank,), float(rank)))
    check(all(part.eq(r).all() for r, part in enumerate(parts)), parts)
    out = torch.empty(rank + 1)
    dist.reduce_scatter(out, [torch.full((r + 1,), float(r)) for r in range(world)])
    check(out.eq(world * rank).all(), out)


def messages():
    """A ring of messages, tags out of order, and a receiver that takes what comes."""
    rank, world = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % world, (rank - 1) % world
    sent = [dist.isend(torch.full((4,), float(10 * rank + tag)), after, tag=tag)
            for tag in range(3)]
    for tag in (2, 0, 1):
        x = torch.empty(4)
        dist.recv(x, before, tag=tag)
        check(x.eq(10 * before + tag).all(), x)
    for work in sent:
        work.wait()
    columns = torch.zeros(3, 4)[:, ::2]
    received = dist.irecv(columns, before)
    dist.send(torch.full((3, 2), float(rank)), after)
    received.wait()
    check(columns.eq(before).all(), columns)
    if rank == 0:
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        x, sources = torch.empty(1), []
        for _ in range(1, world):
            work = backend.recv_anysource([x], 7)
            work.wait()
            check(x.item() == work.source_rank(), x)
            sources.append(work.source_rank())
        check(sorted(sources) == list(range(1, world)), sources)
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=7)
    dist.barrier()


def explained():
    """What `tutti explain` says of a run that waits for rank 1, and whether it finds it."""
    tutti = pathlib.Path(os.environ["TUTTI_LIBRARY"]).parent.parent / "bin" / "tutti"
    said, limit = "", time.monotonic() + 60
    while dist.get_rank() == 1 and "behind" not in said and time.monotonic() < limit:
        said = subprocess.run([tutti, "explain"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False).stdout
    dist.all_reduce(torch.ones(3))
    return said


def exits():
    """Rank 0's main thread exits with 3 while a daemon thread waits for rank 1, which does not
    come; TUTTI_TEST_WAY: in what."""
    x = torch.ones(100_000)
    ways = {"call": lambda: dist.all_reduce(x), "recv": lambda: dist.recv(x, 1),
            "wait": lambda: dist.all_reduce(x, async_op=True).wait(),
            "future": lambda: dist.all_reduce(x, async_op=True).get_future().wait()}
    store = dist.distributed_c10d._get_default_store()
    if os.environ["TUTTI_TEST_WAY"] == "then":
        exits_below_then(store)
    if dist.get_rank() == 0:
        thread = threading.Thread(target=ways[os.environ["TUTTI_TEST_WAY"]], daemon=True)
        thread.start()
        wait_until_inside([thread], __file__)  # Below a Future's wait() there is no Python.
        store.set("exits", "")
        sys.exit(3)
    store.wait(["exits"])
    try:
        dist.recv(torch.empty(1), 0, tag=9)
    except dist.DistBackendError:
        os._exit(0)


def exits_below_then(store):
    """Rank 0's main thread exits with 3 while a function that hangs on a Future runs."""
    begun, x = threading.Event(), torch.ones(2**20)
    if dist.get_rank() == 1:
        store.wait(["exits"])
        dist.all_reduce(x)
        os._exit(0)

    def last_a_while(_):
        begun.set()
        threading.Event().wait(0.5)  # The main thread exits meanwhile, if not before.

    dist.all_reduce(x, async_op=True).get_future().then(last_a_while)
    store.set("exits", "")
    begun.wait()
    sys.exit(3)


def forks():
    """A forked child holds this process's descriptors while the group ends: the seconds that takes.
    """
    store, rank, world = dist.distributed_c10d._get_default_store(), dist.get_rank(), \
        dist.get_world_size()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        signal.alarm(30)  # Where the parent waits for it.
        os.read(reading, 1)
        os._exit(0)
    begin = time.monotonic()
    dist.destroy_process_group()
    seconds = time.monotonic() - begin
    os.close(writing)
    os.waitpid(child, 0)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=world)
    return seconds


def main():
    body, backend = sys.argv[1:]
    if backend == "tutti":
        import tutti.torch  # noqa: F401: registers it.
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    result = globals()[body]()
    dist.destroy_process_group()
    print(json.dumps(result), flush=True)
    if backend == "gloo":  # Its threads may abort a process that exits: pytorch/pytorch#179291.
        os._exit(0)


if __name__ == "__main__":
    main()
