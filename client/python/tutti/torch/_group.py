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


# How the fields of torch's options are called as arguments.
_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def _as_list(value):
    return [value] if isinstance(value, torch.Tensor) else value


def _as_lists(value):
    return [value] if value and isinstance(value[0], torch.Tensor) else value


def _pop(named, names):
    """The argument of one of these names."""
    for name in names:
        if name in named:
            return named.pop(name)
    raise TypeError(f"the argument {names[0]!r} is missing")


def _options(make, fields, arguments, named):
    """The options among the arguments that follow the tensors, or new ones of their fields."""
    opts = named.pop("opts", None)
    if arguments and isinstance(arguments[-1], make):
        *arguments, opts = arguments
    given = dict(zip(fields, arguments)) | {name: named.pop(name) for name in fields
                                            if name in named}
    if named or len(arguments) > len(fields) or (opts is not None and given):
        raise TypeError(f"unexpected arguments: {[*arguments, *named]}")
    opts = make() if opts is None else opts
    for name, value in given.items():
        if value is not None:
            setattr(opts, _FIELDS[name], value)
    return opts


def _collective(name, make_options, *parameters, fields=()):
    """A method that calls the backend's method of that name, in every form that torch's own has.
    parameters: of each, what it becomes (None: it stays) and its names. fields: of the options,
    that may be given in their place, in this order."""
    def method(self, *arguments, **named):
        count = min(len(arguments), len(parameters))
        values = list(arguments[:count])
        values += [_pop(named, names) for _, *names in parameters[count:]]
        opts = _options(make_options, fields, arguments[count:], named)
        values = [value if kind is None else kind(value)
                  for value, (kind, *_) in zip(values, parameters)]
        return getattr(self._backend, name)(*values, opts)

    return method


def _passed_on(name, *parameters):
    """A method that calls the backend's method of that name, without options."""
    def method(self, *arguments, **named):
        missing = [_pop(named, [parameter]) for parameter in parameters[len(arguments):]
                   if parameter in named]
        return getattr(self._backend, name)(*arguments, *missing, **named)

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

    allreduce = _collective("allreduce", _c10d.AllreduceOptions,
                            (_as_list, "tensors", "tensor"), fields=("op", "timeout"))
    allreduce_coalesced = _collective("allreduce_coalesced", _c10d.AllreduceCoalescedOptions,
                                      (None, "tensors"))
    broadcast = _collective("broadcast", _c10d.BroadcastOptions,
                            (_as_list, "tensors", "tensor"), fields=("root", "timeout"))
    reduce = _collective("reduce", _c10d.ReduceOptions,
                         (_as_list, "tensors", "tensor"), fields=("root", "op", "timeout"))
    allgather = _collective("allgather", _c10d.AllgatherOptions, (_as_lists, "output_tensors"),
                            (_as_list, "input_tensors", "input_tensor"), fields=("timeout",))
    allgather_coalesced = _collective("allgather_coalesced", _c10d.AllgatherOptions,
                                      (None, "output_lists"), (None, "input_list"))
    all_gather_single = _allgather_base = _collective(
        "all_gather_single", _c10d.AllgatherOptions, (None, "output"), (None, "input"),
        fields=("timeout",))
    all_gather_single_coalesced = allgather_into_tensor_coalesced = _collective(
        "all_gather_single_coalesced", _c10d.AllgatherOptions, (None, "outputs"),
        (None, "inputs"))
    gather = _collective("gather", _c10d.GatherOptions, (_as_lists, "output_tensors"),
                         (_as_list, "input_tensors", "input_tensor"), fields=("root", "timeout"))
    scatter = _collective("scatter", _c10d.ScatterOptions,
                          (_as_list, "output_tensors", "output_tensor"),
                          (_as_lists, "input_tensors"), fields=("root", "timeout"))
    reduce_scatter = _collective("reduce_scatter", _c10d.ReduceScatterOptions,
                                 (_as_list, "output_tensors", "output"),
                                 (_as_lists, "input_tensors", "input"),
                                 fields=("op", "timeout"))
    reduce_scatter_single = _reduce_scatter_base = _collective(
        "reduce_scatter_single", _c10d.ReduceScatterOptions, (None, "outputTensor", "output"),
        (None, "inputTensor", "input"), fields=("op", "timeout"))
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced = _collective(
        "reduce_scatter_single_coalesced", _c10d.ReduceScatterOptions, (None, "outputs"),
        (None, "inputs"))
    alltoall = _collective("alltoall", _c10d.AllToAllOptions, (None, "output_tensors"),
                           (None, "input_tensors"))
    all_to_all_single = alltoall_base = _collective(
        "all_to_all_single", _c10d.AllToAllOptions, (None, "output"), (None, "input"),
        (None, "output_split_sizes"), (None, "input_split_sizes"), fields=("timeout",))
    barrier = _collective("barrier", _c10d.BarrierOptions, fields=("timeout",))
    send = _passed_on("send", "tensors", "dstRank", "tag")
    recv = _passed_on("recv", "tensors", "srcRank", "tag")
    recv_anysource = _passed_on("recv_anysource")
    set_timeout = _passed_on("set_timeout")
    shutdown = _passed_on("shutdown")
    abort = _passed_on("abort")
    _get_sequence_number_for_group = _passed_on("_get_sequence_number_for_group")
    _set_sequence_number_for_group = _passed_on("_set_sequence_number_for_group")

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        opts = _c10d.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        return self._backend.monitored_barrier(opts, wait_all_ranks)

    def _start_coalescing(self, _device):
        self._backend.start_coalescing()

    def _end_coalescing(self, _device):
        return self._backend.end_coalescing()
