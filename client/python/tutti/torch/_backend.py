"""The backend: torch.distributed's collectives over those of tutti.h."""

import ctypes
import weakref

import torch
import torch.distributed as dist

from tutti._handle import Unique
from tutti._library import library
from tutti._overlap import Use, is_any_copying
from tutti._waiting import WITHOUT_WAIT
from tutti.torch import _barrier, _gpu, _group, _job, _patches, _sparse
from tutti.torch._operation import TIMEOUT_UNSET, Operation, collective
from tutti.torch._options import Base, copy_of, options_of
from tutti.torch._tensor import (DTYPES, SUM, bytes_of, check_alike, check_apart, check_lists,
                                 check_root, check_single, check_size, dtype_of, folded, invalid,
                                 is_plain, splits_of, unit_of)
from tutti.torch._work import (BackendError, Completer, GpuWork, Handle, TuttiWork, Works,
                               end_here, last_failure)

_ErrorType = torch._C._distributed_c10d.ErrorType
_ANY_RANK = -1
# What allreduce() looks up at each call.
_STRIDED = torch.strided
_SUM = dist.ReduceOp.SUM
_profiler_enabled = torch.autograd._profiler_enabled
_is_deterministic = torch.are_deterministic_algorithms_enabled
_tutti_all_reduce = library.tutti_all_reduce
_c_void_p, _byref = ctypes.c_void_p, ctypes.byref


