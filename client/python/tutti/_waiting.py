"""Waits that Ctrl-C ends, though Python handles no signals while a call is in C."""

import collections
import os
import queue
import sys
import threading

STEP_MS = 200  # Longest wait in C of the main thread.
# While so many operations of a group are under way, a call may wait in C: the library has places
# for 256, which refused calls take as well.
WITHOUT_WAIT = 240
# Arrays of at most so many bytes the library copies as a whole, unless the call waits in C.
COPIED_BYTES_MAX = 1 << 20


_IDLE_SECONDS = 5  # After which a thread without a call ends.


class _Helper(threading.Thread):
    """A thread that makes one call after the other. Between calls it is in _idle: to start a thread
    takes longer than most calls."""

    def __init__(self):
        super().__init__(daemon=True)
        self._calls = queue.SimpleQueue()

    def begin(self, call):
        """A queue that gets the call's (result, exception)."""
        outcome = queue.SimpleQueue()
        self._calls.put((call, outcome))
        return outcome

    def run(self):
        """Returns once there has been no call for a while; keeps nothing of a call that has
        ended."""
        while True:
            try:
                call, outcome = self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._is_taken():
                    continue
                return
            try:
                ended = call(), None
            except BaseException as error:  # Raised where the caller waits.
                ended = None, error
            del call
            _idle.append(self)
            outcome.put(ended)
            del outcome, ended

    def _is_taken(self):
        """Whether a call is on its way; else this thread is given none any more."""
        try:
            _idle.remove(self)
        except ValueError:
            return True
        return False


_idle = collections.deque()
os.register_at_fork(after_in_child=_idle.clear)


def interruptible(call):
    """Runs a call that may block such that Ctrl-C ends the wait for it: on another thread where
    this is the main thread, the only one that signals reach, and the interpreter, which may be
    ending, lets others run. Raises what the call raises."""
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return call()
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
        try:
            helper.start()
        except RuntimeError:  # As of Python 3.12 there are no new threads in functions of atexit.
            return call()
    outcome = helper.begin(call)
    while True:
        try:
            result, error = outcome.get(timeout=STEP_MS / 1000)
            break
        except queue.Empty:  # Python looks for signals.
            if not helper.is_alive() and outcome.empty():
                raise RuntimeError("this process was forked within a call, which the parent makes")
    try:
        if error is not None:
            raise error
        return result
    finally:
        del error, call, outcome  # The error's traceback would keep this frame, and so the call.
