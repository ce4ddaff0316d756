"""Finds libtutti_frameworks.so, which lies beside libtutti.so, and describes its C ABI to ctypes.

The module of a system declares the functions of its c_api.h with declare() and passes their codes
to check().
"""

import contextlib
import ctypes
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_void_p

from tutti._error import Error, text_of
from tutti._handle import Handle
from tutti._library import ErrorView, library_path
from tutti._library import library as _tutti
from tutti._waiting import interruptible

_NAME = "libtutti_frameworks.so"


class InvalidArgument(Error, ValueError):
    """A tutti.Error with the code INVALID_ARGUMENT, which is also a ValueError."""


class AlreadyExists(Error, KeyError):
    """A tutti.Error with the code ALREADY_EXISTS, which is also a KeyError."""

    __str__ = Error.__str__


class OutOfRange(Error, IndexError):
    """A tutti.Error with the code OUT_OF_RANGE, which is also an IndexError."""


_ERRORS = {"INVALID_ARGUMENT": InvalidArgument, "ALREADY_EXISTS": AlreadyExists,
           "OUT_OF_RANGE": OutOfRange}


def _candidates():
    """Paths to try: beside libtutti.so with the same version, then with none."""
    beside = pathlib.Path(library_path())
    for name in (beside.name.replace("libtutti", "libtutti_frameworks", 1), _NAME):
        yield str(beside.with_name(name)) if beside.parent.name else name


def _load():
    tried = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
    raise ImportError(f"no {_NAME} beside {library_path()} (build the target tutti_frameworks): "
                      + "; ".join(tried))


library = _load()


def declare(functions):
    """Sets result and argument types of functions: {name: (result, [argument, ...])}."""
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


declare({"tutti_frameworks_version": (c_char_p, []),
         "tutti_frameworks_last_error": (POINTER(ErrorView), []),
         "tutti_frameworks_refuse": (c_int, [c_void_p, c_char_p])})


def error_of(code, message, rank=None, host=None):
    """The Error to raise for a code's name: also a ValueError for INVALID_ARGUMENT, a KeyError for
    ALREADY_EXISTS and an IndexError for OUT_OF_RANGE."""
    return _ERRORS.get(code, Error)(code, message, rank, host)


def invalid(message):
    """An InvalidArgument about a wrong argument, to raise."""
    return InvalidArgument("INVALID_ARGUMENT", message)


@contextlib.contextmanager
def told_to_others(group):
    """Around the reading of a call's arguments: before an error of these is raised, the other ranks
    of the group fail the call, too. Else they would wait for this rank in it, and take its next
    call for this one. `group` None: there are no others."""
    try:
        yield
    except BaseException as error:  # Programs may go on after Ctrl-C.
        if group is not None:
            text = text_of(error).encode(errors="replace")
            interruptible(lambda: library.tutti_frameworks_refuse(group._handle.pointer, text))
        raise


class Made(Handle):
    """Owns what a function of the library stores behind its last argument. `keep`: the Handle that
    must outlive this one, or None."""

    def __init__(self, create, free, *arguments, keep=None):
        pointer = ctypes.c_void_p()
        check(create(*arguments, ctypes.byref(pointer)))
        super().__init__(pointer.value, free, keep)


def last_error():
    """The last failure of this thread in the library, as an Error to raise."""
    view = library.tutti_frameworks_last_error().contents
    return error_of(_tutti.tutti_code_name(view.code).decode(),
                    view.message.decode(errors="replace"),
                    view.rank if view.rank >= 0 else None,
                    view.host.decode(errors="replace") or None)


def check(code):
    """Raises the last failure of this thread unless `code` is OK."""
    if code != 0:
        raise last_error()
