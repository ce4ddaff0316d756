"""Bodies with tensors on GPUs, over the fake driver: torch, which has no GPU here, takes them for
tensors of the CPU, whose memory nobody can read. They take the place of torch.cuda in tutti.torch.
"""

import contextlib
import ctypes
import os
import threading

import torch
import torch.distributed as dist

from training import check

_DEVICE = torch.device("cuda", 0)


class _Driver:
    """The driver, whose functions raise; loaded when it is used first."""

    def __init__(self):
        self._library = None

    def __getattr__(self, name):
        if self._library is None:
            self._library = ctypes.CDLL(os.environ["TUTTI_CUDA_DRIVER"])
            context = ctypes.c_void_p()
            self.cuInit(0)
            self.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            self.cuCtxPushCurrent_v2(context)

        def call(*arguments):
            error = getattr(self._library, name)(*arguments)
            assert error == 0, f"{name}: {error}"

        return call

    def new(self, name, *arguments, kind=ctypes.c_void_p):
        made = kind()
        getattr(self, name)(ctypes.byref(made), *arguments)
        return made


_driver = _Driver()


class _Event:
    def __init__(self, stream):
        self.handle = _driver.new("cuEventCreate", ctypes.c_uint(2))
        _driver.cuEventRecord(self.handle, stream)

    def query(self):
        return _driver._library.cuEventQuery(self.handle) == 0

    def synchronize(self):
        while not self.query():
            pass


class _Stream:
    def __init__(self):
        self._handle = _driver.new("cuStreamCreate", ctypes.c_uint(1))
        self.cuda_stream = self._handle.value

    def record_event(self):
        return _Event(self._handle)

    def wait_event(self, event):
        _driver.cuStreamWaitEvent(self._handle, event.handle, ctypes.c_uint(0))

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def finish(self):
        _driver.cuStreamSynchronize(self._handle)

    def hold(self):
        """Lets the stream wait until the word that it returns is 1."""
        memory = _driver.new("cuMemHostAlloc", ctypes.c_size_t(4096), ctypes.c_uint(1))
        word = ctypes.c_uint64.from_address(memory.value)
        word.value = 0
        _driver.cuStreamWaitValue64_v2(self._handle, memory, ctypes.c_uint64(1), ctypes.c_uint(0))
        return word


class _Gpu:
    """What tutti.torch._gpu has."""

    def __init__(self):
        self.current = _Stream()
        self.kept = []
        self._places = []

    def tensor(self, values):
        """A tensor on the GPU."""
        place = _driver.new("cuMemAlloc_v2", ctypes.c_size_t(values.nbytes), kind=ctypes.c_uint64)
        self._places.append(range(place.value, place.value + values.nbytes))
        memory = (ctypes.c_char * values.nbytes).from_address(place.value)
        made = torch.frombuffer(memory, dtype=values.dtype)
        self._copy(made, values)
        return made

    def read(self, tensor):
        values = torch.empty(tensor.shape, dtype=tensor.dtype)
        self._copy(values, tensor)
        return values

    def queue_copy(self, to, source):
        _driver.cuMemcpyAsync(ctypes.c_uint64(to.data_ptr()), ctypes.c_uint64(source.data_ptr()),
                              ctypes.c_size_t(to.nbytes), self.current._handle)

    def _copy(self, to, source):
        self.queue_copy(to, source)
        self.current.finish()

    def device_of(self, tensor):
        return _DEVICE if any(tensor.data_ptr() in place for place in self._places) else None

    def make_stream(self, device):
        check(device == _DEVICE, device)
        return _Stream()

    def current_stream(self, device):
        check(device == _DEVICE, device)
        return self.current

    @contextlib.contextmanager
    def on_stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def keep(self, tensor, stream):
        self.kept.append((tensor.data_ptr(), stream.cuda_stream))

    def future_of(self, outputs, device, stream):
        future = torch.futures.Future()
        future.set_result(outputs)
        return future


def _install():
    from tutti.torch import _backend, _operation, _work
    gpu = _Gpu()
    for module in (_backend, _operation, _work):
        module._gpu = gpu
    # Its short way is for tensors of the CPU, which torch takes these for.
    _backend.TuttiBackend.allreduce = _backend.TuttiBackend._all_reduce_any
    return gpu


