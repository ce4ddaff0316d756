"""Operations under way, as torch.distributed sees them."""

import threading
import time
from collections import deque

import torch
import torch.distributed as dist

from tutti import _overlap
from tutti._error import Error
from tutti._handle import Unique
from tutti._library import last_error, library
from tutti.torch import _gpu, _patches
from tutti.torch._waiting import is_done, outlive_exit, wait_in_steps

# Operations of up to so many bytes are first waited for that long.
_SMALL_BYTES = 2**20
_SOON_MS = 1
_KEPT_MAX = 8  # Works that may have ended without anybody having taken their outcomes.
_free = library.tutti_work_free
_TIMED_OUT = "Timed out waiting: "  # The words that torch's users look for.


class BackendError(dist.DistBackendError, Error):
    """A failed operation: see tutti.Error for its code, message, rank and host."""

    def __init__(self, code, message, rank=None, host=None):
        if code == "DEADLINE_EXCEEDED" and not message.startswith(_TIMED_OUT):
            message = _TIMED_OUT + message
        super().__init__(code, message, rank, host)

    def __reduce__(self):
        return BackendError, (self.code, self.message, self.rank, self.host)


def backend_error(error):
    """An Error as a BackendError."""
    return BackendError(error.code, error.message, error.rank, error.host)


def last_failure():
    """This thread's last failure of the library, to raise."""
    return backend_error(last_error())


class Handle(Unique):
    """Owns a tutti_work."""

    __slots__ = ("pointer",)

    def __init__(self, pointer):
        self.pointer = pointer

    def __del__(self, free=library.tutti_work_free):
        free(self.pointer)


def end_here(backend, work, keep):
    """Waits for a tutti_work, and frees it; raises its failure. Between steps signal handlers run,
    as that of Ctrl-C, and abort() is noticed: then the operation goes on, on the tensors in
    `keep`."""
    try:
        if not wait_in_steps(backend, work):
            raise last_failure()
    except BaseException:
        if not is_done(work):
            TuttiWork(backend, backend.collectives, [], [Handle(work)], keep)  # Keeps itself.
            raise
        _free(work)
        raise
    _free(work)


def begin_record(title, inputs):
    """Begins a record of the profiler, which ends when the Future that it returns is completed: on
    another thread the profiler takes no other end before torch 2.12."""
    record = torch._C._autograd._record_function_with_args_enter(title, *inputs)
    end = torch.futures.Future()
    torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, end)
    return end


class TuttiWork(Unique, dist._Work):
    """One operation of torch: several of Tutti's, or none if it has ended.

    backend: whose state is used. completer: keeps the work until it has ended. outputs: its result.
    handles: what is under way. finish: called once, after the last handle ended, to copy results to
    where they belong. record: of begin_record(), which ends with the operation. error: of an
    operation that could not be started. uses: the _overlap.Uses of its tensors on the host.
    """

    def __init__(self, backend, completer, outputs, handles=(), keep=(), finish=None, record=None,
                 error=None, uses=()):
        super().__init__()
        self._backend = backend
        self.completer = completer
        self._outputs = outputs
        self._handles = handles
        self._keep = keep
        self._finish = finish
        self._lock = threading.Lock()
        self._error = error
        self._ended = error is not None
        self._promise = None
        self._future = None
        self._source = -1
        self._record = record
        if handles:
            if uses:
                _overlap.begin(self, uses)  # First: once it is kept, other threads may end it.
            completer.keep(self)
        if record is not None:
            self.get_future()

    def end(self):
        """Waits until the operation has ended, and takes its outcome. Idempotent."""
        with self._lock:
            if self._ended:
                return
            try:
                for handle in self._handles:
                    self._wait_for(handle)
                if self._finish is not None:
                    self._finish()
                self._source = self._source_of_receive()
            except Exception as error:
                self._error = error
                self._backend.note_failure(error)
            self._handles, self._keep, self._finish = (), None, None
            self._ended = True
            _overlap.end(self)
            self.completer.let_go(self)

    def done(self):
        """Whether its outcome was taken: until then it has its tensors."""
        return self._ended

    def _wait_for(self, handle):
        if not wait_in_steps(self._backend, handle.pointer):
            raise last_failure()

    def _source_of_receive(self):
        return library.tutti_work_source(self._handles[-1].pointer) if self._handles else -1

    def end_record(self):
        """Ends the profiler's record, if there is one. On another thread than it began: so it is
        asynchronous."""
        with self._lock:
            if self._record is not None:
                self._record.set_result(None)
                self._record = None

    def wait(self, timeout=None):
        """Blocks until the operation has ended; raises its BackendError. True. Then earlier
        collectives of the group, which all ranks have called, have ended, too: nobody else may wait
        for them."""
        limit = 0 if timeout is None else round(timeout.total_seconds() * 1000)
        if limit > 0:
            self._wait_until(limit)
        earlier = self.completer.before(self)
        self.end()
        if self._record is not None:
            ending = threading.Thread(target=self.end_record)
            ending.start()
            ending.join()
        if self._error is not None:
            raise self._error
        for work in earlier:
            work.end()
        return True

    def _wait_until(self, limit_ms):
        limit = time.monotonic() + limit_ms / 1000
        for handle in self._handles:
            if wait_in_steps(self._backend, handle.pointer, limit) is None:
                raise BackendError("DEADLINE_EXCEEDED",
                                   f"the operation has not ended after {limit_ms} ms; it goes on")

    def is_completed(self):
        """Whether it has ended; if so, its results are where they belong."""
        for handle in self._handles:
            if not library.tutti_work_done(handle.pointer):
                return False
        self.end()
        return True

    def ends_soon(self):
        """Whether it has ended, after a short wait if it is small: to hand that to another thread
        would cost more."""
        if sum(output.numel() * output.element_size() for output in self._outputs) <= _SMALL_BYTES:
            for handle in self._handles:
                library.tutti_work_wait(handle.pointer, _SOON_MS)
        return self.is_completed()

    def is_success(self):
        if not self.is_completed():
            return False
        self.end()
        return self._error is None

    def exception(self):
        return None if not self.is_completed() or self.is_success() else self._error

    def result(self):
        return self._outputs

    def synchronize(self):
        self.wait()

    def source_rank(self):
        """The sender, after a receive has ended."""
        self.end()
        return self._source

    _source_rank = source_rank

    def get_future(self):
        """A Future of the outputs. Does not block: a thread waits for the operation. A failure is
        raised inside of then(), because DDP takes a Future's exception for a tensor."""
        if _patches.is_asked_for(self):
            return _patches.NO_FUTURE
        if self._future is None:
            self.completer.add(self)
        return self._future

    def make_future(self):
        """Makes the Future, which complete() completes."""
        self._promise = torch.futures.Future()
        self._future = self._promise.then(self._outcome)

    def complete(self):
        """Ends the work, then its record, then its Future. Called once."""
        self.end()
        self.end_record()
        self._promise.set_result(None)

    def _outcome(self, _):
        if self._error is not None:
            raise self._error
        return self._outputs