class TuttiBackend(Unique, Base):
    """One process group. Made by create(), which init_process_group() and new_group() call.

    members: a _job.Members, this group of the job's ranks. store: torch's, for this group alone.
    """

    def __init__(self, members, store, options, name):
        super().__init__(members.group.rank, members.group.world_size)
        self.members = members
        self.pointer = members.group._handle.pointer
        # Apart, because a message may be waited for while many collectives end.
        self.collectives = Completer(ordered=True)
        self.messages = Completer(ordered=False)
        self._unfinished = self.collectives.unfinished
        self._store = store
        self._options = options
        self.choice = options.choice()  # Of reproducible reductions.
        self._is_reproducible = (lambda: self.choice) if self.choice else _is_deterministic
        self._name = name
        self.title = name + ":"
        self._sequence = 0
        self._barriers = 0
        self._ways = set()  # (verb, peer) of messages, for each of which the worker makes a group.
        self._coalesced = None
        self._aborted = None
        self._error = _ErrorType.SUCCESS
        self._unseen = None  # A failure on a GPU that nobody was notified of.
        self._has_reported = False  # Of any failure on a GPU.
        self._streams = {}  # By GPU.
        self.set_timeout(options._timeout)

    # ---- What it is ----

    supports_coalescing = property(lambda self: True)
    supports_splitting = property(lambda self: not _group.IS_NEEDED)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: False)
    options = property(lambda self: self._options)

    def getBackendName(self):
        return self._name

    name = getBackendName

    def set_timeout(self, timeout):
        self._options._timeout = timeout
        self._own_options = options_of(timeout, self._is_reproducible())

    _set_default_timeout = set_timeout

    def own_options(self):
        """Those of the C ABI for a call with the group's timeout."""
        if self._own_options._obj.reproducible != self._is_reproducible():
            self.set_timeout(self._options._timeout)
        return self._own_options

    def options_for(self, timeout):
        if timeout == TIMEOUT_UNSET:
            return self.own_options()
        return options_of(timeout, self._is_reproducible())

    def _get_sequence_number_for_group(self):
        return self._sequence

    def _set_sequence_number_for_group(self):
        """Numbers begin at 0 on every rank."""

    def get_error(self):
        """How the last failure of an operation of this group is classed; SUCCESS: none failed."""
        return self._error

    # ---- Collectives ----

    def allreduce(self, tensors, opts):
        """The most frequent call, a sum of one tensor, goes without an Operation, which would cost
        more than the sum of a small tensor."""
        tensor = tensors[0] if tensors else None
        if (len(tensors) != 1 or not tensor.is_cpu or tensor.layout is not _STRIDED
                or not tensor.is_contiguous() or tensor.is_neg() or opts.timeout != TIMEOUT_UNSET
                or opts.reduceOp != _SUM or self._coalesced is not None
                or self._aborted is not None or _profiler_enabled() or is_any_copying()
                or len(self._unfinished) >= WITHOUT_WAIT):
            return self._all_reduce_any(tensors, opts)
        dtype = DTYPES.get(tensor.dtype)
        if dtype is None:
            return self._all_reduce_any(tensors, opts)
        self._sequence += 1
        address, work = tensor.data_ptr(), _c_void_p()
        try:
            if _tutti_all_reduce(self.pointer, address, address, tensor.numel(), dtype, SUM,
                                 self.own_options(), _byref(work)) != 0:
                raise last_failure()
            if opts.asyncOp:
                use = Use(tensor, True, False, True, (address, address + tensor.nbytes))
                return TuttiWork(self, self.collectives, tensors, [Handle(work)], tensors,
                                 uses=[use])
            end_here(self, work, tensors)
        except BackendError as failure:
            self.note_failure(failure)
            raise
        if self._unfinished:
            self.collectives.settle()
        return None

    def _all_reduce_any(self, tensors, opts):
        if tensors and tensors[0].layout is torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        return self._all_reduce_dense(tensors, opts)

    @collective("all_reduce")
    def _all_reduce_dense(self, operation, tensors, opts):
        """For several tensors each becomes the reduction of all tensors of all ranks, as with
        Gloo."""
        check_alike(tensors, "all_reduce")
        check_apart(tensors, has_one_result=True)
        op = operation.op(opts.reduceOp, tensors[0].dtype)
        flat = operation.in_place(folded(tensors, opts.reduceOp))
        address = flat.data_ptr()
        operation.call("all_reduce", address, address, flat.numel(), dtype_of(flat), op)
        if len(tensors) > 1:
            for tensor in tensors:
                operation.spread(flat, [tensor])
        return tensors, tensors

    @collective("all_reduce", lambda tensors, _: len({tensor.dtype for tensor in tensors}))
    def allreduce_coalesced(self, operation, tensors, opts):
        if not tensors:
            raise invalid("all_reduce_coalesced requires non-empty tensor list")
        # The library compares those of one operation that it is not given copies of.
        if len({tensor.dtype for tensor in tensors}) > 1 or not all(map(is_plain, tensors)):
            check_apart(tensors, has_one_result=True)
        by_dtype = {}
        for tensor in tensors:
            by_dtype.setdefault(dtype_of(tensor), []).append(operation.in_place(tensor))
        for dtype, flats in sorted(by_dtype.items()):
            op = operation.op(opts.reduceOp, flats[0].dtype)
            addresses = (ctypes.c_void_p * len(flats))(*[flat.data_ptr() for flat in flats])
            counts = (ctypes.c_size_t * len(flats))(*[flat.numel() for flat in flats])
            operation.call("all_reduce_many", addresses, addresses, counts, len(flats), dtype, op)
        return tensors, tensors

    def allreduce_sparse(self, tensors, opts):
        """Sums sparse COO tensors. Blocks, because the ranks first tell how much they have."""
        region, self._coalesced = self._coalesced, None
        try:
            outputs = _sparse.all_reduce(self, tensors, opts)
        finally:
            self._coalesced = region
        return self._started(TuttiWork, self, self.collectives, outputs)

    @collective("reduce")
    def reduce(self, operation, tensors, opts):
        check_root(opts.rootRank, self.size())
        check_single(tensors, "reduce", "tensor list")
        tensor, is_root = tensors[0], self.rank() == opts.rootRank
        op = operation.op(opts.reduceOp, tensor.dtype, is_root)
        source = operation.in_place(tensor).data_ptr() if is_root else operation.source(tensor)
        operation.call("reduce", source, source if is_root else None, tensor.numel(),
                       dtype_of(tensor), op, opts.rootRank)
        return tensors, tensors

    @collective("broadcast")
    def broadcast(self, operation, tensors, opts):
        """For several tensors each becomes the root's with the number opts.rootTensor."""
        check_root(opts.rootRank, self.size())
        if not 0 <= opts.rootTensor < len(tensors):
            raise invalid(f"broadcast: invalid root tensor: {opts.rootTensor} of {len(tensors)}")
        check_alike(tensors, "broadcast")
        check_apart(tensors, has_one_result=True)
        root = tensors[opts.rootTensor]
        flat = operation.in_place(root)
        operation.call("broadcast", flat.data_ptr(), *bytes_of(flat), opts.rootRank)
        for tensor in tensors:
            if tensor is not root:
                operation.spread(flat, [tensor])
        return tensors, tensors

    @collective("all_gather")
    def allgather(self, operation, outputs, inputs, opts):
        """For several inputs each list of outputs gets those of rank 0, then those of rank 1, and
        so on, as with Gloo."""
        check_lists(outputs, inputs, "all_gather")
        for i, parts in enumerate(outputs):
            if len(parts) != self.size() * len(inputs):
                raise invalid(f"all_gather: invalid output tensor list at index {i}: expected "
                              f"length {self.size() * len(inputs)}, got {len(parts)}")
        if len(inputs) == 1:
            self._gather_parts(operation, outputs[0], inputs[0])
        else:
            self._gather_several(operation, outputs, inputs)
        return inputs, [part for parts in outputs for part in parts]

    def _gather_several(self, operation, outputs, inputs):
        check_alike([*inputs, *(part for parts in outputs for part in parts)], "all_gather")
        check_apart([part for parts in outputs for part in parts])
        source = torch.stack(inputs)
        flat = source.new_empty((self.size(), *source.shape))
        for parts in outputs:
            operation.spread(flat, parts)
        operation.call("all_gather", operation.source(source), flat.data_ptr(), *bytes_of(source))

    def _gather_parts(self, operation, parts, source):
        flat = operation.joined(parts, source.dtype, fill=False)
        check_size(parts[self.rank()], source.numel(), "this rank's output of all_gather")
        sides = (operation.source(source), flat.data_ptr())
        if len({part.numel() for part in parts}) == 1:
            operation.call("all_gather", *sides, *bytes_of(source))
            return
        dtype, units = unit_of(source)
        operation.call("all_gather_v", *sides, self._counts(part.numel() * units
                                                            for part in parts), dtype)

    def allgather_coalesced(self, outputs, inputs, opts):
        """outputs[r][i] becomes rank r's inputs[i]."""
        return self._all_gather_lists(outputs, inputs, opts)

    @collective("all_gather", lambda _, inputs, opts: len(inputs))
    def _all_gather_lists(self, operation, outputs, inputs, opts):
        if len({len(inputs), *map(len, outputs)}) > 1:
            raise invalid(f"all_gather_coalesced: {len(inputs)} inputs, but lists of "
                          f"{[len(parts) for parts in outputs]} outputs")
        check_apart([part for parts in outputs for part in parts])
        for i, source in enumerate(inputs):
            self._gather_parts(operation, [parts[i] for parts in outputs], source)
        return inputs, [part for parts in outputs for part in parts]

    def all_gather_single(self, output, source, opts):
        return self.all_gather_single_coalesced([output], [source], opts)

    @collective("all_gather", lambda tensors, *_: len(tensors))
    def all_gather_single_coalesced(self, operation, outputs, inputs, opts):
        check_lists(outputs, inputs, "all_gather")
        check_apart(outputs)
        for output, source in zip(outputs, inputs):
            check_size(output, source.numel() * self.size(), "the output of all_gather")
            operation.call("all_gather", *operation.sides(source, output), *bytes_of(source))
        return inputs, outputs

    @collective("gather")
    def gather(self, operation, outputs, inputs, opts):
        check_root(opts.rootRank, self.size())
        check_single(inputs, "gather", "input tensor list")
        source, out = inputs[0], None
        if self._is_root(opts, outputs, "gather", "output"):
            out = operation.equal_parts(outputs[0], source, fill=False).data_ptr()
        operation.call("gather", operation.source(source), out, *bytes_of(source), opts.rootRank)
        return inputs, [part for parts in outputs for part in parts]

    @collective("scatter")
    def scatter(self, operation, outputs, inputs, opts):
        check_root(opts.rootRank, self.size())
        check_single(outputs, "scatter", "output tensor list")
        output, source = outputs[0], None
        if self._is_root(opts, inputs, "scatter", "input"):
            source = operation.source(operation.equal_parts(inputs[0], output, fill=True))
        operation.call("scatter", source, operation.target(output), *bytes_of(output),
                       opts.rootRank)
        return [part for parts in inputs for part in parts], outputs

    def _is_root(self, opts, lists, verb, what):
        """Whether this rank is the root, which alone has a list with a tensor for each rank."""
        is_root = self.rank() == opts.rootRank
        if is_root:
            check_single(lists, verb, f"{what} list")
        elif lists:
            raise invalid(f"{verb} requires empty {what} on non-root ranks")
        return is_root

    @collective("reduce_scatter")
    def reduce_scatter(self, operation, outputs, inputs, opts):
        check_single(outputs, "reduce_scatter", "output tensor list")
        check_single(inputs, "reduce_scatter", "input list")
        output, parts = outputs[0], inputs[0]
        op = operation.op(opts.reduceOp, output.dtype)
        flat = operation.joined(parts, output.dtype, fill=True)
        check_size(output, parts[self.rank()].numel(), "the output of reduce_scatter")
        if len({part.numel() for part in parts}) == 1:
            operation.reduced(flat, output, "reduce_scatter", op)
        else:
            operation.call("reduce_scatter_v", *operation.sides(flat, output),
                           self._counts(part.numel() for part in parts), dtype_of(output), op)
        return parts, outputs

    def reduce_scatter_single(self, output, source, opts):
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    @collective("reduce_scatter", lambda tensors, *_: len(tensors))
    def reduce_scatter_single_coalesced(self, operation, outputs, inputs, opts):
        check_lists(outputs, inputs, "reduce_scatter")
        check_apart(outputs)
        for output, source in zip(outputs, inputs):
            op = operation.op(opts.reduceOp, output.dtype)
            check_size(source, output.numel() * self.size(), "the input of reduce_scatter")
            operation.reduced(source, output, "reduce_scatter", op)
        return inputs, outputs

    @collective("all_to_all")
    def alltoall(self, operation, outputs, inputs, opts):
        dtype = inputs[0].dtype if inputs else None
        source = operation.joined(inputs, dtype, fill=True)
        flat = operation.joined(outputs, dtype, fill=False)
        counts = [[part.numel() for part in parts] for parts in (inputs, outputs)]
        self._exchange(operation, source, flat, counts, even=False)
        return inputs, outputs

    @collective("all_to_all")
    def all_to_all_single(self, operation, output, source, output_splits, input_splits, opts):
        given, even_in = splits_of(source, input_splits, self.size(), "input")
        taken, even_out = splits_of(output, output_splits, self.size(), "output")
        even = even_in and even_out and not input_splits and not output_splits
        if even:
            check_size(output, source.numel(), "the output of all_to_all_single")
        self._exchange(operation, source, output, [given, taken], even)
        return [source], [output]

    def _exchange(self, operation, source, output, counts, even):
        """all_to_all of flat tensors, whose parts have these counts of elements. even: on every
        rank, so that the call needs no counts."""
        sides = operation.sides(source, output)
        dtype, units = unit_of(source)
        if even:
            operation.call("all_to_all", *sides, counts[0][0] * units, dtype)
            return
        given, taken = (self._counts(count * units for count in part) for part in counts)
        operation.call("all_to_all_v", sides[0], given, sides[1], taken, dtype)

    def _counts(self, numbers):
        return (ctypes.c_size_t * self.size())(*numbers)

    @collective("barrier")
    def barrier(self, operation, opts):
        """Ends after this rank's earlier collectives, also those that nobody waits for."""
        self.end_gpu_works()
        operation.call("barrier")
        operation.follow(list(self._unfinished))
        return (), []

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """Waits for all ranks. Rank 0 names the first rank that is missing, or with wait_all_ranks
        all of them. Goes through torch's store, so that it works while ranks are stuck elsewhere.
        """
        timeout = self._options._timeout if opts.timeout == TIMEOUT_UNSET else opts.timeout
        self._barriers += 1
        _barrier.MonitoredBarrier(self._store, self._barriers, self.rank(), self.size(),
                                  timeout.total_seconds()).run(wait_all_ranks)

    # ---- Between two ranks ----

    def send(self, tensors, dst, tag=0):
        return self._transfer("send", tensors, dst, tag)

    def recv(self, tensors, src, tag=0):
        return self._transfer("recv", tensors, src, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._transfer("recv", tensors, _ANY_RANK, tag, "recvAnySource")

    def _transfer(self, verb, tensors, peer, tag, title=None):
        way = verb, peer
        operation = Operation(self, self.messages, TIMEOUT_UNSET, asynchronous=True,
                              waits=way not in self._ways)
        self._sequence += 1

        def start():
            try:
                check_single(tensors, verb, "tensor list")
                operation.call(verb, operation.host_side(tensors[0], verb == "recv"),
                               *bytes_of(tensors[0]), peer, tag)
                operation.check_uses()
            except BaseException as error:
                operation.refuse_message(verb, peer, tag, error)
                raise
            work = operation.start(title or verb, tensors, tensors)
            self._ways.add(way)
            return work

        return self._started(start)

    # ---- Coalescing ----

    def start_coalescing(self):
        """Until end_coalescing() all operations are asynchronous."""
        self._coalesced = []

    def end_coalescing(self):
        works, self._coalesced = self._coalesced, None
        completers = {work.completer for work in works}
        return Works(self, self.messages if self.messages in completers else self.collectives,
                     works)

    def _started(self, start, *arguments):
        """The work that start() returns. A failure in a region fails the region's work: torch 2.15
        never leaves a region that an exception has passed through."""
        if self._coalesced is None:
            return start(*arguments)
        try:
            work = start(*arguments)
        except Exception as error:
            self._coalesced.append(TuttiWork(self, self.collectives, [], error=error))
            return None
        if work is not None:
            self._coalesced.append(work)
        return work

    # ---- Sub-groups ----

    def split(self, store, ranks, opts):
        """The backend of some ranks of this group. Refused on the others: torch 2.15 crashes if a
        Python backend returns None there."""
        if self.rank() not in ranks:
            raise invalid(f"split_group: rank {self.rank()} is in none of the new groups; list "
                          "every rank, or use new_group()")
        options = copy_of(opts or self._options, self._name)
        options.reproducible = self._options.reproducible  # torch copies its own options alone.
        return TuttiBackend(self.members.subgroup(ranks), store, options, self._name)

    def perform_nocolor_split(self, _device):
        """Ranks outside of a new group need do nothing."""

    def eager_connect_single_device(self, _device):
        """The group is connected from the beginning."""

    # ---- Memory ----

    def supports_tensor_alloc(self, device):
        return isinstance(device, torch.device) and device.type == "cpu"

    def allocate_tensor(self, size, *, dtype, device=None):
        """A tensor of `size` elements in memory shared with the daemon, which operations do not
        copy; in ordinary memory if the segment is full. Freed with the last tensor on it."""
        bytes_ = size * dtype.itemsize
        address = library.tutti_alloc(self.pointer, bytes_) if bytes_ else None
        if address is None:
            return torch.empty(size, dtype=dtype)
        block = (ctypes.c_char * bytes_).from_address(address)
        # The finalizer also keeps the group's handle, without which the memory is unmapped.
        weakref.finalize(block, _free, self.members.group._handle, address).atexit = False
        return torch.frombuffer(block, dtype=dtype, count=size)

    # ---- Ends ----

    def shutdown(self):
        """Leaves the group: the default one is the job, which the last group of it ends. Operations
        on GPUs end first, because the program takes them for done. The failure of one is raised
        unless the program was notified of a failure before."""
        had_reported = self._has_reported
        try:
            self.end_gpu_works()
        except BackendError:
            if not had_reported:
                raise
        finally:
            self._end("the process group was destroyed")

    def abort(self):
        """Ends this rank's operations under way CANCELLED, and refuses further ones. For the
        default group: on all groups of the job, and the other ranks' operations fail and name
        this rank. For another group: on that alone, within 0.1 s, but for a call that blocks in
        another thread until its deadline; the others are not notified."""
        self._end("the process group was aborted")

    def _end(self, why):
        if self._aborted is None:
            self._aborted = why
            self.members.leave()
        self.collectives.close()
        self.messages.close()

    # ---- For operations ----

    def stream_of(self, device):
        """The group's own stream of a GPU."""
        if device not in self._streams:
            self._streams[device] = _gpu.make_stream(device)
        return self._streams[device]

    def end_gpu_works(self):
        """Waits for the operations on GPUs, and raises a failure that nobody was notified of."""
        for work in list(self._unfinished):
            if isinstance(work, GpuWork):
                work.finish()
        error = self.take_unseen()
        if error is not None:
            raise error

    def note_unseen(self, error):
        """Keeps a failure that perhaps no wait() will raise."""
        self._unseen = self._unseen or error

    def note_seen(self, error):
        self._has_reported = True
        if self._unseen is error:
            self._unseen = None

    def take_unseen(self):
        error, self._unseen = self._unseen, None
        self._has_reported = self._has_reported or error is not None
        return error

    def check_aborted(self):
        if self._aborted is not None:
            raise BackendError("CANCELLED", f"{self._aborted}; make a new one")

    def note_failure(self, error):
        """Classes a failure, unless it is a wrong call, after which the group goes on."""
        code = getattr(error, "code", "")
        if code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"):
            return
        if code == "DEADLINE_EXCEEDED":
            self._error = _ErrorType.TIMEOUT
        elif getattr(error, "rank", None) in (None, self.members.job_rank):
            self._error = _ErrorType.COMM_ERROR
        else:
            self._error = _ErrorType.REMOTE_ERROR


def _free(handle, address):
    library.tutti_free(handle.pointer, address)


# ---- Process groups ----

def create(opts, backend_options, name="tutti"):
    """The backend of a new process group; called by torch.distributed."""
    options = copy_of(backend_options, name)
    options._timeout = opts.timeout
    options.group_name = opts.group_id
    options.global_ranks_in_group = opts.global_ranks_in_group
    whole = _default_backend() if opts.global_ranks_in_group else None
    store = opts.store
    if whole is not None:
        members = whole.members.subgroup(opts.global_ranks_in_group)
    else:
        store = store if opts.global_ranks_in_group else _job.given_store(store)
        members = _job.join(store, opts.group_rank, opts.group_size, opts.timeout)
        store = dist.PrefixStore(members.name, store)
    backend = TuttiBackend(members, store, options, name)
    if _group.IS_NEEDED:
        return _group.Group(backend, dist.Backend.backend_capability[name], opts.store)
    if opts.process_group is not None:
        # torch's wrapper for TORCH_DISTRIBUTED_DEBUG=DETAIL does not keep the Python object.
        weakref.finalize(opts.process_group, getattr, backend, "name").atexit = False
    return backend


def _default_backend():
    """The backend of the default process group, if it is Tutti's."""
    cpu = torch.device("cpu")
    if not dist.is_initialized() or cpu not in dist.group.WORLD._device_types:
        return None
    backend = dist.group.WORLD._get_backend(cpu)
    wrapper = getattr(dist.distributed_c10d, "_ProcessGroupWrapper", None)
    while wrapper is not None and isinstance(backend, wrapper):
        backend = backend.wrapped_pg
    return backend if isinstance(backend, TuttiBackend) else None


def register():
    """Registers the backend "tutti"; the entry point of torch.distributed.backends."""
    if not hasattr(dist.Backend, "TUTTI"):
        _patches.patch(lambda: _default_backend() is not None)
        devices = ["cpu", "cuda"] if _gpu.is_available() else ["cpu"]
        dist.Backend.register_backend("tutti", create, extended_api=True, devices=devices)
