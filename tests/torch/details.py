"""What ranks of the torch tests check of one group in one run: wrong calls inside of coalescing
regions, works that are dropped, the profiler, and the like."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from tutti.torch._work import Completer

from training import batch, check, model


def default_backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def check_usable():
    x = torch.ones(3)
    dist.all_reduce(x)
    check(x.eq(dist.get_world_size()).all(), x)


def check_raises(words, call):
    """The error that call() raises in time, with these words."""
    begin = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        check(words in str(error), error)
        check(time.monotonic() - begin < 20, "it was late")
        return error
    raise AssertionError(f"no error: {words}")


def batched_messages():
    """A message of a batch that is refused fails the batch, and nothing after it. Before torch 2.14
    a batch is one message after the other."""
    rank = dist.get_rank()
    peer = 1 - rank
    for to_self in (False, True) if type(dist.group.WORLD) is dist.ProcessGroup else (False,):
        x, y = torch.full((3,), float(rank)), torch.empty(3)
        ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
        if to_self:
            ops.insert(1, dist.P2POp(dist.isend, x, rank))
        works = dist.batch_isend_irecv(ops)
        if to_self:
            check_raises("this rank", works[0].wait)
        else:
            for work in works:
                work.wait()
        check(y.eq(peer).all(), y)
        check_usable()
    check(default_backend().get_error().name == "SUCCESS", "a wrong call is no failure")


def sparse_refused():
    """One rank gives an op that sparse tensors do not have; and a sum inside of a region."""
    def ones():
        return torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1), (4,))

    op = dist.ReduceOp.MAX if dist.get_rank() == 0 else dist.ReduceOp.SUM
    check_raises("use to_dense()" if dist.get_rank() == 0 else "rank 0",
                 lambda: dist.all_reduce(ones(), op=op))
    x = ones()
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"),
                                                   async_ops=True) as region:
        opts = dist.AllreduceOptions()
        opts.asyncOp = True
        dist.group.WORLD.allreduce([x], opts)
    region.wait()
    check(x.to_dense().tolist() == [0, dist.get_world_size(), 0, 0], x)


def dropped():
    """Operations whose works nobody keeps end all the same, before a barrier does."""
    world = dist.get_world_size()
    large = [torch.full((2 << 20,), float(i)) for i in range(4)]
    columns = torch.ones(4, 6)[:, ::2]
    for x in [*large, columns]:
        dist.all_reduce(x, async_op=True)
    dist.barrier()
    for i, x in enumerate(large):
        check(x.eq(i * world).all(), (i, x))
    check(columns.eq(world).all(), columns)
    check(not default_backend().collectives.unfinished, "all have ended")
    for count in (1, 1000, 2 << 20):
        tensors = [torch.full((count,), float(i)) for i in range(6)]
        for x in tensors:
            last = dist.all_reduce(x, async_op=True)
        last.wait()
        for i, x in enumerate(tensors):
            check(x.eq(i * world).all(), f"{count}: who waits for the last one has waited for {i}")


def profiled():
    """Under the profiler a wait is for one operation alone."""
    rank = dist.get_rank()
    received = torch.empty(2)
    with torch.autograd.profiler.profile() as profile:
        if rank == 0:
            work = dist.irecv(received, 1)
            future = work.get_future()
            check(not work.get_future().done() and not future.done(), "it is not sent yet")
        check_usable()
        dist.barrier()
        if rank == 1:
            dist.send(torch.ones(2), 0)
        else:
            work.wait()
            check(received.eq(1).all(), received)
        columns = torch.zeros(4, 6)[:, ::2]
        for _ in range(100):  # Whichever thread ends one, the next may have its tensor.
            dist.all_reduce(columns)
    names = [event.name for event in profile.function_events]
    for name in ("all_reduce", "barrier", "send" if rank else "recv"):
        check(f"tutti:{name}" in names, names)
    module = DistributedDataParallel(model())
    module.register_comm_hook(None, default_hooks.fp16_compress_hook)
    with torch.autograd.profiler.profile():
        module(batch(0)).square().mean().backward()
    mine = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    theirs = mine.clone()
    dist.broadcast(theirs, 0)
    check(mine.equal(theirs), "gradients differ")


def own_options():
    """Making a group leaves the caller's options as they are."""
    options = torch._C._distributed_c10d.Backend.Options("tutti", timeout=timedelta(seconds=77))
    dist.new_group(timeout=timedelta(seconds=5), pg_options=options)
    check(options._timeout == timedelta(seconds=77) and options.group_name != "tutti", options)


def barrier_keys():
    """A monitored barrier leaves little behind in the store."""
    backend = default_backend()
    for _ in range(3):
        dist.group.WORLD.monitored_barrier()
    dist.barrier()
    if dist.get_rank() == 0:
        for key in ("barrier1/rank1", "barrier3/rank1", "barrier2/outcome"):
            check(not backend._store.check([f"tutti/{key}"]), key)
    dist.barrier()


def without_cpu():
    """A group beside a default group that has no backend for CPU tensors."""
    store, rank, world = dist.distributed_c10d._get_default_store(), dist.get_rank(), \
        dist.get_world_size()
    dist.destroy_process_group()
    dist.Backend.register_backend("nothing", lambda opts, _: dist.ProcessGroup(opts.group_rank,
                                                                                opts.group_size),
                                  extended_api=True, devices=["cuda"])
    dist.init_process_group("nothing", store=dist.PrefixStore("nothing", store), rank=rank,
                            world_size=world)
    group = dist.new_group(backend="tutti")
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    check(x.eq(world).all(), x)


