"""Operations under way, as torch.distributed sees them."""

import threading
from collections import deque

import torch
import torch.distributed as dist

from tutti._error import Error
from tutti._library import last_error, library

_FOREVER = -1


class BackendError(dist.DistBackendError, Error):
    """A failed operation: see tutti.Error for its code, message, rank and host."""


def raise_last_error():
    """Raises this thread's last failure of the library as a BackendError."""
    error = last_error()
    raise BackendError(error.code, error.message, error.rank, error.host)


def check(code):
    """Raises the last failure of this thread unless `code` is OK."""
    if code != 0:
        raise_last_error()


class Handle:
    """Owns a tutti_work."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __del__(self):
        library.tutti_work_free(self.pointer)


class TuttiWork(dist._Work):
    """One operation: several handles, or none if it has ended.

    outputs: the tensors that it fills, its result. finish: called once, after the last handle
    ended, to copy results to where they belong. completer: calls back when it ends.
    """

    def __init__(self, completer, outputs, handles=(), keep=(), finish=None, source=-1):
        super().__init__()
        self._completer = completer
        self._outputs = list(outputs)
        self._handles = list(handles)
        self._keep = keep
        self._finish = finish
        self._source = source
        self._lock = threading.Lock()
        self._error = None
        self._ended = False
        self._future = None
        if not self._handles:
            self._end()

    def _end(self):
        """Takes the outcome of operations that have ended. Idempotent."""
        with self._lock:
            if self._ended:
                return
            try:
                for handle in self._handles:
                    check(library.tutti_work_wait(handle.pointer, _FOREVER))
                if self._finish is not None:
                    self._finish()
            except Exception as error:
                self._error = error
            self._handles, self._keep, self._finish = [], None, None
            self._ended = True

    def wait(self, timeout=None):
        """Blocks until the operation has ended; raises its BackendError. True."""
        limit = _FOREVER if timeout is None else round(timeout.total_seconds() * 1000)
        if limit > 0:
            self._wait_until(limit)
        self._end()
        if self._error is not None:
            raise self._error
        return True

    def _wait_until(self, limit_ms):
        for handle in list(self._handles):
            code = library.tutti_work_wait(handle.pointer, limit_ms)
            if code != 0 and not library.tutti_work_done(handle.pointer):
                raise_last_error()

    def is_completed(self):
        return self._ended or all(library.tutti_work_done(h.pointer) for h in list(self._handles))

    def is_success(self):
        if not self.is_completed():
            return False
        self._end()
        return self._error is None

    def exception(self):
        return None if not self.is_completed() or self.is_success() else self._error

    def result(self):
        return self._outputs

    def synchronize(self):
        self.wait()

    def source_rank(self):
        return self._source

    _source_rank = source_rank

    def get_future(self):
        """A Future of the outputs. Does not block: a thread waits for the operation. A failure is
        raised inside of then(), because DDP takes a Future's exception for a tensor."""
        with self._lock:
            if self._future is not None:
                return self._future
            ended = torch.futures.Future()
            self._future = ended.then(self._outcome)
        self._completer.add(self, ended)
        return self._future

    def _outcome(self, _):
        if self._error is not None:
            raise self._error
        return self._outputs


class Completer:
    """A thread that waits for works, in the order in which they were added, and then completes
    their futures."""

    def __init__(self):
        self._changed = threading.Condition()
        self._works = deque()
        self._thread = None
        self._closed = False

    def add(self, work, ended):
        """Completes `ended` once `work` has ended."""
        if work.is_completed():
            work._end()
            ended.set_result(None)
            return
        with self._changed:
            self._works.append((work, ended))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tutti-completer",
                                                daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self):
        """Ends the thread after the last work."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._works or self._closed)
                if not self._works:
                    return
                work, ended = self._works.popleft()
            work._end()
            ended.set_result(None)
