"""Groups of ranks, their collectives, and work under way."""

import collections
import ctypes
import functools
import math
import os
import sys
import weakref

import numpy

from tutti import _many, _numbers, _overlap, _refusal, _stream, _tensor, _traced
from tutti._dtype import DTYPES, numpy_dtype
from tutti._error import Error, invalid
from tutti._handle import Handle, Unique, leave_at_exit, stay_at_exit
from tutti._library import JoinOptions, Options, check, last_error, library
from tutti._tensor import Tensor
from tutti._waiting import COPIED_BYTES_MAX, WITHOUT_WAIT, interruptible
from tutti._work import Work, drop_ended, keep, wait_here


def _text(value, what):
    try:
        text = None if value is None else os.fsencode(value)
    except TypeError:
        raise invalid(f"{what} {value!r} is no text; convert it with str()") from None
    if text is not None and b"\0" in text:  # C would end there.
        raise invalid(f"{what} holds a NUL character")
    return text


def join(job=None, rank=None, world_size=None, timeout=None, socket=None, token=None,
         reproducible=None, verify=None):
    """Joins a job, waits until all its ranks have joined, and returns its Group.

    job: name of the job. rank: this rank, from 0. world_size: number of ranks of the job. timeout:
    seconds to wait for the other ranks, and the default timeout of operations. socket: path of the
    agent's socket. token: the job's token. reproducible, verify: of the calls that do not say; the
    same on all ranks.

    What is None is taken from TUTTI_JOB, TUTTI_RANK, TUTTI_WORLD_SIZE, TUTTI_TIMEOUT (in seconds;
    else 30), TUTTI_SOCKET (else /run/tutti/tuttid.sock), TUTTI_TOKEN, TUTTI_REPRODUCIBLE and
    TUTTI_VERIFY (0 or 1). Rank, world size and the job's name may also be those of torchrun, Open
    MPI, PMI or Slurm. Ctrl-C ends the wait.

    Raises Error: INVALID_ARGUMENT if an argument is missing or wrong; UNAVAILABLE if no agent
    listens on the socket; DEADLINE_EXCEEDED, naming missing ranks; else the agent's reason.
    """
    options = JoinOptions(ctypes.sizeof(JoinOptions), _text(socket, "socket"),
                          _text(job, "job"), _text(token, "token"),
                          -1 if rank is None else _numbers.whole(rank, "rank"),
                          -1 if world_size is None else _numbers.whole(world_size, "world_size"),
                          _numbers.milliseconds(timeout, -1), 0,
                          _tensor.choice_of(reproducible), _tensor.choice_of(verify, "verify"))
    group = Group(interruptible(lambda: _new_handle(library.tutti_join, ctypes.byref(options))))
    group._verifies = os.environ.get("TUTTI_VERIFY") == "1" if verify is None else verify
    leave_at_exit(group._handle, library.tutti_leave)
    return group


def _new_handle(function, *arguments):
    """The handle that a C function stores behind its last argument."""
    handle = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(handle)))
    return handle


class _Block:
    """Exposes memory from tutti_alloc() to NumPy. Freed with the last array on it."""

    def __init__(self, group, bytes_):
        if bytes_ > sys.maxsize:
            raise Error("RESOURCE_EXHAUSTED", f"{bytes_} bytes are more than any memory holds")
        address = library.tutti_alloc(group.pointer, bytes_)
        if not address:
            raise last_error()
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (bytes_,),
                                    "data": (address, False)}
        _overlap.add_shared(address, bytes_)
        weakref.finalize(self, self._free, group, address).atexit = False

    @staticmethod
    def _free(group, address):
        """group: its handle, which must outlive the memory."""
        _overlap.remove_shared(address)
        library.tutti_free(group.pointer, address)


def _new_lane():
    return collections.deque(maxlen=WITHOUT_WAIT)


