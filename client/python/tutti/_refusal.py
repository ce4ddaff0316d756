"""Calls that are refused before C has seen them. They are passed to C, to keep their place
in the order: they fail on the other ranks, too, and none takes a later call of this rank for them.
"""

import contextlib
import ctypes
import functools
import inspect

from tutti._error import Error, text_of
from tutti._library import library
from tutti._waiting import interruptible

# The numbers of tutti_collective in proto/tutti_types.h.
COLLECTIVES = {"all_reduce": 0, "reduce": 1, "broadcast": 2, "all_gather": 3, "reduce_scatter": 4,
                "barrier": 5, "gather": 6, "scatter": 7, "all_to_all": 8}
_CODES = {library.tutti_code_name(number).decode(): number for number in range(1, 17)}


def reason(error):
    """The code and the text of an exception, for C."""
    name = "RESOURCE_EXHAUSTED" if isinstance(error, MemoryError) else "INVALID_ARGUMENT"
    name = error.code if isinstance(error, Error) else name
    return _CODES.get(name, _CODES["UNKNOWN"]), text_of(error).encode(errors="replace")


def _count(operations_of, arguments, options):
    """How many operations a call is; 1 where its signature is wrong."""
    try:
        return operations_of(*arguments, **options)
    except Exception:
        return 1


@contextlib.contextmanager
def reporting(group, verb):
    """Around the reading of the arguments of a call that is one of `verb`: what it raises is
    reported to the other ranks, whose calls fail, too. Else they would take this rank's next call
    for this one."""
    try:
        yield
    except BaseException as error:
        library.tutti_refuse(group._handle.pointer, COLLECTIVES[verb], *reason(error))
        raise


def collective(read, operations_of=lambda *_, **__: 1):
    """The collective whose arguments `read`, a method of Group, reads: it returns a function that
    makes the call. What it raises is reported to the others, also a wrong signature or Ctrl-C.
    operations_of: how many operations of C the call with these arguments is."""
    number = COLLECTIVES[read.__name__.removesuffix("_v").removesuffix("_many")]

    @functools.wraps(read)
    def method(self, *arguments, **options):
        try:
            call = read(self, *arguments, **options)
        except BaseException as error:
            for _ in range(_count(operations_of, arguments, options)):
                library.tutti_refuse(self._handle.pointer, number, *reason(error))
            raise
        return call()

    return method


def message(refuse, peer, read_peer, read_tag):
    """The same for send and recv, whose parameter `peer` is the other rank. If it cannot be read,
    or was not given as the signature is wrong, nobody learns it. Ctrl-C ends the wait for the
    report, which goes on: C may have to wait for the worker, or for another thread's message."""
    def decorate(read):
        signature = inspect.signature(read)

        @functools.wraps(read)
        def method(self, *arguments, **options):
            try:
                call = read(self, *arguments, **options)
            except BaseException as error:
                with contextlib.suppress(Exception):
                    given = _given(signature, peer, self, arguments, options)
                    told = (self._handle.pointer, read_peer(given.get(peer)),
                            _tag_of(given, read_tag), *reason(error))
                    interruptible(lambda _group=self: refuse(*told))
                raise
            return call()

        return method

    return decorate


def _given(signature, peer, group, arguments, options):
    """The arguments by name. LookupError: the peer may have been meant, but has another name."""
    try:
        return signature.bind(group, *arguments, **options).arguments
    except TypeError:
        given = dict(zip(("x", peer, "tag"), arguments), **options)
        if peer not in given:
            raise LookupError(peer) from None
        return given


def _tag_of(given, read_tag):
    """The tag, for C; None: it is what is wrong."""
    try:
        return ctypes.byref(ctypes.c_uint64(read_tag(given.get("tag", 0))))
    except Exception:
        return None
