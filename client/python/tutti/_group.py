"""Groups of ranks, their collectives, and work under way."""

import ctypes
import math
import numbers
import operator
import os
import sys
import threading
import time
import weakref

import numpy

from tutti import _many, _tensor
from tutti._dtype import DTYPES, numpy_dtype
from tutti._error import Error, invalid
from tutti._library import JoinOptions, Options, check, last_error, library
from tutti._tensor import Tensor

_STEP_MS = 200  # How long a wait keeps the interpreter from seeing Ctrl-C.
_TIMEOUT_MS_MAX = 2**31 - 1


def _milliseconds(seconds, default):
    if seconds is None:
        return default
    if not isinstance(seconds, numbers.Real) or not seconds > 0:
        raise invalid(f"timeout {seconds!r} must be a number of seconds above 0")
    return math.ceil(min(seconds * 1000, _TIMEOUT_MS_MAX))


def _text(value):
    return None if value is None else os.fsencode(value)


def join(job=None, rank=None, world_size=None, timeout=None, socket=None, token=None):
    """Joins a job and waits until all its ranks have; returns its Group.

    What is not given comes from TUTTI_JOB, TUTTI_RANK, TUTTI_WORLD_SIZE, TUTTI_TIMEOUT (seconds;
    else 30), TUTTI_SOCKET and TUTTI_TOKEN. `timeout` is also each operation's default.
    """
    options = JoinOptions(ctypes.sizeof(JoinOptions), _text(socket), _text(job), _text(token),
                          -1 if rank is None else _whole(rank, "rank"),
                          -1 if world_size is None else _whole(world_size, "world_size"),
                          _milliseconds(timeout, -1))
    return Group(_interruptible(lambda: _join(options)))


def _whole(number, what):
    try:
        whole = operator.index(number)
    except TypeError:
        raise invalid(f"{what} {number!r} is no whole number; convert it with int()") from None
    if not 0 <= whole < 2**31:
        raise invalid(f"{what} {number} is out of range")
    return whole


def _shape(shape):
    """A shape given as a number or as several."""
    try:
        sides = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        sides = tuple(map(operator.index, sides))
    except TypeError:
        raise invalid(f"shape {shape!r} is no whole number, nor a tuple of such") from None
    if any(side < 0 for side in sides):
        raise invalid(f"shape {shape!r} has a side below 0")
    return sides


def _join(options):
    handle = ctypes.c_void_p()
    check(library.tutti_join(ctypes.byref(options), ctypes.byref(handle)))
    return handle


def _interruptible(call):
    """Runs a long call on a thread of its own, so that Ctrl-C ends the wait for it."""
    outcome = []

    def body():
        try:
            outcome.append((call(), None))
        except Error as error:
            outcome.append((None, error))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_STEP_MS / 1000)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


class _Handle:
    """Owns a C handle; frees it when nothing refers to it, or when the interpreter ends."""

    def __init__(self, pointer, free):
        self.pointer = pointer
        self.free = weakref.finalize(self, free, pointer)


class Work:
    """An operation under way. Keeps its arrays alive; dropping it unwaited is safe."""

    def __init__(self, handle, tensors, finish):
        self._handle = _Handle(handle, library.tutti_work_free)
        self._tensors = tensors
        self._finish = finish
        self._result = None

    def done(self):
        """Whether wait() would return at once."""
        return bool(library.tutti_work_done(self._handle.pointer))

    def wait(self, timeout=None):
        """The operation's result, or its Error. After `timeout` seconds DEADLINE_EXCEEDED, while
        the work goes on and can be waited for again."""
        limit = None if timeout is None else time.monotonic() + timeout
        while not self._step(limit):
            if limit is not None and time.monotonic() >= limit:
                raise Error("DEADLINE_EXCEEDED", f"not done after {timeout} s; the work goes on")
        if self._finish is not None:
            self._result = self._finish()
            self._finish = self._tensors = None
        return self._result

    def _step(self, limit):
        """Waits a little; whether the operation is done. Raises what it failed with."""
        step = _STEP_MS
        if limit is not None:
            step = min(step, max(0, math.ceil((limit - time.monotonic()) * 1000)))
        if library.tutti_work_wait(self._handle.pointer, step) == 0:
            return True
        if not self.done():
            return False
        check(library.tutti_work_wait(self._handle.pointer, 0))
        return True


