"""What torch does not tell of a Python backend, told all the same.

Works: torch gives programs a holder of a backend's work. In torch 2.15 that passes on wait() and
get_future(); its is_completed() is false for ever, so that a loop which polls it never ends, and
result() and source_rank(), which dist.recv() without a source asks for, raise. Once patched, these
methods ask our work, if the holder has one. The works of other backends answer as before.

Flight recorder: torch records our collectives under the backend's name, but its dumps are by
default of "gloo". Once patched, they are by default of "tutti" where that has entries.
"""

import functools
import os
import threading

import torch
import torch.distributed as dist

_SWITCH = "TUTTI_TORCH_PATCH"
_METHODS = ("is_completed", "is_success", "exception", "result", "source_rank", "_source_rank")
_DUMPS = {"_dump_fr_trace": 4, "_dump_fr_trace_json": 3}  # How many arguments, "backend" last.
_asking = threading.local()  # Whether a holder is asked for its work now; the answer.
NO_FUTURE = torch.futures.Future()


def is_asked_for(work):
    """Called by get_future() of our work, which a holder does pass on: whether _work_of() called
    it, which then has its answer."""
    if not getattr(_asking, "now", False):
        return False
    _asking.now, _asking.answer = False, work
    return True


def _work_of(holder):
    """Our work behind a holder; None: the work is another backend's."""
    _asking.now, _asking.answer = True, None
    try:
        holder.get_future()
    except RuntimeError:  # A backend without Futures.
        pass
    finally:
        _asking.now = False
    return _asking.answer


def _asks_our_work(name, original):
    @functools.wraps(original)
    def method(holder, *arguments):
        if type(holder) is dist.Work:
            # The holder of ours is never true: this spares other backends' works the question.
            if name == "is_completed" and original(holder):
                return True
            work = _work_of(holder)
            if work is not None:
                return getattr(work, name)(*arguments)
        return original(holder, *arguments)

    return method


def _dumps_ours(original, arguments_max, is_in_use):
    @functools.wraps(original)
    def dump(*arguments, **options):
        if len(arguments) < arguments_max and is_in_use():
            options.setdefault("backend", "tutti")
        return original(*arguments, **options)

    return dump


def patch(is_in_use):
    """Patches torch, once, unless TUTTI_TORCH_PATCH is 0. is_in_use(): whether the default group is
    of this backend."""
    if os.environ.get(_SWITCH) == "0":
        return
    for name in _METHODS:
        setattr(dist.Work, name, _asks_our_work(name, getattr(dist.Work, name)))
    if not hasattr(torch._C._distributed_c10d, "_reset_fr_trace"):
        return  # Before torch 2.15 only the calls of backends in C++ are recorded.
    for name, arguments_max in _DUMPS.items():
        original = getattr(torch._C._distributed_c10d, name)
        setattr(torch._C._distributed_c10d, name, _dumps_ours(original, arguments_max, is_in_use))
