"""The backend: torch.distributed's collectives over those of tutti.h."""

import ctypes
from collections import defaultdict

import torch
import torch.distributed as dist

from tutti._error import Error
from tutti._library import Options, library
from tutti.torch import _job
from tutti.torch._work import BackendError, Completer, Handle, TuttiWork, check

_Base = getattr(dist, "BackendBase", None) or torch._C._distributed_c10d.Backend

# By tutti_dtype. Other dtypes are moved, not reduced, as bytes.
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3, torch.int8: 4,
           torch.uint8: 5, torch.int32: 6, torch.int64: 7, torch.bool: 8, torch.int16: 9,
           torch.uint16: 10, torch.uint32: 11, torch.uint64: 12}
_U8 = 5
_REDUCE_OPS = {dist.ReduceOp.SUM: 0, dist.ReduceOp.AVG: 1, dist.ReduceOp.MIN: 2,
               dist.ReduceOp.MAX: 3, dist.ReduceOp.PRODUCT: 4, dist.ReduceOp.BAND: 5,
               dist.ReduceOp.BOR: 6, dist.ReduceOp.BXOR: 7, dist.ReduceOp.PREMUL_SUM: 8}
_PREMUL_SUM = 8


def _invalid(message):
    return BackendError("INVALID_ARGUMENT", message)