def gpus():
    gpu = _install()
    rank, world = dist.get_rank(), dist.get_world_size()
    x = gpu.tensor(torch.zeros(1000))
    word = gpu.current.hold()
    values = torch.full((1000,), float(rank + 1))
    gpu.queue_copy(x, values)
    works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
    check(works[0].wait() and works[2].wait(), "wait() does not block")
    check(works[2].get_future().done(), "nor does the Future")
    check((x.data_ptr(), gpu.kept[0][1]) in gpu.kept, "the allocator is notified")
    word.value = 1
    check(gpu.read(x).eq(world ** 2 * world * (world + 1) / 2).all(), gpu.read(x))

    dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True).wait()
    parts = gpu.tensor(torch.zeros(world * 4, dtype=torch.int64))
    own = gpu.tensor(torch.full((4,), rank, dtype=torch.int64))
    dist.all_gather_into_tensor(parts, own, async_op=True).wait()
    check(gpu.read(parts).tolist() == [r for r in range(world) for _ in range(4)], parts.shape)
    dist.reduce_scatter_tensor(own, parts)  # Blocks the stream alone.
    check(gpu.read(own).eq(rank * world).all(), gpu.read(own))
    dist.broadcast(own, src=1)
    check(gpu.read(own).eq(world).all(), gpu.read(own))
    with dist._coalescing_manager(async_ops=True) as region:
        dist.all_reduce(own)
        dist.all_reduce(parts)
    region.wait()
    check(gpu.read(own).eq(world ** 2).all(), gpu.read(own))
    dist.barrier()
    try:
        dist.all_gather_into_tensor(torch.empty(8 * world), gpu.tensor(torch.empty(8)))
    except Exception as error:
        check("one device" in str(error), error)
    else:
        raise AssertionError("tensors on two devices are refused")


def gpu_failures():
    """Rank 0 waits for an operation before it fails, so its next call reports it; rank 1 learns it
    when it waits. Then both go on together."""
    gpu = _install()
    rank = dist.get_rank()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    store = dist.distributed_c10d._get_default_store()
    x = gpu.tensor(torch.ones(10))
    told = []
    if rank == 0:
        dist.all_reduce(x, async_op=True).wait()
        store.set("waited", b"")
        while backend._unseen is None:
            backend.collectives.settle()
    else:
        store.wait(["waited"])
        work = dist.all_reduce(x[:9], async_op=True)
        gpu.current.finish()
        _wait_for_failure(work, told)
    try:
        _wait_for_failure(dist.all_reduce(x, async_op=True), told)
    except Exception as error:
        told.append(str(error))
    y = gpu.tensor(torch.ones(10))
    dist.all_reduce(y, async_op=True).wait()
    check(gpu.read(y).eq(dist.get_world_size()).all(), gpu.read(y))
    return told


def gpu_ends():
    """Operations end before the group does; a failure that nobody knows of is raised then, also
    after one on tensors of the host."""
    gpu = _install()
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    told = []
    for count in (10, 10 - rank):
        _fail_on_the_host()
        x = gpu.tensor(torch.full((10,), 2.0))
        word = gpu.current.hold()
        threading.Timer(0.2, setattr, (word, "value", 1)).start()
        try:
            dist.all_reduce(x[:count], op=dist.ReduceOp.PRODUCT)
            dist.destroy_process_group()
            told.append(gpu.read(x).tolist())
        except Exception as error:
            told.append(str(error))
            dist.destroy_process_group()
        dist.init_process_group("tutti", store=store, rank=rank, world_size=world)
    return told


def _fail_on_the_host():
    try:
        dist.all_reduce(torch.ones(3 + dist.get_rank()), op=dist.ReduceOp.MAX)
    except Exception as error:
        check("disagree" in str(error), error)
    else:
        raise AssertionError("ranks that disagree are refused")


def _wait_for_failure(work, told):
    while True:
        try:
            work.wait()
        except Exception as error:
            told.append(str(error))
            return
