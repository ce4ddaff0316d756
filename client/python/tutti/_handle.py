"""Objects that stand for something outside of Python, such as handles of C, and their ends."""

import atexit
import contextlib
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
        with contextlib.suppress(Exception):  # One job that fails to be left keeps no other.
            leave(owner.pointer)


class Unique:
    """Base of classes whose objects can be neither copied nor pickled: a copy would act on the same
    group, or on memory that is freed with the original. Subclasses say what to do instead."""

    __slots__ = ()
    _instead = "pass the object itself, or make another one"

    def __reduce_ex__(self, protocol):
        kind = type(self)
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} can be neither copied nor "
                        f"pickled; {self._instead}")


class Handle(Unique):
    """Owns a handle of the library, `pointer`. Frees it when nothing refers to it, and before what
    is in `keep`; not when the interpreter exits: see leave_at_exit()."""

    def __init__(self, pointer, free, *keep):
        self.pointer = pointer
        weakref.finalize(self, _free, free, pointer, keep).atexit = False


def _free(free, pointer, keep):
    del keep  # Lived until here.
    free(pointer)