class TuttiBackend(_Base):
    """One process group. Made by create(), which init_process_group() and new_group() call."""

    def __init__(self, group, options):
        super().__init__(group.rank, group.world_size)
        self._group = group
        self._pointer = group._handle.pointer
        self._options = options
        self._completer = Completer()
        self._sequence = 0

    # ---- What it is ----

    supports_coalescing = property(lambda self: False)
    supports_splitting = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: False)
    options = property(lambda self: self._options)

    def getBackendName(self):
        return "tutti"

    name = getBackendName

    def set_timeout(self, timeout):
        self._options._timeout = timeout

    _set_default_timeout = set_timeout

    def _get_sequence_number_for_group(self):
        return self._sequence

    def _set_sequence_number_for_group(self):
        self._sequence = 0

    # ---- Collectives ----

    def allreduce(self, tensors, opts):
        run = self._run(opts)
        for tensor in tensors:
            flat = run.in_place(tensor)
            run.call("all_reduce", flat.data_ptr(), flat.data_ptr(), flat.numel(), _dtype_of(flat),
                     run.op(opts.reduceOp))
        return run.work(tensors)

    def allreduce_coalesced(self, tensors, opts):
        run = self._run(opts)
        by_dtype = defaultdict(list)
        for tensor in tensors:
            by_dtype[_dtype_of(tensor)].append(run.in_place(tensor))
        for dtype, flats in by_dtype.items():
            addresses = (ctypes.c_void_p * len(flats))(*[flat.data_ptr() for flat in flats])
            counts = (ctypes.c_size_t * len(flats))(*[flat.numel() for flat in flats])
            run.call("all_reduce_many", addresses, addresses, counts, len(flats), dtype,
                     run.op(opts.reduceOp))
        return run.work(tensors)

    def reduce(self, tensors, opts):
        run = self._run(opts)
        for tensor in tensors:
            flat = run.in_place(tensor)
            out = flat.data_ptr() if self.rank() == opts.rootRank else None
            run.call("reduce", flat.data_ptr(), out, flat.numel(), _dtype_of(flat),
                     run.op(opts.reduceOp), opts.rootRank)
        return run.work(tensors)

    def broadcast(self, tensors, opts):
        run = self._run(opts)
        for tensor in tensors:
            flat = run.in_place(tensor)
            run.call("broadcast", flat.data_ptr(), *_bytes_of(flat), opts.rootRank)
        return run.work(tensors)

    def allgather(self, outputs, inputs, opts):
        run = self._run(opts)
        for output, source in zip(outputs, inputs):
            flat = run.joined(output, source, self.size())
            run.call("all_gather", *run.sides(source, flat), *_bytes_of(source))
        return run.work([t for output in outputs for t in output])

    def all_gather_single(self, output, source, opts):
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        run = self._run(opts)
        for output, source in zip(outputs, inputs):
            _check_size(output, source.numel() * self.size(), "the output of all_gather")
            run.call("all_gather", *run.sides(source, output), *_bytes_of(source))
        return run.work(outputs)

    def gather(self, outputs, inputs, opts):
        run = self._run(opts)
        for i, source in enumerate(inputs):
            at_root = self.rank() == opts.rootRank
            flat = run.joined(outputs[i], source, self.size()) if at_root else None
            run.call("gather", *run.sides(source, flat), *_bytes_of(source), opts.rootRank)
        return run.work([t for output in outputs for t in output])

    def scatter(self, outputs, inputs, opts):
        run = self._run(opts)
        for i, output in enumerate(outputs):
            at_root = self.rank() == opts.rootRank
            flat = _concatenated(inputs[i], output, self.size()) if at_root else None
            run.call("scatter", *run.sides(flat, output), *_bytes_of(output), opts.rootRank)
        return run.work(outputs)

    def reduce_scatter(self, outputs, inputs, opts):
        flats = [_concatenated(parts, output, self.size())
                 for output, parts in zip(outputs, inputs)]
        return self.reduce_scatter_single_coalesced(outputs, flats, opts)

    def reduce_scatter_single(self, output, source, opts):
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        run = self._run(opts)
        for output, source in zip(outputs, inputs):
            _check_size(source, output.numel() * self.size(), "the input of reduce_scatter")
            dtype = _dtype_of(output)
            run.call("reduce_scatter", *run.sides(source, output), output.numel(), dtype,
                     run.op(opts.reduceOp))
        return run.work(outputs)

    def alltoall(self, outputs, inputs, opts):
        run = self._run(opts)
        source = _concatenated(inputs, inputs[0], self.size())
        flat = run.joined(outputs, inputs[0], self.size())
        run.call("all_to_all", *run.sides(source, flat), *_bytes_of(inputs[0]))
        return run.work(outputs)

    def all_to_all_single(self, output, source, output_splits, input_splits, opts):
        for splits in (output_splits, input_splits):
            if len(set(splits)) > 1:
                raise BackendError("UNIMPLEMENTED", "all_to_all_single takes no uneven splits yet")
        _check_size(output, source.numel(), "the output of all_to_all_single")
        for tensor in (source, output):
            if not tensor.dim() or tensor.shape[0] % self.size() != 0:
                raise _invalid(f"all_to_all_single: shape {list(tensor.shape)} cannot be cut into "
                               f"{self.size()} along its first axis")
        run = self._run(opts)
        count, dtype = _bytes_of(source)
        run.call("all_to_all", *run.sides(source, output), count // self.size(), dtype)
        return run.work([output])

    def barrier(self, opts):
        run = self._run(opts)
        run.call("barrier")
        return run.work([])

    def send(self, tensors, dst, tag=0):
        raise BackendError("UNIMPLEMENTED", "send and recv are not there yet")

    recv = recv_anysource = send

    # ---- Ends ----

    def shutdown(self):
        """Ends the completer; the job is left with the last process group."""
        self._completer.close()

    def abort(self):
        """Ends every operation under way CANCELLED, on this rank's groups of the job."""
        try:
            self._group.leave()
        except Error:
            pass
        self._completer.close()

    # ---- Inside ----

    def _run(self, opts):
        self._sequence += 1
        return _Run(self, opts)


class _Run:
    """The calls of one operation of torch: they block if it does."""

    def __init__(self, backend, opts):
        self._backend = backend
        timeout = opts.timeout
        seconds = timeout.total_seconds()
        if seconds < 0:
            seconds = backend._options._timeout.total_seconds()
        self._options = Options(ctypes.sizeof(Options), None,
                                min(max(1, round(seconds * 1000)), 2**31 - 1), 1.0)
        self._asynchronous = opts.asyncOp
        self._handles = []
        self._keep = []
        self._finish = []

    def call(self, verb, *arguments):
        """Calls tutti_<verb> with the arguments between the group and the options."""
        function = getattr(library, "tutti_" + verb)
        work = ctypes.c_void_p()
        check(function(self._backend._pointer, *arguments, ctypes.byref(self._options),
                       ctypes.byref(work) if self._asynchronous else None))
        if self._asynchronous:
            self._handles.append(Handle(work))

    def op(self, reduce_op):
        """The number of the reduction."""
        number = _REDUCE_OPS.get(getattr(reduce_op, "op", reduce_op))
        if number is None:
            raise _invalid(f"{reduce_op} is not supported; use SUM, AVG, MIN, MAX, PRODUCT, BAND, "
                           "BOR, BXOR or PREMUL_SUM")
        if number == _PREMUL_SUM:
            self._options.factor = float(reduce_op.factor)
        return number

    def in_place(self, tensor):
        """Contiguous memory with the tensor's elements, written back if it is a copy."""
        flat = _source_of(tensor)
        self._keep.append(flat)
        if flat is not tensor:
            self._finish.append(lambda: tensor.copy_(flat))
        return flat

    def sides(self, source, output):
        """The addresses of both sides, which have one dtype; what is not contiguous is copied."""
        if source is not None and output is not None and source.dtype != output.dtype:
            raise _invalid(f"the input is of {source.dtype}, but the output of {output.dtype}")
        flat = None if source is None else _source_of(source)
        out = None if output is None else _target_of(output)
        self._keep.append((flat, out))
        if out is not output:
            self._finish.append(lambda: output.copy_(out.view(output.shape)))
        return (None if flat is None else flat.data_ptr(), None if out is None else out.data_ptr())

    def joined(self, outputs, like, parts):
        """A tensor whose parts are copied to the outputs when it is filled."""
        if len(outputs) != parts:
            raise _invalid(f"there are {len(outputs)} outputs for {parts} ranks")
        for output in outputs:
            _check_size(output, like.numel(), "an output")
        flat = torch.empty(parts * like.numel(), dtype=like.dtype)

        def finish():
            for i, output in enumerate(outputs):
                output.copy_(flat[i * like.numel():(i + 1) * like.numel()].view(output.shape))

        self._finish.append(finish)
        return flat

    def work(self, outputs):
        finishes = self._finish

        def finish():
            for function in finishes:
                function()

        return TuttiWork(self._backend._completer, outputs, self._handles, self._keep, finish)


def _source_of(tensor):
    if tensor.device.type != "cpu":
        raise BackendError("UNIMPLEMENTED", f"tensors on {tensor.device} are not supported yet; "
                                            "use a CPU tensor")
    if tensor.is_sparse:
        raise _invalid("a sparse tensor is not supported; use to_dense()")
    return tensor.contiguous()


def _target_of(tensor):
    _source_of(tensor[:0] if tensor.dim() else tensor)
    return tensor if tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype)


