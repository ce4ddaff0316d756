"""Finds libtutti_frameworks.so, which lies beside libtutti.so, and describes its C ABI to ctypes.

The module of a system declares the functions of its c_api.h with declare() and passes their codes
to check().
"""

import contextlib
import ctypes
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_void_p

from tutti._error import error_of, text_of
from tutti._handle import Handle
from tutti._library import ErrorView, library_path
from tutti._library import library as _tutti
from tutti._waiting import interruptible

_NAME = "libtutti_frameworks.so"


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
