"""Finds libtutti.so and describes the C ABI (client/tutti.h) to ctypes."""

import ctypes
import ctypes.util
import os
import pathlib
from ctypes import (POINTER, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64,
                    c_void_p)

from tutti._error import error_of

_NAME = "libtutti.so"
_INSTALLED = "libtutti.so.0"  # Without what compilers need.


class ErrorView(ctypes.Structure):
    _fields_ = [("code", c_int), ("rank", c_int32), ("host", c_char_p), ("message", c_char_p)]


class JoinOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("job", c_char_p), ("token", c_char_p),
                ("rank", c_int32), ("world_size", c_int32), ("timeout_ms", c_int32),
                ("reserved", c_int32), ("reproducible", c_int32), ("verify", c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("strategy", c_char_p), ("timeout_ms", c_int32),
                ("factor", c_double), ("buffers_stay", c_int32), ("on_stream", c_int32),
                ("stream", c_void_p), ("reproducible", c_int32), ("verify", c_int32)]


_WORK = POINTER(c_void_p)
_FUNCTIONS = {
    "tutti_last_error": (POINTER(ErrorView), []),
    "tutti_code_name": (c_char_p, [c_int]),
    "tutti_version": (c_char_p, []),
    "tutti_join": (c_int, [POINTER(JoinOptions), POINTER(c_void_p)]),
    "tutti_leave": (c_int, [c_void_p]),
    "tutti_group_free": (None, [c_void_p]),
    "tutti_subgroup": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, POINTER(c_void_p)]),
    "tutti_rank": (c_int32, [c_void_p]),
    "tutti_world_size": (c_int32, [c_void_p]),
    "tutti_launcher": (c_char_p, [c_void_p]),
    "tutti_epoch": (c_uint32, [c_void_p]),
    "tutti_host_of": (c_char_p, [c_void_p, c_int32]),
    "tutti_alloc": (c_void_p, [c_void_p, c_size_t]),
    "tutti_free": (None, [c_void_p, c_void_p]),
    "tutti_checksum": (c_uint64, [c_void_p, c_size_t]),
    "tutti_all_reduce": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int,
                                 POINTER(Options), _WORK]),
    "tutti_all_reduce_many": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_void_p),
                                      POINTER(c_size_t), c_size_t, c_int, c_int,
                                      POINTER(Options), _WORK]),
    "tutti_reduce": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int32,
                             POINTER(Options), _WORK]),
    "tutti_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int32, POINTER(Options),
                                _WORK]),
    "tutti_all_gather": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, POINTER(Options),
                                 _WORK]),
    "tutti_reduce_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int,
                                     POINTER(Options), _WORK]),
    "tutti_gather": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int32,
                             POINTER(Options), _WORK]),
    "tutti_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int32,
                              POINTER(Options), _WORK]),
    "tutti_all_to_all": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, POINTER(Options),
                                 _WORK]),
    "tutti_all_gather_v": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int,
                                   POINTER(Options), _WORK]),
    "tutti_reduce_scatter_v": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int,
                                       c_int, POINTER(Options), _WORK]),
    "tutti_all_to_all_v": (c_int, [c_void_p, c_void_p, POINTER(c_size_t), c_void_p,
                                   POINTER(c_size_t), c_int, POINTER(Options), _WORK]),
    "tutti_barrier": (c_int, [c_void_p, POINTER(Options), _WORK]),
    "tutti_send": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int32, c_uint64,
                           POINTER(Options), _WORK]),
    "tutti_recv": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int32, c_uint64,
                           POINTER(Options), _WORK]),
    "tutti_refuse": (c_int, [c_void_p, c_int, c_int, c_char_p]),
    "tutti_refuse_send": (c_int, [c_void_p, c_int32, POINTER(c_uint64), c_int, c_char_p]),
    "tutti_refuse_recv": (c_int, [c_void_p, c_int32, POINTER(c_uint64), c_int, c_char_p]),
    "tutti_work_source": (c_int32, [c_void_p]),
    "tutti_work_wait": (c_int, [c_void_p, c_int32]),
    "tutti_work_done": (c_int, [c_void_p]),
    "tutti_work_fd": (c_int, [c_void_p]),
    "tutti_work_free": (None, [c_void_p]),
}


def _candidates():
    """Paths of the library to try: TUTTI_LIBRARY alone if set, else that of the wheel, the build
    trees of the checkout or the prefix that this package is in, then the system's search path."""
    given = os.environ.get("TUTTI_LIBRARY")
    if given:
        yield given
        return
    here = pathlib.Path(__file__).resolve()
    wheel = here.parent / "_native" / "lib" / _NAME
    if wheel.exists():
        yield str(wheel)
        return
    checkout, prefix = here.parents[3], here.parents[4]
    builds = sorted(checkout.glob(f"build/*/lib/{_NAME}"), key=lambda p: p.parts[-3] != "release")
    yield from map(str, builds)
    for place in ("lib", "lib64", "lib/*", "lib64/*"):
        yield from map(str, sorted(prefix.glob(f"{place}/{_INSTALLED}")))
    yield ctypes.util.find_library("tutti") or _INSTALLED


def load():
    """The first library that loads, with its functions declared."""
    tried = []
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return library
    raise ImportError("no " + _NAME + " (build it, or set TUTTI_LIBRARY): " + "; ".join(tried))


library = load()


def library_path():
    """The path of the library, or its name where the system's search path has it."""
    return library._name


def last_error():
    """The last failure of this thread, as an Error to raise."""
    view = library.tutti_last_error().contents
    return error_of(library.tutti_code_name(view.code).decode(),
                    view.message.decode(errors="replace"),
                    view.rank if view.rank >= 0 else None,
                    view.host.decode(errors="replace") or None)


def check(code):
    """Raises the last failure of this thread unless `code` is OK."""
    if code != 0:
        raise last_error()
