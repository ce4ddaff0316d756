"""How threads wait for works of the library."""

import atexit
import ctypes
import math
import threading
import time

from tutti._library import library

STEP_MS = 100  # Longest wait in C, during which neither abort() nor Ctrl-C is noticed.
_PARK_SECONDS = 10  # At most, when the interpreter exits.
_MAIN = threading.main_thread().ident
_wait, is_done = library.tutti_work_wait, library.tutti_work_done
_get_ident, _monotonic = threading.get_ident, time.monotonic
_busy = set()  # Threads other than the main one that are in C or below torch, by their numbers.
_is_exiting = False
_pause = ctypes.CDLL(None).pause


def wait_in_steps(backend, work, limit=None):
    """Waits until a tutti_work has ended, and takes its outcome: whether that is OK. None: it has
    not ended by `limit`, a moment of time.monotonic(). Between steps signal handlers run, and
    abort() is noticed, which raises."""
    return outlive_exit(_wait_on, backend, work, limit)


def outlive_exit(call, *arguments):
    """call(*arguments), which waits in C or calls torch, on a thread that may be a daemon's: when
    the interpreter exits, it waits until the call has ended, and the thread stays in C for good.
    Python would end a thread that comes back from C then, by an unwinding that torch's frames on
    the stack turn into an abort of the process."""
    thread = _get_ident()
    if thread == _MAIN or thread in _busy:
        return call(*arguments)
    _busy.add(thread)
    try:
        if _is_exiting:
            _park()
        return call(*arguments)
    finally:
        if _is_exiting:
            _park()
        _busy.discard(thread)


def _wait_on(backend, work, limit):
    while True:
        if _is_exiting and _get_ident() != _MAIN:
            _park()
        step = STEP_MS if limit is None else min(STEP_MS, _milliseconds_until(limit))
        if _wait(work, step) == 0:
            return True
        if is_done(work):
            return _wait(work, 0) == 0
        if limit is not None and _monotonic() >= limit:
            return None
        backend.check_aborted()


def _milliseconds_until(limit):
    return max(0, math.ceil((limit - _monotonic()) * 1000))


def _park():
    """Stays in C until the process ends."""
    _busy.discard(_get_ident())
    while True:
        _pause()


@atexit.register
def _park_all():
    """Before the interpreter exits, and before the job is left, which ends what threads wait
    for."""
    global _is_exiting
    _is_exiting = True
    limit = _monotonic() + _PARK_SECONDS
    while _busy and _monotonic() < limit:
        time.sleep(0.001)