class _Block:
    """Memory shared with the daemon, as NumPy sees it; given back with the last array on it."""

    def __init__(self, group, bytes_):
        if bytes_ > sys.maxsize:
            raise Error("RESOURCE_EXHAUSTED", f"{bytes_} bytes are more than any memory holds")
        address = library.tutti_alloc(group.pointer, bytes_)
        if not address:
            raise last_error()
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (bytes_,),
                                    "data": (address, False)}
        # The group's handle must outlive the memory.
        weakref.finalize(self, _give_back, group, address)


def _give_back(group, address):
    library.tutti_free(group.pointer, address)


class Group:
    """Ranks that run collectives together: a whole job (join) or a part of one (subgroup).

    Arrays are NumPy arrays or anything with DLPack on the CPU, such as torch tensors; results are
    of the same kind. Arrays from empty() are never copied. They hold floats of 16 to 64 bits,
    integers of 8 to 64 with or without a sign, or bools; `dtype="bf16"` reads uint16 arrays as
    bfloat16, which those of empty(..., "bf16") are without being told. `op` is sum, mean (floats
    only), min, max or prod; of bools sum and max mean "any", prod and min "all". `strategy` is
    "ring", "tree:K", "centralized", "auto" or a pair for (local, global). With blocking=False a
    Work is returned, whose wait() gives the result.
    """

    def __init__(self, handle):
        self._handle = _Handle(handle, library.tutti_group_free)
        self._left = False
        self.rank = library.tutti_rank(handle)
        self.world_size = library.tutti_world_size(handle)
        self.epoch = library.tutti_epoch(handle)
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
        """Goes on purpose; the other ranks learn of it. Arrays from empty() stay valid."""
        self._left = True
        check(library.tutti_leave(self._handle.pointer))

    def subgroup(self, ranks):
        """A group of some of the job's ranks, in this order. Its members, and only they, call
        it."""
        ranks = [_whole(rank, "rank") for rank in ranks]
        members = (ctypes.c_uint32 * len(ranks))(*ranks)

        def make():
            handle = ctypes.c_void_p()
            check(library.tutti_subgroup(self._handle.pointer, members, len(ranks),
                                         ctypes.byref(handle)))
            return handle

        return Group(_interruptible(make))

    def empty(self, shape, dtype="float32"):
        """A new array in memory shared with the daemon: operations on it copy nothing."""
        shape = _shape(shape)
        dtype = numpy_dtype(dtype)
        bytes_ = math.prod(shape) * dtype.itemsize
        if bytes_ == 0:
            return numpy.empty(shape, dtype)
        return numpy.asarray(_Block(self._handle, bytes_)).view(dtype).reshape(shape)

    def all_reduce(self, x, op="sum", strategy=None, out=None, timeout=None, blocking=True,
                   dtype=None):
        """Every rank gets the reduction of all ranks' x: in x itself, or in `out`."""
        source, target = self._sides(x, out, dtype)
        return self._run("all_reduce", (source.address, target.address, source.count,
                                        DTYPES[source.dtype], _tensor.op_number(op)),
                         source, target, strategy, timeout, blocking)

    def all_reduce_many(self, xs, op="sum", strategy=None, outs=None, timeout=None, blocking=True,
                        dtype=None):
        """all_reduce of a list of arrays at once, in place or into the list `outs`; returns the
        list of results. Small arrays travel together: thousands cost a few messages. All ranks
        list arrays of the same sizes and dtypes in the same order."""
        sides = [self._sides(x, out, dtype) for x, out in _many.pair_up(xs, outs)]
        works = [self._start("all_reduce_many", _many.arguments(name, pairs, op), pairs,
                             lambda pairs=pairs: [target.write_back() for _, target in pairs],
                             strategy, timeout)
                 for name, pairs in _many.by_dtype(sides).items()]
        work = _many.Works(works, [target.x for _, target in sides])
        return work.wait() if blocking else work

    def reduce(self, x, root=0, op="sum", strategy=None, out=None, timeout=None, blocking=True,
               dtype=None):
        """Rank `root` gets the reduction, in x itself or in `out`; the others get None, and their x
        stays as it is."""
        root = _whole(root, "root")
        if self.rank == root:
            source, target = self._sides(x, out, dtype)
        else:
            source, target = Tensor(x, dtype), None
        return self._run("reduce", (source.address, target.address if target else None,
                                    source.count, DTYPES[source.dtype],
                                    _tensor.op_number(op), root),
                         source, target, strategy, timeout, blocking)

    def broadcast(self, x, root=0, strategy=None, timeout=None, blocking=True, dtype=None):
        """Every rank's x becomes the root's."""
        root = _whole(root, "root")
        target = Tensor(x, dtype, writable=self.rank != root)
        return self._run("broadcast", (target.address, target.count,
                                       DTYPES[target.dtype], root),
                         target, target, strategy, timeout, blocking,
                         write_back=self.rank != root)

    def all_gather(self, x, strategy=None, out=None, timeout=None, blocking=True, dtype=None):
        """All ranks' x, one after the other along the first axis: of shape (world_size * n, ...)
        where x has (n, ...). Scalars become (world_size,)."""
        source = Tensor(x, dtype)
        first, rest = (source.shape or (1,))[0], source.shape[1:]
        target = self._result(source, out, (first * self.world_size, *rest), "all_gather's out")
        return self._run("all_gather", (source.address, target.address, source.count,
                                        DTYPES[source.dtype]),
                         source, target, strategy, timeout, blocking)

    def reduce_scatter(self, x, op="sum", strategy=None, out=None, timeout=None, blocking=True,
                       dtype=None):
        """This rank's share of the reduction: of shape (n / world_size, ...) where x has
        (n, ...)."""
        source = Tensor(x, dtype)
        if not source.shape or source.shape[0] % self.world_size != 0:
            raise invalid(f"reduce_scatter cannot cut shape {list(source.shape)} into "
                          f"{self.world_size} along its first axis")
        shape = (source.shape[0] // self.world_size, *source.shape[1:])
        target = self._result(source, out, shape, "reduce_scatter's out")
        return self._run("reduce_scatter", (source.address, target.address, target.count,
                                            DTYPES[source.dtype], _tensor.op_number(op)),
                         source, target, strategy, timeout, blocking)

    def barrier(self, timeout=None, blocking=True):
        """Returns when every rank has come."""
        return self._run("barrier", (), None, None, None, timeout, blocking)

    @staticmethod
    def _sides(x, out, dtype):
        """The source and the target of an operation that is in place without `out`."""
        if out is None:
            source = Tensor(x, dtype, writable=True)
            return source, source
        source = Tensor(x, dtype)
        return source, Tensor(out, dtype, writable=True).fits(source.shape, source.dtype, "out")

    @staticmethod
    def _result(source, out, shape, what):
        """The target of an operation whose result has another shape."""
        target = Tensor(source.new(shape) if out is None else out, source.dtype, writable=True)
        return target.fits(shape, source.dtype, what)

    def _run(self, verb, arguments, source, target, strategy, timeout, blocking, write_back=True):
        def finish():
            if target is None:
                return None
            if write_back:
                target.write_back()
            return target.x

        work = self._start(verb, arguments, (source, target), finish, strategy, timeout)
        return work.wait() if blocking else work

    def _start(self, verb, arguments, tensors, finish, strategy, timeout):
        options = Options(ctypes.sizeof(Options), _tensor.strategy_text(strategy),
                          _milliseconds(timeout, 0))
        handle = ctypes.c_void_p()
        call = getattr(library, "tutti_" + verb)
        check(call(self._handle.pointer, *arguments, ctypes.byref(options), ctypes.byref(handle)))
        return Work(handle, tensors, finish)
