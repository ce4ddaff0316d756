"""Handles of C, and what becomes of them when the interpreter exits."""

import atexit
import weakref

# By the owner of a handle in whose job this process is: the function that leaves it.
_leaving = weakref.WeakKeyDictionary()


def leave_at_exit(owner, leave):
    """When the interpreter exits, calls leave(owner.pointer), by which the other ranks learn of it.
    Nothing is freed then: until the process ends, daemon threads may be within calls, and whatever
    runs may use arrays in the library's memory."""
    _leaving[owner] = leave


def stay_at_exit(owner):
    """Takes leave_at_exit() back."""
    _leaving.pop(owner, None)


@atexit.register
def _leave_all():
    for owner, leave in list(_leaving.items()):
        leave(owner.pointer)


class Handle:
    """Owns a C handle. Frees it when nothing refers to it, but not when the interpreter exits: see
    leave_at_exit()."""

    def __init__(self, pointer, free):
        self.pointer = pointer
        weakref.finalize(self, free, pointer).atexit = False