def _dtype_of(tensor):
    if tensor.dtype not in _DTYPES:
        raise _invalid(f"{tensor.dtype} cannot be reduced; convert the tensor")
    return _DTYPES[tensor.dtype]


def _bytes_of(tensor):
    """The count and dtype with which a tensor's elements are moved."""
    if tensor.dtype in _DTYPES and tensor.dtype != torch.bool:
        return tensor.numel(), _DTYPES[tensor.dtype]
    return tensor.numel() * tensor.element_size(), _U8


def _check_size(tensor, count, what):
    if tensor.numel() != count:
        raise _invalid(f"{what} has {tensor.numel()} elements, but must have {count}")


def _concatenated(parts, like, count):
    if len(parts) != count:
        raise _invalid(f"there are {len(parts)} inputs for {count} ranks")
    for part in parts:
        _check_size(part, like.numel(), "an input")
    return torch.cat([part.reshape(-1) for part in parts])


# ---- Process groups ----

def create(opts, backend_options):
    """The backend of a new process group; called by torch.distributed."""
    options = backend_options or _Base.Options("tutti", timeout=opts.timeout)
    options._timeout = opts.timeout
    options.group_name = opts.group_id
    options.global_ranks_in_group = opts.global_ranks_in_group
    whole = _default_group()
    if whole is not None and opts.global_ranks_in_group:
        return TuttiBackend(whole.subgroup(opts.global_ranks_in_group), options)
    group = _job.join(opts.store, opts.group_rank, opts.group_size, opts.timeout)
    return TuttiBackend(group, options)


def _default_group():
    """The Group of the default process group, if that is ours."""
    if not dist.is_initialized():
        return None
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    return backend._group if isinstance(backend, TuttiBackend) else None


def register():
    """Registers the backend "tutti"; the entry point of torch.distributed.backends."""
    if not hasattr(dist.Backend, "TUTTI"):
        dist.Backend.register_backend("tutti", create, extended_api=True, devices=["cpu"])
