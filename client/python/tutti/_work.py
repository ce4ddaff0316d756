"""Work under way."""

import atexit
import contextlib
import ctypes
import math
import time

from tutti import _overlap
from tutti._error import Error
from tutti._handle import Handle, Unique
from tutti._library import check, last_error, library
from tutti._waiting import STEP_MS


# Works of calls that block, whose arrays the library uses until the operation has ended, also where
# Ctrl-C ends the wait: other ranks count on it.
_kept = []


def keep(work):
    """Keeps a work that blocks, and its arrays, until its operation has ended."""
    _kept.append(work)


def wait_here(work):
    """work.wait() for a call that blocks."""
    try:
        return work.wait()
    finally:
        drop_ended()


def drop_ended():
    """Keeps no longer what has ended. A thread that waits for it has it, too."""
    for work in list(_kept):
        if work.done():
            with contextlib.suppress(ValueError):  # Another thread has dropped it.
                _kept.remove(work)


@atexit.register
def _outlive_exit():
    for work in list(_kept):  # Whose arrays threads of the library may use until the process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(work))


class Work(Unique):
    """An operation under way, returned by collectives with blocking=False.

    It keeps its arrays alive, which must not be accessed until wait() has returned and copied the
    result to them. Another operation on what this one writes is refused until then
    (INVALID_ARGUMENT), on contiguous arrays of empty() until this one has ended. It may be dropped
    without waiting: the operation goes on, and its result may be lost.
    """

    _instead = "wait for it, and copy the result"

    def __init__(self, handle, tensors, finish):
        self._handle = Handle(handle, library.tutti_work_free)
        self._tensors = tensors
        self._finish = finish
        self._result = None
        self._ended = [False]  # Whether it is known to have; outlives the Work.

    def done(self):
        """Whether the operation has ended, so that wait() would not block."""
        self._ended[0] = bool(library.tutti_work_done(self._handle.pointer))
        return self._ended[0]

    def fileno(self):
        """A descriptor that becomes, and stays, readable once wait() would not block: for select,
        poll and event loops. It belongs to the Work, and is closed with it."""
        fd = library.tutti_work_fd(self._handle.pointer)
        if fd < 0:
            raise last_error()
        return fd

    def wait(self, timeout=None):
        """Waits until the operation has ended; returns its result or raises its Error. Later calls
        return the same.

        timeout: seconds to wait; None: until the operation's own timeout. Raises DEADLINE_EXCEEDED
        after that; if done() is False then, the operation goes on and may be waited for again.
        """
        limit = None if timeout is None else time.monotonic() + timeout
        while not self._step(limit):
            if limit is not None and time.monotonic() >= limit:
                raise Error("DEADLINE_EXCEEDED", f"not done after {timeout} s; the work goes on")
        if self._finish is not None:
            self._result = self._finish()
            self._finish = self._tensors = None
            _overlap.end(self)
        return self._result

    def _finish_receive(self, target):
        """Has wait() return the sender's rank. Refers to no Work, which would then outlive the last
        that refers to it."""
        handle = self._handle
        self._finish = lambda: (target.write_back(), library.tutti_work_source(handle.pointer))[1]

    def _step(self, limit):
        """Waits for at most STEP_MS; whether the operation has ended. Raises its Error."""
        step = STEP_MS
        if limit is not None:
            step = min(step, max(0, math.ceil((limit - time.monotonic()) * 1000)))
        if library.tutti_work_wait(self._handle.pointer, step) == 0:
            self._ended[0] = True
            return True
        if not self.done():
            return False
        _overlap.end(self)
        check(library.tutti_work_wait(self._handle.pointer, 0))
        return True
