"""Waits that Ctrl-C ends, though Python handles no signals while a call is in C."""

import threading

STEP_MS = 200  # Longest wait in C of the main thread.
# While so many operations of a group are under way, a call may wait in C: the library has places
# for 256, which refused calls take as well.
WITHOUT_WAIT = 240
# Arrays of at most so many bytes the library copies as a whole, unless the call waits in C.
COPIED_BYTES_MAX = 1 << 20


def interruptible(call):
    """Runs a call that may block such that Ctrl-C ends the wait for it: on a thread of its own
    where this is the main thread, the only one that signals reach, and the interpreter, which may
    be ending, starts another. Raises what the call raises."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome = []

    def body():
        try:
            outcome.append((call(), None))
        except BaseException as error:  # Raised where the caller waits.
            outcome.append((None, error))

    thread = threading.Thread(target=body, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # As of Python 3.12 there are no new threads in functions of atexit.
        return call()
    while thread.is_alive():
        thread.join(STEP_MS / 1000)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
