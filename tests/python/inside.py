"""For programs of tests: whether threads are within calls, so that what happens then is tested."""

import os
import signal
import sys
import threading
import time

_LOOKS = 40  # A thread that is within a call stays where it is for so many looks.
_SECONDS = 30


def _place_of(thread, within):
    """Where a thread is in Python, if one of its functions is of a file whose path has `within`;
    None: none is."""
    top = frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if within in frame.f_code.co_filename:
            return id(top), top.f_lasti
        frame = frame.f_back
    return None


def wait_until_inside(threads, within=f"{os.sep}tutti{os.sep}"):
    """Returns once all threads wait within calls of the package, or of another file.
    AssertionError: they do not in time."""
    limit = time.monotonic() + _SECONDS
    last, looks = None, 0
    while looks < _LOOKS:
        if time.monotonic() > limit:
            raise AssertionError(f"not within calls: {[t.name for t in threads]}")
        time.sleep(0.001)  # Between looks the threads run.
        places = [_place_of(thread, within) for thread in threads]
        looks = looks + 1 if None not in places and places == last else 0
        last = places


def interrupt_inside():
    """Has Ctrl-C come once the main thread, which calls this, is within a call that waits."""
    main = threading.current_thread()

    def body():
        wait_until_inside([main])
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=body, daemon=True).start()
