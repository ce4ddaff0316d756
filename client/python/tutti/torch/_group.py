"""What stands for a backend where torch lets no Python class be one: before torch 2.14.

There a backend's methods are called in C++ alone. But its creator may return a ProcessGroup, which
init_process_group() and new_group() then use as it is, and torch's C++ code calls its collectives
in Python. Group is that: it passes everything on to a TuttiBackend, under the names of 2.14; torch
2.13 has these already, where a method here has two.
"""

import torch
import torch.distributed as dist

_c10d = torch._C._distributed_c10d
IS_NEEDED = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)


class BackendBase:
    """In the place of torch's base class of backends."""

    Options = _c10d.Backend.Options

    def __init__(self, rank, size):
        self._rank = rank
        self._size = size

    def rank(self):
        return self._rank

    def size(self):
        return self._size


def _passed_on(name, make_options=None):
    """A method that calls the backend's method of that name. make_options: for the last argument,
    which may be missing."""
    def method(self, *arguments, opts=None, **named):
        if opts is not None:
            arguments += (opts,)
        elif make_options and not (arguments and isinstance(arguments[-1], make_options)):
            arguments += (make_options(),)
        return getattr(self._backend, name)(*arguments, **named)

    return method


class Group(dist.ProcessGroup):
    """The process group of a backend, for tensors on the devices. store: as the creator gets it."""

    def __init__(self, backend, devices, store):
        super().__init__(backend.rank(), backend.size())
        self._backend = backend
        self._store = store
        self._devices = [torch.device(device) for device in devices]

    _device_types = property(lambda self: self._devices)

    def _get_backend(self, device):
        if torch.device(device).type not in [mine.type for mine in self._devices]:
            raise RuntimeError(f"No backend type associated with device type {device}")
        return self._backend

    def get_group_store(self):
        return self._store

    # torch's own forms of these four keep the name in a backend.

    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def setGroupDesc(self, desc):
        self._desc = desc

    def getGroupDesc(self):
        return self._desc

    def name(self):
        return self._backend.name()

    _get_backend_name = getBackendName = name

    allreduce = _passed_on("allreduce", _c10d.AllreduceOptions)
    allreduce_coalesced = _passed_on("allreduce_coalesced", _c10d.AllreduceCoalescedOptions)
    broadcast = _passed_on("broadcast", _c10d.BroadcastOptions)
    reduce = _passed_on("reduce", _c10d.ReduceOptions)
    allgather = _passed_on("allgather", _c10d.AllgatherOptions)
    allgather_coalesced = _passed_on("allgather_coalesced", _c10d.AllgatherOptions)
    all_gather_single = _allgather_base = _passed_on("all_gather_single", _c10d.AllgatherOptions)
    all_gather_single_coalesced = allgather_into_tensor_coalesced = _passed_on(
        "all_gather_single_coalesced", _c10d.AllgatherOptions)
    gather = _passed_on("gather", _c10d.GatherOptions)
    scatter = _passed_on("scatter", _c10d.ScatterOptions)
    reduce_scatter = _passed_on("reduce_scatter", _c10d.ReduceScatterOptions)
    reduce_scatter_single = _reduce_scatter_base = _passed_on(
        "reduce_scatter_single", _c10d.ReduceScatterOptions)
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced = _passed_on(
        "reduce_scatter_single_coalesced", _c10d.ReduceScatterOptions)
    alltoall = _passed_on("alltoall", _c10d.AllToAllOptions)
    all_to_all_single = alltoall_base = _passed_on("all_to_all_single", _c10d.AllToAllOptions)
    send = _passed_on("send")
    recv = _passed_on("recv")
    recv_anysource = _passed_on("recv_anysource")
    set_timeout = _passed_on("set_timeout")
    shutdown = _passed_on("shutdown")
    abort = _passed_on("abort")
    _get_sequence_number_for_group = _passed_on("_get_sequence_number_for_group")
    _set_sequence_number_for_group = _passed_on("_set_sequence_number_for_group")

    def barrier(self, opts=None):
        return self._backend.barrier(opts or _c10d.BarrierOptions())

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        opts = _c10d.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        return self._backend.monitored_barrier(opts, wait_all_ranks)

    def _start_coalescing(self, _device):
        self._backend.start_coalescing()

    def _end_coalescing(self, _device):
        return self._backend.end_coalescing()
