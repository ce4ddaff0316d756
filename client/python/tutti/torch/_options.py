"""The options of a process group, and of the calls of the C ABI that it makes."""

import ctypes

import torch
import torch.distributed as dist

from tutti import _library
from tutti._tensor import choice_of
from tutti.torch import _group
from tutti.torch._tensor import invalid

Base = (_group.BackendBase if _group.IS_NEEDED
        else getattr(dist, "BackendBase", None) or torch._C._distributed_c10d.Backend)
_MILLISECONDS_MAX = 2**31 - 1


class Options(Base.Options):
    """pg_options of init_process_group() and new_group() for this backend. split_group() takes the
    parent's.

    reproducible: whether the group's reductions are; the same on all ranks. None: those of CPU
    tensors while torch.use_deterministic_algorithms() is on, else as the join says.
    """

    def __init__(self, reproducible=None, name="tutti"):
        super().__init__(name)
        self.reproducible = reproducible
        self.choice()

    def choice(self):
        """`reproducible` for C."""
        return choice_of(self.reproducible, invalid=invalid)


def copy_of(options, name):
    """Options for a backend of one's own: those given are the caller's, for any group."""
    copy = Options(getattr(options, "reproducible", None), name)
    if options is not None:
        copy._timeout = options._timeout
        copy.group_name = options.group_name
        copy.global_ranks_in_group = options.global_ranks_in_group
    return copy


def options_of(timeout, reproducible):
    """A pointer to the C ABI's options with a timeout of torch."""
    milliseconds = min(max(1, round(timeout.total_seconds() * 1000)), _MILLISECONDS_MAX)
    return ctypes.byref(_library.Options(ctypes.sizeof(_library.Options), None, milliseconds, 1.0,
                                         buffers_stay=1, reproducible=reproducible))