def overlapping():
    """A list that names a tensor twice is right; two results in one place are refused, and so is a
    tensor that an operation under way has, until that was waited for."""
    world, total = dist.get_world_size(), dist.get_world_size() * (dist.get_world_size() + 1) / 2
    for count in (10, 300_000):
        tied, other = torch.full((count,), dist.get_rank() + 1.0), torch.full((count,), 2.0)
        with dist._coalescing_manager():
            for x in (tied, other, tied):
                dist.all_reduce(x)
        check(tied.eq(total).all(), tied)
        check(other.eq(2 * world).all(), other)
        whole, own = torch.ones(2 * count), torch.ones(count)
        shifted = whole[1:count + 1]
        check_raises("tensors 0 and 1 of the list overlap",
                     lambda: dist.all_reduce_coalesced([whole[:count], shifted]))
        check_raises("outputs 0 and 1 of the list overlap",
                     lambda: dist.all_gather([whole[:count], shifted], own))
        check_raises("overlap in part", lambda: dist.all_gather_into_tensor(whole, shifted))
        check_usable()
    x = torch.ones(10)
    work = dist.all_reduce(x, async_op=True)
    check_raises("wait for that first", lambda: dist.all_reduce(x))
    work.wait()
    dist.all_reduce(x)
    check(x.eq(world * world).all(), x)


def overlapping_columns():
    """Tensors that are not contiguous: of one call's outputs, and of operations under way."""
    world, group = dist.get_world_size(), dist.group.WORLD
    for pick in (lambda x: (x[::2], x[2:5, 1:3]), lambda x: (x[2:3], x[:, 1]),
                 lambda x: (x[:, 0], x[:, 0]), lambda x: (x[1:4], x.t()[1:3])):
        one, other = pick(torch.zeros(6, 4))
        own = torch.ones_like(one)
        options = torch._C._distributed_c10d.AllgatherOptions()
        alike = one.shape == other.shape
        calls = [lambda: dist.all_gather([one, other], own)]
        if one.data_ptr() != other.data_ptr():  # Else they are one tensor, which gets one value.
            calls += [lambda: dist.all_reduce_coalesced([one, other])]
        if alike:
            lists = [[one, other, own * 2, own * 3], [own * i for i in range(4)]]
            calls += [lambda: group.allgather(lists, [own, own], options),
                      lambda: dist.all_to_all([one, other], [own, own]),
                      lambda: group.allgather_coalesced([[one, own], [other, own * 2]], [own, own])]
        integers = torch._C._distributed_c10d.AllreduceCoalescedOptions()
        calls += [lambda: group.allreduce_coalesced([one, one.view(torch.int32)], integers).wait()]
        for call in calls:
            check_raises("overlap; use separate tensors", call)
            check_usable()
        check(one.eq(0).all() and other.eq(0).all(), "a refused call writes nothing")
    x = torch.ones(6, 4)
    work = dist.all_reduce(x[:, ::2], async_op=True)
    for call in (lambda: dist.all_reduce(x), lambda: dist.all_reduce(x[:, ::2]),
                 lambda: dist.all_reduce(x[1], async_op=True),
                 lambda: dist.broadcast(x[:, 0], 0)):
        check_raises("wait for that first", call)
    dist.all_reduce(x[:, 1::2])
    work.wait()
    check(x.eq(world).all(), x)
    work = dist.all_reduce(x, async_op=True)
    check_raises("wait for that first", lambda: dist.all_reduce(x[:, ::2]))
    work.wait()
    dist.all_reduce(x[:, ::2])
    check(x[0].tolist() == [world ** 3, world ** 2] * 2, x)


def works_that_end_early():
    """Another thread ends a work as soon as it is kept; a group ends before its works do."""
    columns = torch.ones(4, 6)[:, ::2]

    def keep_and_end(completer, work):
        keep(completer, work)
        work.end()

    keep, Completer.keep = Completer.keep, keep_and_end
    try:
        dist.all_reduce(columns, async_op=True)
        dist.all_reduce(columns, async_op=True)
    finally:
        Completer.keep = keep
    group = dist.new_group()
    work = dist.irecv(columns, 1 - dist.get_rank(), group=group)
    check_raises("wait for that first", lambda: dist.all_reduce(columns))
    dist.destroy_process_group(group)
    dist.all_reduce(columns)
    check(columns.eq(dist.get_world_size() ** 3).all(), columns)
    del work


def one_mean_of_integers():
    """A tensor that a list names twice, also by another view, is divided once."""
    for count in (10, 300_000):
        tied, columns = torch.full((count,), 6), torch.full((count, 2), 6)
        dist.all_reduce_coalesced([tied, tied.view(-1), tied[:]], op=dist.ReduceOp.AVG)
        check(tied.eq(6).all(), tied)
        dist.all_reduce_coalesced([columns[:, 0], tied, columns[:, 0]], op=dist.ReduceOp.AVG)
        check(columns.eq(6).all(), columns)


def details():
    """The failures, by name."""
    told = {}
    for part in (batched_messages, sparse_refused, dropped, profiled, own_options, barrier_keys,
                 overlapping, overlapping_columns, works_that_end_early, one_mean_of_integers,
                 without_cpu):
        try:
            part()
        except Exception as error:  # noqa: BLE001: the test shows it.
            told[part.__name__] = f"{type(error).__name__}: {error}"
    return told