class Group(Unique):
    """Ranks that run collectives together: a whole job (join) or a part of one (subgroup).

    Attributes: rank, from 0; world_size; epoch, higher each time the job's ranks join again; hosts,
    the names of the ranks' hosts, by rank; launcher, the source of rank or world size: "TUTTI_*",
    "torchrun", "Open MPI", "PMI", "Slurm", or "" for arguments of join. As a context manager it
    leaves on exit. It can be neither copied nor pickled.

    Arrays are NumPy arrays or objects with DLPack in CPU memory, such as torch tensors, of any
    strides, or contiguous ones on a GPU, with DLPack or __cuda_array_interface__. Inputs may also
    be numbers, lists, variables of TensorFlow and Keras, and objects with __array__. New arrays are
    of torch, TensorFlow, JAX or another library of the array API if the input is, else of NumPy.
    Elements are floats of 16 to 64 bits, integers of 8 to 64 bits, or bools. bfloat16 is that of
    torch, JAX, TensorFlow or ml_dtypes, or a uint16 array with dtype="bf16" or of empty(...,
    "bf16"). Arrays from empty() are not copied; others are, whole or block by block.

    An array that is written to (in place, as `out`, by recv) must be known to be writable: DLPack
    capsules without a version are taken to be read-only, unless they are of torch, CuPy, Paddle,
    MXNet or Warp. Arrays of JAX and TensorFlow must never change: give `out`, or a copy as a NumPy
    array.

    All ranks must call the same collectives in the same order, with the same dtype, op, root,
    strategy and number of elements. Every rank gets the same bits.

    Parameters of the collectives:

    op: "sum", "min", "max" or "prod"; of floats also "mean" and "premul_sum"; of integers and
    bools also the bitwise "band", "bor" and "bxor". For bools, "sum", "max" and "bor" are true if
    any is, "prod", "min" and "band" if all are, "bxor" if an odd number is. Integers wrap around.

    factor: the number by which "premul_sum" multiplies this rank's input before the sum; ranks may
    give different ones. None: 1.

    strategy: "ring", "tree:K", "centralized", "auto", or a pair of them for the phases within and
    between hosts. None: the job's strategy.

    reproducible: if True, the bits of a reduction are a function of the ranks' values alone, of no
    strategy, number of hosts, size or list: those of tutti.reference. None: as join() says.

    verify: if True, the ranks compare the checksums (tutti.checksum) of the result, which all must
    hold alike, before the call returns or, with blocking=False, has begun. DATA_LOSS, on every
    rank, names the ranks whose result is not that of the most: their memory or host is damaged, or
    their program writes to the array meanwhile. Ctrl-C has an effect after that. None: as join()
    says. Not for GPUs.

    out: the array for the result: the input itself, or one that does not overlap it. None: see each
    collective.

    dtype: what to read the input as, such as "bf16" for a uint16 array. None: its own dtype.

    timeout: seconds until the operation fails with DEADLINE_EXCEEDED. None: the timeout of join().

    blocking: if False, the call returns a Work, whose wait() returns the result. If True, Ctrl-C
    ends the wait and not the operation, which may yet write to its arrays.

    stream: for arrays on a GPU, a CUDA stream: its handle, an int, or an object with CUDA's
    protocol __cuda_stream__, of torch, CuPy or Numba. The operation starts when the stream reaches
    it, and the stream goes on when it is done; the call does not wait. The arrays must stay until
    then. A failure is raised by wait() of the Work, or else by a later call. None: the call waits
    for the result, and begins when the stream of the arrays' __cuda_array_interface__, or the
    default stream, reaches it.

    A call whose arguments are wrong, or raise an exception while they are read, keeps its place in
    the order: it fails on the other ranks, too, with the reason.

    Errors: INVALID_ARGUMENT for a wrong argument; FAILED_PRECONDITION if ranks disagree or this
    rank left; DEADLINE_EXCEEDED if a rank has not called in time; UNAVAILABLE if a rank, worker or
    host is gone: join again.
    """

    _instead = "pass the object itself; another process or thread joins as a rank of its own"

    def __init__(self, handle):
        self._handle = Handle(handle, library.tutti_group_free)
        self._left = False
        self._verifies = False  # Calls that do not say otherwise.
        # By (verb, peer) of messages, and None of collectives: of the last operations, in a list of
        # one each, whether it is known that they have ended.
        self._lanes = {None: _new_lane()}
        self.rank = library.tutti_rank(handle)
        self.world_size = library.tutti_world_size(handle)
        self.epoch = library.tutti_epoch(handle)
        self.launcher = library.tutti_launcher(handle).decode()
        self.hosts = [library.tutti_host_of(handle, rank).decode()
                      for rank in range(self.world_size)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self._left:
            self.leave()

    def __repr__(self):
        return f"<tutti.Group rank {self.rank} of {self.world_size}, epoch {self.epoch}>"

    def leave(self):
        """Leaves, as at the exit of the interpreter. For the whole job: operations under way end
        CANCELLED. For a sub-group: only this object refuses further operations. Arrays from empty()
        stay valid. Raises FAILED_PRECONDITION if the group was left already."""
        self._left = True
        stay_at_exit(self._handle)
        check(library.tutti_leave(self._handle.pointer))

    def subgroup(self, ranks):
        """Makes the Group of some ranks of the job; their ranks in it are their positions in
        `ranks`. All members call this with the same list, on the group of the whole job; the call
        does not wait for them. Raises INVALID_ARGUMENT if the list is wrong; the others do not
        learn it."""
        try:
            ranks = [_numbers.whole(rank, "rank") for rank in ranks]
        except TypeError:
            raise invalid(f"{ranks!r} is no list of ranks") from None
        members = (ctypes.c_uint32 * len(ranks))(*ranks)
        group = Group(interruptible(lambda: _new_handle(
            library.tutti_subgroup, self._handle.pointer, members, len(ranks))))
        group._verifies = self._verifies
        return group

    def empty(self, shape, dtype="float32"):
        """A new NumPy array, with undefined contents, in memory shared with the daemon:
        operations on it copy nothing. `shape` is a number or a tuple; `dtype` a name such as
        "float32", "f32" or "bf16" (an array of uint16 that is read as bfloat16), or a NumPy or
        torch dtype. The memory is freed with the last array on it. Raises RESOURCE_EXHAUSTED if
        the segment is full."""
        shape = _numbers.shape(shape)
        dtype = numpy_dtype(dtype)
        bytes_ = math.prod(shape) * dtype.itemsize
        if bytes_ == 0:
            return numpy.empty(shape, dtype)
        return numpy.asarray(_Block(self._handle, bytes_)).view(dtype).reshape(shape)

    @_refusal.collective
    def all_reduce(self, x, op="sum", strategy=None, out=None, timeout=None, blocking=True,
                   dtype=None, factor=None, stream=None, reproducible=None, verify=None):
        """Reduces x over all ranks and returns the result, on every rank, in `out`, which has the
        shape and dtype of x, or in x itself if `out` is None."""
        source, target = self._sides(x, out, dtype)
        return self._run("all_reduce", (source.address, target.address, source.count,
                                        DTYPES[source.dtype], _tensor.op_number(op)),
                         source, target, strategy, timeout, blocking,
                         factor=_tensor.factor_of(op, factor), stream=stream,
                         reproducible=reproducible, verify=verify)

    @functools.partial(_refusal.collective, operations_of=_many.operations_of)
    def all_reduce_many(self, xs, op="sum", strategy=None, outs=None, timeout=None, blocking=True,
                        dtype=None, factor=None, stream=None, reproducible=None, verify=None):
        """Reduces each array of the list xs over all ranks, into the arrays of the list `outs`,
        or in place if it is None; returns the list of results. Thousands of small arrays cost
        little more than a large one. All ranks list arrays of the same sizes and dtypes in the
        same order; each dtype is an operation of its own. If ranks list different numbers of
        dtypes, or a refused list holds the only array of a dtype that cannot be read, the call
        fails with FAILED_PRECONDITION, and the ranks are out of step, which may give wrong results
        later: leave and join again. An array that is listed twice, with the same output, is reduced
        once; an output must not share elements with other arrays of the list."""
        if not isinstance(xs, (list, tuple)):
            return functools.partial(self.all_reduce_many, _many.listed(xs), op, strategy, outs,
                                     timeout, blocking, dtype, factor, stream, reproducible, verify)
        sides = [self._sides(x, out, dtype) for x, out in _many.pair_up(xs, outs)]
        blocking = bool(blocking)
        _overlap.check_under_way([use for pair in sides for use in _tensor.uses_of(*pair)])
        calls = [(_many.arguments(name, pairs, op), pairs)
                 for name, pairs in _many.by_dtype(_many.apart(sides)).items()]
        options = self._options(strategy, timeout, _tensor.factor_of(op, factor), stream,
                                [side for pair in sides for side in pair], blocking, reproducible,
                                verify)
        results = [target.x for _, target in sides]
        verifies = self._verifies if verify is None else verify

        def start(arguments, pairs):
            if stream is not None and blocking:  # Nobody waits: the stream does.
                return check(self._call("all_reduce_many", arguments, options, None))
            uses = [] if blocking else [use for pair in pairs for use in _tensor.uses_of(*pair)]
            return self._start("all_reduce_many", arguments, pairs,
                               lambda: [target.write_back() for _, target in pairs], options, uses)

        def call():
            begin = functools.partial(self._begin, verifies=verifies)
            works = _many.start_all(lambda *one: begin(lambda: start(*one)), calls)
            if stream is not None and blocking:
                return results
            work = _many.Works(works, results)
            return wait_here(work) if blocking else work

        return call

    @_refusal.collective
    def reduce(self, x, root=0, op="sum", strategy=None, out=None, timeout=None, blocking=True,
               dtype=None, factor=None, stream=None, reproducible=None):
        """Reduces x over all ranks and returns the result on rank `root`, in `out` or in x
        itself. The other ranks' x is only read, and they get None."""
        root = _numbers.whole(root, "root")
        if self.rank == root:
            source, target = self._sides(x, out, dtype)
        else:
            source, target = Tensor(x, dtype), None
        return self._run("reduce", (source.address, target.address if target else None,
                                    source.count, DTYPES[source.dtype],
                                    _tensor.op_number(op), root),
                         source, target, strategy, timeout, blocking,
                         factor=_tensor.factor_of(op, factor), stream=stream,
                         reproducible=reproducible)

    @_refusal.collective
    def broadcast(self, x, root=0, strategy=None, timeout=None, blocking=True, dtype=None,
                  stream=None, verify=None):
        """Copies x of rank `root` to every other rank's x; returns x. The root's x is only read."""
        root = _numbers.whole(root, "root")
        target = Tensor(x, dtype, writable=self.rank != root)
        return self._run("broadcast", (target.address, target.count,
                                       DTYPES[target.dtype], root),
                         target, target, strategy, timeout, blocking,
                         write_back=self.rank != root, stream=stream, verify=verify)

    @_refusal.collective
    def all_gather(self, x, strategy=None, out=None, timeout=None, blocking=True, dtype=None,
                   stream=None, verify=None):
        """Concatenates x of all ranks along the first axis, by rank, and returns the result on
        every rank: of shape (world_size * n, ...) for x of shape (n, ...), or (world_size,) for
        scalars; in `out` or in a new array."""
        source = Tensor(x, dtype)
        first, rest = (source.shape or (1,))[0], source.shape[1:]
        target = self._result(source, out, (first * self.world_size, *rest), "all_gather's out")
        return self._run("all_gather", (source.address, target.address, source.count,
                                        DTYPES[source.dtype]),
                         source, target, strategy, timeout, blocking, stream=stream,
                         verify=verify)

    @_refusal.collective
    def reduce_scatter(self, x, op="sum", strategy=None, out=None, timeout=None, blocking=True,
                       dtype=None, factor=None, stream=None, reproducible=None):
        """Reduces x over all ranks, cuts the result along the first axis, and returns this
        rank's part: of shape (n / world_size, ...) for x of shape (n, ...); in `out` or in a new
        array. n must be a multiple of world_size."""
        source = Tensor(x, dtype)
        shape = self._part_shape(source, "reduce_scatter")
        target = self._result(source, out, shape, "reduce_scatter's out")
        return self._run("reduce_scatter", (source.address, target.address, target.count,
                                            DTYPES[source.dtype], _tensor.op_number(op)),
                         source, target, strategy, timeout, blocking,
                         factor=_tensor.factor_of(op, factor), stream=stream,
                         reproducible=reproducible)

    @_refusal.collective
    def gather(self, x, root=0, strategy=None, out=None, timeout=None, blocking=True, dtype=None,
               stream=None):
        """Concatenates x of all ranks along the first axis, by rank, and returns the result on
        rank `root`, of the shape that all_gather has, in `out` or in a new array. The other ranks
        get None."""
        root = _numbers.whole(root, "root")
        source, target = Tensor(x, dtype), None
        if self.rank == root:
            first, rest = (source.shape or (1,))[0], source.shape[1:]
            target = self._result(source, out, (first * self.world_size, *rest), "gather's out")
        return self._run("gather", (source.address, target.address if target else None,
                                    source.count, DTYPES[source.dtype], root),
                         source, target, strategy, timeout, blocking, stream=stream)

    @_refusal.collective
    def scatter(self, x, root=0, strategy=None, out=None, timeout=None, blocking=True, dtype=None,
                stream=None):
        """Cuts x of rank `root` along the first axis and returns this rank's part: of shape
        (n / world_size, ...) for x of shape (n, ...), in `out` or, at the root, in a new array.
        The other ranks' x is ignored and may be None, and they must give `out`. n must be a
        multiple of world_size."""
        root = _numbers.whole(root, "root")
        source = None
        if self.rank == root:
            source = Tensor(x, dtype)
            shape = self._part_shape(source, "scatter")
            target = self._result(source, out, shape, "scatter's out")
        elif out is None:
            raise invalid("scatter needs out on every rank but the root")
        else:
            target = Tensor(out, dtype, writable=True)
        return self._run("scatter", (source.address if source else None, target.address,
                                     target.count, DTYPES[target.dtype], root),
                         source, target, strategy, timeout, blocking, stream=stream)

    @_refusal.collective
    def all_to_all(self, x, strategy=None, out=None, timeout=None, blocking=True, dtype=None,
                   stream=None):
        """Cuts x along the first axis into world_size parts, sends part r to rank r, and returns
        the parts that the ranks sent to this one, concatenated by rank: of the shape of x, in
        `out`, which does not overlap x, or in a new array."""
        source = Tensor(x, dtype)
        part = self._part_shape(source, "all_to_all")
        target = self._result(source, out, source.shape, "all_to_all's out")
        return self._run("all_to_all", (source.address, target.address, math.prod(part),
                                        DTYPES[source.dtype]),
                         source, target, strategy, timeout, blocking, stream=stream)

    @_refusal.collective
    def all_gather_v(self, x, sizes, strategy=None, out=None, timeout=None, blocking=True,
                     dtype=None, stream=None, verify=None):
        """all_gather of parts whose first axes differ: that of rank r has sizes[r], the same list
        on all ranks. The result is of shape (sum(sizes), ...)."""
        source = Tensor(x, dtype)
        counts = self._counts(sizes, source, "sizes")
        self._check_first_axis(source, sizes[self.rank], "all_gather_v", "sizes[rank]")
        target = self._result(source, out, (sum(sizes), *source.shape[1:]), "all_gather_v's out")
        return self._run("all_gather_v", (source.address, target.address, counts,
                                          DTYPES[source.dtype]),
                         source, target, strategy, timeout, blocking, stream=stream,
                         verify=verify)

    @_refusal.collective
    def reduce_scatter_v(self, x, sizes, op="sum", strategy=None, out=None, timeout=None,
                         blocking=True, dtype=None, factor=None, stream=None, reproducible=None):
        """reduce_scatter into parts whose first axes differ: rank r's has sizes[r], the same list
        on all ranks. x is of shape (sum(sizes), ...)."""
        source = Tensor(x, dtype)
        counts = self._counts(sizes, source, "sizes")
        self._check_first_axis(source, sum(sizes), "reduce_scatter_v", "sum(sizes)")
        shape = (sizes[self.rank], *source.shape[1:])
        target = self._result(source, out, shape, "reduce_scatter_v's out")
        return self._run("reduce_scatter_v", (source.address, target.address, counts,
                                              DTYPES[source.dtype], _tensor.op_number(op)),
                         source, target, strategy, timeout, blocking,
                         factor=_tensor.factor_of(op, factor), stream=stream,
                         reproducible=reproducible)

    @_refusal.collective
    def all_to_all_v(self, x, in_sizes, out_sizes, strategy=None, out=None, timeout=None,
                     blocking=True, dtype=None, stream=None):
        """all_to_all of parts whose first axes differ: x is cut into parts of in_sizes[r] for
        rank r, and the result, of shape (sum(out_sizes), ...), has out_sizes[r] from rank r.
        Raises FAILED_PRECONDITION on every rank if a rank sends another size than its receiver
        expects. Waits until all ranks have called, also if blocking is False."""
        source = Tensor(x, dtype)
        in_counts = self._counts(in_sizes, source, "in_sizes")
        out_counts = self._counts(out_sizes, source, "out_sizes")
        self._check_first_axis(source, sum(in_sizes), "all_to_all_v", "sum(in_sizes)")
        shape = (sum(out_sizes), *source.shape[1:])
        target = self._result(source, out, shape, "all_to_all_v's out")
        return self._run("all_to_all_v", (source.address, in_counts, target.address, out_counts,
                                          DTYPES[source.dtype]),
                         source, target, strategy, timeout, blocking, stream=stream, waits=True)

    @_refusal.message(library.tutti_refuse_send, "destination", _numbers.destination, _numbers.tag)
    def send(self, x, destination, tag=0, timeout=None, blocking=True, dtype=None, stream=None):
        """Sends x to rank `destination`, which receives it by recv() with the same tag, number of
        elements and dtype. Messages of one rank to another with the same tag arrive in order. If
        blocking, returns once the receiver has taken the message. Messages need no order among
        the collectives. If the call is refused, so is the receiver's for this message. Raises
        DEADLINE_EXCEEDED if the receiver has not called in time: then the message is lost. The
        first message of a rank to another makes one of the job's 4096 groups."""
        source = Tensor(x, dtype)
        destination = _numbers.destination(destination)
        return self._run("send", (source.address, source.count, DTYPES[source.dtype],
                                  destination, _numbers.tag(tag)),
                         source, None, None, timeout, blocking, stream=stream,
                         lane=("send", destination))

    @_refusal.message(library.tutti_refuse_recv, "source", _numbers.source, _numbers.tag)
    def recv(self, x, source=None, tag=0, timeout=None, blocking=True, dtype=None, stream=None):
        """Receives the next message with this tag from rank `source`, or from any rank if None,
        into x; returns the sender's rank, or None if blocking with a stream: then the stream waits
        for the message, and the call does not. Raises FAILED_PRECONDITION if the message has
        another number of elements or dtype: then it is lost, as it is if the call is refused."""
        target = Tensor(x, dtype, writable=True)
        source, blocking = _numbers.source(source), bool(blocking)
        arguments = (target.address, target.count, DTYPES[target.dtype], source,
                     _numbers.tag(tag))
        options = self._options(None, timeout, 1.0, stream, (target,))
        uses = _tensor.uses_of(None, target)
        _overlap.check_under_way(uses)

        def start():
            if stream is not None and blocking:  # Nobody waits: the stream does.
                return check(self._call("recv", arguments, options, None))
            work = self._start("recv", arguments, target, None, options, [] if blocking else uses)
            work._finish_receive(target)
            return work

        def call():
            started = self._begin(start, ("recv", source))
            return started.wait() if blocking and stream is None else started

        return call

    @_refusal.collective
    def barrier(self, timeout=None, blocking=True):
        """Returns None once every rank has called it."""
        _traced.refuse_call("barrier()")
        return self._run("barrier", (), None, None, None, timeout, blocking)

    def _counts(self, sizes, source, what):
        """Sizes of parts along the first axis of the tensor, as numbers of elements for C."""
        if not hasattr(sizes, "__len__"):
            raise invalid(f"{what} {sizes!r} is no list of numbers")
        if len(sizes) != self.world_size:
            raise invalid(f"{what} has {len(sizes)} entries; give one for each of the "
                          f"{self.world_size} ranks")
        row = math.prod(source.shape[1:])
        counts = [_numbers.whole(size, what) * row for size in sizes]
        return (ctypes.c_size_t * len(counts))(*counts)

    @staticmethod
    def _check_first_axis(source, size, verb, what):
        if not source.shape or source.shape[0] != size:
            raise invalid(f"{verb}: shape {list(source.shape)} does not begin with {what}, {size}")

    def _part_shape(self, source, verb):
        """The shape of each rank's part of the tensor, cut along its first axis."""
        if not source.shape or source.shape[0] % self.world_size != 0:
            raise invalid(f"{verb} cannot cut shape {list(source.shape)} into "
                          f"{self.world_size} along its first axis")
        return (source.shape[0] // self.world_size, *source.shape[1:])

    @staticmethod
    def _sides(x, out, dtype):
        """(source, target) of an operation that is in place if `out` is None."""
        if out is None:
            source = Tensor(x, dtype, writable=True)
            return source, source
        source = Tensor(x, dtype)
        return source, Tensor(out, dtype, writable=True).fits(source.shape, source.dtype, "out")

    @staticmethod
    def _result(source, out, shape, what):
        """The target of an operation whose result has another shape than its source: `out`, or a
        new array."""
        target = Tensor(source.new(shape) if out is None else out, source.dtype, writable=True)
        if out is None:
            target.like = source.like
        return target.fits(shape, source.dtype, what)

    def _run(self, verb, arguments, source, target, strategy, timeout, blocking, write_back=True,
             factor=1.0, stream=None, lane=None, waits=False, reproducible=None, verify=None):
        """A function that makes the call of `tutti_<verb>` and returns what the verb does. lane,
        waits: see _begin()."""
        tensors, blocking = (source, target), bool(blocking)
        options = self._options(strategy, timeout, factor, stream, tensors, blocking, reproducible,
                                verify)
        uses = _tensor.uses_of(source, target if write_back else None)
        _overlap.check_under_way(uses)

        def finish():
            if target is None:
                return None
            if write_back:
                target.write_back()
            return target.result()

        def start():
            if stream is not None and blocking:  # Nobody waits: the stream does.
                check(self._call(verb, arguments, options, None))
                return finish()
            return self._start(verb, arguments, tensors, finish, options, [] if blocking else uses)

        def call():
            verifies = self._verifies if verify is None else verify
            started = self._begin(start, lane, waits, verifies)
            return wait_here(started) if blocking and stream is None else started

        return call

    def _begin(self, start, lane=None, waits=False, verifies=False):
        """What start() returns, which makes a call of C. Ctrl-C ends it where C may wait for others
        before it returns: because the call does (waits), is the first of its lane, for which the
        worker makes a group, or has perhaps no place among the operations under way. Not a call
        that verifies, which is two operations: ranks would be out of step."""
        drop_ended()
        last = self._lanes.get(lane)
        if last is None or len(last) == WITHOUT_WAIT and not last[0][0]:
            waits = True
        started = interruptible(start) if waits and not verifies else start()
        last = self._lanes.setdefault(lane, _new_lane())
        if isinstance(started, Work):
            last.append(started._ended)
        return started

    def _start(self, verb, arguments, tensors, finish, options, uses):
        """The Work of a call of `tutti_<verb>`; `finish` gives its result once it has ended. uses:
        of its arrays, if it is not waited for at once."""
        handle = ctypes.c_void_p()
        work = Work(handle, tensors, finish)
        try:
            check(self._call(verb, arguments, options, ctypes.byref(handle)))
        finally:  # Ctrl-C may come once the operation has begun.
            if handle and options.buffers_stay:
                keep(work)
        if uses:
            _overlap.begin(work, uses)
        return work

    def _call(self, verb, arguments, options, work):
        return getattr(library, "tutti_" + verb)(self._handle.pointer, *arguments,
                                                 ctypes.byref(options), work)

    @staticmethod
    def _options(strategy, timeout, factor, stream, tensors, blocking=False, reproducible=None,
                 verify=None):
        """The options of a call with these tensors. Where no stream is given, theirs. Large arrays
        of a call that blocks stay as they are until the operation has ended, and need no copy."""
        bytes_ = sum(side.memory.nbytes for side in tensors if side is not None)
        stay = blocking and bytes_ > COPIED_BYTES_MAX
        if stream is None:
            stream = _stream.producer_of(tensors)
        return Options(ctypes.sizeof(Options), _tensor.strategy_text(strategy),
                       _numbers.milliseconds(timeout, 0), factor, stay,
                       on_stream=stream is not None, stream=_stream.handle_of(stream),
                       reproducible=_tensor.choice_of(reproducible),
                       verify=_tensor.choice_of(verify, "verify"))
