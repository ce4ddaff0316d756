"""What ranks of the torch tests check of calls whose outcome torch's reference or Gloo states:
integers' means, lists of tensors and wrong ones, sparse gradients, works that are polled."""

import itertools
import math
import pickle
import signal
import time

import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from details import check_raises, check_usable, default_backend
from training import check

_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32,
             torch.int64, torch.uint64)


def options(kind, **members):
    opts = kind()
    for name, value in members.items():
        setattr(opts, name, value)
    return opts


def means_of_integers():
    """AVG of integers is their sum, divided toward zero."""
    rank, world, avg = dist.get_rank(), dist.get_world_size(), dist.ReduceOp.AVG
    for dtype in _INTEGERS:
        for sign in (1,) if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64) else (
                1, -1):
            mine = [sign * (3 * i + rank + 1) for i in range(2 * world)]
            right = [sign * (sum(3 * i + r + 1 for r in range(world)) // world)
                     for i in range(2 * world)]
            x = torch.tensor(mine).to(dtype)
            given = x.clone()
            dist.all_reduce(x, op=avg)
            check(x.tolist() == right, (dtype, x, right))
            columns = torch.zeros(2 * world, 2, dtype=dtype)[:, 0]
            columns.copy_(given)
            dist.all_reduce(columns, op=avg, async_op=True).wait()
            check(columns.tolist() == right, (dtype, columns, right))
            dist.all_reduce(flat := given.clone(), op=avg, async_op=True).get_future().wait()
            check(flat.tolist() == right, (dtype, flat, right))
            dist.reduce(x := given.clone(), dst=world - 1, op=avg)
            check(x.tolist() == (right if rank == world - 1 else mine), (dtype, x, right))
            out = torch.empty(2, dtype=dtype)
            dist.reduce_scatter_tensor(out, given, op=avg)
            check(out.tolist() == right[2 * rank:2 * rank + 2], (dtype, out, right))
            dist.reduce_scatter(out, list(given.split(2)), op=avg)
            check(out.tolist() == right[2 * rank:2 * rank + 2], (dtype, out, right))
    large = torch.tensor([-8 if rank == 0 else 0]).view(torch.uint64)
    dist.all_reduce(large, op=avg)
    check(int(large.item()) == (2**64 - 8) // world, large)
    mixed = [torch.full((3,), rank + 1), torch.full((2,), rank + 1.0)]
    dist.group.WORLD.allreduce_coalesced(
        mixed, options(c10d.AllreduceCoalescedOptions, reduceOp=avg)).wait()
    check(mixed[0].eq((world + 1) // 2).all() and mixed[1].eq((world + 1) / 2).all(), mixed)
    check_raises("MEAN", lambda: dist.all_reduce(torch.tensor([True]), op=avg))


def lists():
    """Lists of several tensors by the C++ interface of torch, as Gloo takes them."""
    rank, world, pg = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    for op, right in ((dist.ReduceOp.SUM, sum(range(2 * world))), (dist.ReduceOp.MIN, 0),
                      (dist.ReduceOp.MAX, 2 * world - 1),
                      (dist.ReduceOp.PRODUCT, math.prod(range(1, 2 * world + 1)))):
        first = 1 if op == dist.ReduceOp.PRODUCT else 0
        xs = [torch.full((3,), float(2 * rank + i + first)) for i in range(2)]
        pg.allreduce(xs, options(dist.AllreduceOptions, reduceOp=op)).wait()
        check(all(x.eq(right).all() for x in xs), (op, xs, right))
    for root, number in itertools.product(range(world), range(2)):
        xs = [torch.full((2,), 2 * rank + i) for i in range(2)]
        pg.broadcast(xs, options(dist.BroadcastOptions, rootRank=root, rootTensor=number)).wait()
        check(all(x.eq(2 * root + number).all() for x in xs), (root, number, xs))
    for count in (1, 2, 3):
        xs = [torch.zeros(2, 2)[:, 0] + count * rank + i for i in range(count)]
        outs = [[torch.zeros(2, 2)[:, 0] for _ in range(count * world)] for _ in range(count)]
        pg.allgather(outs, xs).wait()
        for out in outs:
            check([x.tolist() for x in out] == [[i, i] for i in range(count * world)], out)
    xs = [torch.sparse_coo_tensor([[rank]], [1.0 + i], (world,)) for i in range(2)]
    future = pg.allreduce(xs).get_future()
    for x in [*future.wait(), *xs]:
        check(x.to_dense().tolist() == [3.0] * world, x)
    check_usable()


def wrong_lists():
    """Lists that Gloo refuses are refused with a sentence, and the group goes on."""
    rank, world, pg = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    backend = default_backend()  # torch's dispatcher lets no empty lists through.
    one, other, two = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    here, there = {"rootRank": rank}, {"rootRank": (rank + 1) % world}

    def broadcast(xs, **members):
        return backend.broadcast(xs, options(dist.BroadcastOptions, **members))

    def gather(outs, xs, **members):
        return backend.gather(outs, xs, options(dist.GatherOptions, **members))

    def scatter(outs, xs, **members):
        return backend.scatter(outs, xs, options(dist.ScatterOptions, **members))

    for words, call, *arguments in (
            ("requires non-empty tensor list", backend.allreduce, [], c10d.AllreduceOptions()),
            ("invalid tensor type", pg.allreduce, [one, other]),
            ("invalid tensor size", pg.allreduce, [one, two]),
            ("invalid tensor layout", pg.allreduce, [one, two.to_sparse()]),
            ("requires non-empty tensor list", backend.allreduce_coalesced, [],
             c10d.AllreduceCoalescedOptions()),
            ("invalid root tensor", broadcast, []),
            ("invalid tensor size", broadcast, [one, two]),
            ("requires non-empty input", backend.allgather, [], [], c10d.AllgatherOptions()),
            ("to have the same length", backend.allgather, [], [one], c10d.AllgatherOptions()),
            ("invalid output tensor list", pg.allgather, [[one] * (world + 1)], [one]),
            ("invalid tensor type", pg.allgather, [[one] * 2 * world] * 2, [one, other]),
            ("single-element tensor list", pg.reduce, [one, one])):
        check_raises(words, lambda: call(*arguments).wait())
        check_usable()
    for words, call, arguments, members in (
            ("invalid root rank", broadcast, ([one],), {"rootRank": -1}),
            ("invalid root rank", broadcast, ([one],), {"rootRank": world}),
            ("invalid root tensor", broadcast, ([one],), here | {"rootTensor": 1}),
            ("invalid root rank", gather, ([], [one]), {"rootRank": world}),
            ("single-element input tensor list", gather, ([], []), here),
            ("single-element input tensor list", gather, ([], [one, one]), here),
            ("single-element output list", gather, ([], [one]), here),
            ("Incorrect output list size", gather, ([[one] * (world + 1)], [one]), here),
            ("invalid tensor type", gather, ([[other] * world], [one]), here),
            ("invalid tensor size", gather, ([[two] * world], [one]), here),
            ("requires empty output", gather, ([[one] * world], [one]), there),
            ("invalid root rank", scatter, ([one], []), {"rootRank": -1}),
            ("single-element output tensor list", scatter, ([], []), here),
            ("single-element input list", scatter, ([one], []), here),
            ("Incorrect input list size", scatter, ([one], [[one] * (world - 1)]), here),
            ("requires empty input", scatter, ([one], [[one] * world]), there)):
        check_raises(words, lambda: call(*arguments, **members).wait())
        check_usable()


class _Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.words = nn.EmbeddingBag(50, 4, sparse=True)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.words(x))


def sparse_gradients():
    """DistributedDataParallel with gradients of which only some rows are there: those of all ranks'
    batches together."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def batch(step, of):
        torch.manual_seed(10 * step + of)
        return torch.randint(50, (4, 5))

    def hook(group, bucket):
        future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / world)

    for kwargs, with_hook in (({}, False), ({"gradient_as_bucket_view": True}, False),
                              ({"static_graph": True}, False), ({}, True)):
        module, alone = _Words(), _Words()
        wrapped = DistributedDataParallel(module, **kwargs)
        if with_hook:
            wrapped.register_comm_hook(None, hook)
        for step in range(3):
            module.zero_grad()
            wrapped(batch(step, rank)).square().mean().backward()
            alone.zero_grad()
            for of in range(world):
                (alone(batch(step, of)).square().mean() / world).backward()
            for mine, right in zip(module.parameters(), alone.parameters()):
                check(mine.grad.layout == right.grad.layout, (mine.grad, kwargs))
                check(torch.allclose(mine.grad.to_dense(), right.grad.to_dense()), (kwargs, step))


def sparse_works():
    """The work of a sparse all_reduce, in each way that it can be waited for."""
    world = dist.get_world_size()
    for wait in (lambda work: work.wait(), lambda work: work.get_future().wait(), poll):
        x = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,))
        work = dist.all_reduce(x, async_op=True)
        wait(work)
        check(x.to_dense().tolist() == [world, 0, 2 * world, 0], x)
        check(work.result()[0].to_dense().tolist() == [world, 0, 2 * world, 0], work.result())


def poll(work):
    """Waits as programs do that have something else to do meanwhile."""
    limit = time.monotonic() + 60
    while not work.is_completed():
        check(time.monotonic() < limit, "it is never completed")
        time.sleep(0.001)


def polled():
    """A work that is polled ends, and then its result is there, and a message's sender."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for x in (torch.ones(10), torch.ones(4, 6)[:, ::2], torch.ones(3 << 20)):
        work = dist.all_reduce(x, async_op=True)
        poll(work)
        check(x.eq(world).all(), x)
        check(work.result()[0].eq(world).all() and work.is_success(), work.result())
        work.wait()
        check(work.is_completed(), "it stays completed")
    pg, store = dist.group.WORLD, dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        check(not work.is_completed(), "the others have not called")
        store.set("go", "")
        poll(work)
        sources = []
        for _ in range(1, world):
            x = torch.empty(1)
            sources.append(dist.recv(x))
            check(x.item() == sources[-1], (x, sources))
        work = pg.recv_anysource([x := torch.empty(1)], 7)
        poll(work)
        check(work._source_rank() == x.item() == world - 1, (work._source_rank(), x))
        check(sorted(sources) == list(range(1, world)), sources)
    else:
        store.wait(["go"])
        poll(dist.all_reduce(torch.ones(3), async_op=True))
        poll(dist.isend(torch.tensor([float(rank)]), 0))
        if rank == world - 1:
            dist.send(torch.tensor([float(rank)]), 0, tag=7)
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
    else:
        work = dist.all_reduce(torch.ones(4), async_op=True)
    poll(work)
    check(not work.is_success(), "the ranks disagreed")
    check_raises("FAILED_PRECONDITION", work.wait)
    check_usable()


class _Interrupted(Exception):
    pass


def refused_by_one():
    """A list that one rank alone gives wrongly fails on the others, with the reason; so does a
    message."""
    rank, world = dist.get_rank(), dist.get_world_size()
    good, bad = [torch.ones(2)], [torch.ones(2), torch.ones(3)]
    words = "invalid tensor size" if rank == 0 else "all_reduce: invalid tensor size"
    check_raises(words, lambda: dist.group.WORLD.allreduce(bad if rank == 0 else good).wait())
    if rank == 0:
        check_raises("single-element", lambda: dist.group.WORLD.send(bad, 1, 5))
        dist.send(good[0], 1, tag=5)
    elif rank == 1:
        check_raises("single-element", lambda: dist.recv(torch.empty(2), 0, tag=5))
        dist.recv(x := torch.empty(2), 0, tag=5)
        check(x.eq(good[0]).all(), x)
    check_usable()
    check(world > 1, world)


def interrupted():
    """A signal handler runs while a call blocks; if it raises, the operation goes on."""
    def handler(*_):
        raise _Interrupted

    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    for number, call in enumerate((dist.all_reduce, lambda x: dist.broadcast(x, 1))):
        x = torch.full((10,), float(rank))
        if rank != 0:
            store.wait([f"interrupted{number}"])
            call(x)
        else:
            before = signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                call(x)
                raise AssertionError("nothing interrupted the call")
            except _Interrupted:
                store.set(f"interrupted{number}", "")
            signal.signal(signal.SIGALRM, before)
        dist.barrier()
        check(x.eq(1 if number else sum(range(world))).all(), x)


def recorded():
    """torch's flight recorder has the calls."""
    c10d._reset_fr_trace("tutti")
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(4), async_op=True).wait()
    entries = pickle.loads(c10d._dump_fr_trace())["entries"]
    told = [(entry["profiling_name"], entry["input_sizes"]) for entry in entries]
    check(told == [("tutti:all_reduce", [[3]]), ("tutti:all_reduce", [[4]])], told)


def calls():
    """The failures, by name."""
    told = {}
    for part in (means_of_integers, lists, wrong_lists, sparse_gradients, sparse_works, polled,
                 refused_by_one, interrupted):
        try:
            part()
        except Exception as error:  # noqa: BLE001: the test shows it.
            told[part.__name__] = f"{type(error).__name__}: {error}"
    return told