class GpuWork(TuttiWork):
    """An operation on GPU tensors, on a stream of the group's own.

    Its Future is complete from the beginning, and wait() returns at once: both have the program's
    current stream wait. So a later failure has nobody to raise it for; the group's next call does.
    """

    def __init__(self, backend, completer, outputs, handles, keep, device, stream):
        self.device = device
        self.stream = stream
        self._event = stream.record_event()
        super().__init__(backend, completer, outputs, handles, keep)
        self._future = _gpu.future_of(outputs, device, stream)

    def wait(self, timeout=None):
        """Has the current stream wait. Raises the BackendError of an operation that has failed."""
        if TuttiWork.is_completed(self):
            self.end()
        if self._error is not None:
            self._backend.note_seen(self._error)
            raise self._error
        _gpu.current_stream(self.device).wait_event(self._event)
        return True

    def end(self):
        if self._ended:
            return
        super().end()
        if self._error is not None:
            self._backend.note_unseen(self._error)

    def finish(self):
        """Ends the operation, and waits until its results are where they belong."""
        self.end()
        self._event.synchronize()

    def is_completed(self):
        return super().is_completed() and self._event.query()

    def ends_soon(self):
        return False


class Works(TuttiWork):
    """Several works as one, in the order of their calls."""

    def __init__(self, backend, completer, works):
        super().__init__(backend, completer, [output for work in works for output in work.result()])
        self._works = works
        self._gpu_works = [work for work in works if isinstance(work, GpuWork)]
        if self._gpu_works:
            last = self._gpu_works[-1]
            self._future = _gpu.future_of(self._outputs, last.device, last.stream)

    def wait(self, timeout=None):
        if len(self._gpu_works) < len(self._works):
            super().wait(timeout)
        for work in self._gpu_works:
            work.wait(timeout)
        return True

    def end(self):
        with self._lock:
            for work in [] if self._ended else self._works:
                work.end()
                self._error = self._error or work._error
            self._ended = True

    def _wait_until(self, limit_ms):
        for work in self._works:
            work._wait_until(limit_ms)

    def is_completed(self):
        return all(work.is_completed() for work in self._works)


class Completer:
    """Keeps works until they have ended, also those that nobody refers to any longer: until then
    the library reads and writes their tensors. Has a thread that waits for works with a Future, in
    the order in which these were asked for, and completes them. ordered: all ranks start the works
    in the same order."""

    def __init__(self, ordered):
        self._ordered = ordered
        self._changed = threading.Condition()
        self.unfinished = {}  # In the order of their start.
        self._works = deque()
        self._thread = None
        self._closed = False

    def keep(self, work):
        """Keeps a work until it has ended."""
        if len(self.unfinished) >= _KEPT_MAX:
            self.settle()
        self.unfinished[work] = None

    def let_go(self, work):
        self.unfinished.pop(work, None)

    def before(self, work):
        """Unfinished works that were started before this one; none if they have no order."""
        earlier = []
        for unfinished in list(self.unfinished) if self._ordered else ():
            if unfinished is work:
                return earlier
            earlier.append(unfinished)
        return ()

    def settle(self):
        """Takes the outcomes of works that have ended, up to the first that has not."""
        for work in list(self.unfinished):
            if not work.is_completed():
                return
            work.end()

    def add(self, work):
        """Gives the work its Future, unless it has one. On the thread itself, hence in a function
        that hangs on another Future, waits for the work: that function may wait for its Future."""
        with self._changed:
            if work._future is not None:
                return
            work.make_future()
        if work._record is None and (work.ends_soon()
                                     or threading.current_thread() is self._thread):
            work.complete()
            return
        with self._changed:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tutti-completer",
                                                daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self):
        """Lets all works go, and ends the thread after the last one."""
        for work in list(self.unfinished):
            _overlap.end(work)
        self.unfinished.clear()
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._works or self._closed)
                if not self._works:
                    self._thread = None
                    return
                work = self._works.popleft()
            outlive_exit(work.complete)  # Functions that hang on its Future run below torch.
            del work
