"""The C ABI of client/faces/distribute/c_api.h."""

import contextlib
import ctypes
import json
import math
import numbers
import operator
from ctypes import (CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t,
                    c_void_p)

from tutti import _error
from tutti._error import invalid
from tutti._frameworks import Made, check, declare, library
from tutti._tensor import HostTensor, choice_of
from tutti._values import Results, TensorView
from tutti._waiting import interruptible

_TIMEOUT_MS_MAX = 2**31 - 1


class _Call(ctypes.Structure):
    _fields_ = [("structure", c_char_p), ("timeout_ms", c_int32), ("reproducible", c_int32)]


RunFunction = CFUNCTYPE(c_int, c_void_p, c_void_p)
MergeFunction = CFUNCTYPE(c_int, c_void_p)
_HANDLE, _VIEWS, _CALL = POINTER(c_void_p), POINTER(TensorView), POINTER(_Call)
_PREFIX = "tutti_distribute_"
declare({_PREFIX + name: signature for name, signature in {
    "resolver_create": (c_int, [c_char_p, POINTER(c_void_p), c_size_t, _HANDLE]),
    "resolver_free": (None, [c_void_p]),
    "resolver_ask": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "assignment": (c_int, [c_char_p, POINTER(c_void_p)]),
    "free_text": (None, [c_void_p]),
    "batch_size": (c_int, [c_int64, c_int32, POINTER(c_int64)]),
    "rows": (c_int, [c_int64, c_int32, c_int32, POINTER(c_int64)]),
    "strategy_create": (c_int, [c_char_p, c_void_p, c_void_p, _HANDLE]),
    "strategy_free": (None, [c_void_p]),
    "strategy_describe": (c_int, [c_void_p, POINTER(c_void_p)]),
    "strategy_enter": (c_int, [c_void_p]),
    "strategy_leave": (c_int, [c_void_p]),
    "current_strategy": (c_void_p, []),
    "current_replica": (c_void_p, []),
    "strategy_require_cross_replica": (c_int, [c_void_p, c_char_p]),
    "refuse": (c_int, [c_void_p, c_char_p]),
    "strategy_run": (c_int, [c_void_p, RunFunction, c_void_p]),
    "strategy_reduce": (c_int, [c_void_p, c_char_p, _VIEWS, c_size_t, POINTER(c_int64), c_size_t,
                                _CALL, _HANDLE]),
    "strategy_gather": (c_int, [c_void_p, c_int64, _VIEWS, c_size_t, _CALL, _HANDLE]),
    "strategy_broadcast": (c_int, [c_void_p, c_int, _VIEWS, c_size_t, _CALL, _HANDLE]),
    "strategy_leave_job": (None, [c_void_p]),
    "split": (c_int, [_VIEWS, POINTER(c_int64), c_size_t, c_int, _HANDLE]),
    "replica_index": (c_int, [c_void_p]),
    "replica_all_reduce": (c_int, [c_void_p, c_char_p, _VIEWS, c_size_t, _CALL, _HANDLE]),
    "replica_all_gather": (c_int, [c_void_p, c_int64, _VIEWS, c_size_t, _CALL, _HANDLE]),
    "replica_merge": (c_int, [c_void_p, c_char_p, MergeFunction, c_void_p]),
    "variable_create": (c_int, [c_void_p, _VIEWS, c_char_p, c_char_p, c_char_p, _HANDLE]),
    "variable_free": (None, [c_void_p]),
    "variable_update": (c_int, [c_void_p, c_char_p, _VIEWS, c_size_t]),
    "variable_refuse": (c_int, [c_void_p, c_char_p]),
    "variable_value": (c_int, [c_void_p, _HANDLE]),
    "variable_copies": (c_int, [c_void_p, _HANDLE]),
}.items()})


def function(name):
    """The function of the library with this name behind its prefix."""
    return getattr(library, _PREFIX + name)


@contextlib.contextmanager
def telling(name, handle):
    """What is raised within is passed to other ranks by a function of the library, so that their
    call fails as well, and none is a call ahead of the others. In a replica's function on this
    thread, because the library must know the replica: then Ctrl-C waits for the others, at most for
    the timeout."""
    try:
        yield
    except BaseException as error:
        told = handle, _error.text_of(error).encode(errors="replace")
        if function("current_replica")() is None:
            interruptible(lambda: function(name)(*told))
        else:
            function(name)(*told)
        raise


def make(create, free, *arguments, keep=None):
    """What a function, given by name, creates: see Made."""
    return Made(function(create), function(free), *arguments, keep=keep)


def results_of(name, *arguments):
    """The Results of a function."""
    return Results(function(name), *arguments)


def ask(name, *arguments):
    """The answer, from JSON, that a function stores behind its last argument."""
    text = c_void_p()
    check(function(name)(*arguments, byref(text)))
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        function("free_text")(text)


def to_json(value):
    """JSON as the library takes it."""
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{value!r} has a part of a wrong type: {error}") from None


def per_replica_batch_size(global_batch_size, replicas):
    """The batch of each replica."""
    size = c_int64()
    check(function("batch_size")(whole(global_batch_size, "global_batch_size"),
                                 whole(replicas, "replicas", bits=32), byref(size)))
    return size.value


def rows_of_replica(rows, replica, replicas):
    """(begin, end) of a replica's rows of a global batch."""
    bounds = (c_int64 * 2)()
    check(function("rows")(rows, replica, replicas, bounds))
    return tuple(bounds)


def whole(number, argument, bits=64):
    """A whole number that fits so many bits; TypeError or ValueError name the argument."""
    try:
        whole_number = operator.index(number)
    except TypeError:
        raise TypeError(f"{argument}={number!r} must be a whole number") from None
    if not -2**(bits - 1) <= whole_number < 2**(bits - 1):
        raise ValueError(f"{argument}={number!r} must be {-2**(bits - 1)} to {2**(bits - 1) - 1}")
    return whole_number


def milliseconds(seconds, default):
    """A timeout in seconds for C; `default` for None."""
    if seconds is None:
        return default
    if not isinstance(seconds, numbers.Real) or not seconds > 0:
        raise ValueError(f"timeout {seconds!r} must be a number of seconds above 0")
    return math.ceil(min(seconds * 1000, _TIMEOUT_MS_MAX))


def choice(reproducible):
    """A choice for C; an error is also a ValueError."""
    return choice_of(reproducible, invalid=invalid)


def call_of(structure="", options=None):
    """The structure of a call, and the timeout, of which None and 0 mean the default, and
    `reproducible` of CommunicationOptions or the like."""
    if options is not None and not hasattr(options, "timeout_seconds"):
        raise TypeError(f"options={options!r} must be CommunicationOptions, or None")
    return byref(_Call(structure.encode(),
                       milliseconds(options and options.timeout_seconds or None, 0),
                       choice(getattr(options, "reproducible", None))))


def tensor_of(value, what="value", **options):
    """A leaf of the argument `what` as contiguous memory, with the options of a Tensor. Raises
    InvalidArgument, which names the argument, if it has none."""
    with _error.naming(what):
        if value is None:
            raise invalid("None is no tensor; leave it out of the structure")
        return HostTensor(value, **options)
