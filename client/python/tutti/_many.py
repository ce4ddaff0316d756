"""Lists of tensors: grouped by dtype, passed to the C ABI, and waited for as one work."""

import contextlib
import ctypes
import itertools
import time

from tutti import _overlap, _tensor
from tutti._dtype import DTYPES, dtype_name
from tutti._error import Error, invalid
from tutti._handle import Unique


def by_dtype(sides):
    """Pairs of source and target by dtype, in the order of the dtypes' numbers, which is the
    same on all ranks. An empty list is one of f32, because it is compared with the other ranks'
    lists."""
    grouped = {name: [] for name in DTYPES}
    for source, target in sides:
        grouped[source.dtype].append((source, target))
    return {name: pairs for name, pairs in grouped.items() if pairs} or {"f32": []}


def operations_of(xs, op=None, strategy=None, outs=None, timeout=None, blocking=True, dtype=None,
                  *_, **__):
    """How many operations the other ranks make of the call of all_reduce_many that is refused with
    these arguments, which are in its order: one for each dtype. An array whose dtype cannot be
    read is taken to be of one that another array has."""
    if not isinstance(xs, (list, tuple)):
        return 1
    outs = outs if isinstance(outs, (list, tuple)) else ()
    names = {_name_of(x, dtype) or _name_of(out, None)
             for x, out in itertools.zip_longest(xs, outs[:len(xs)])}
    return max(1, len(names - {None}))


def _name_of(x, dtype):
    """The name of the dtype that an array is read as; None: it is not known. Numbers and lists
    have any, because they are no place for a result."""
    if isinstance(x, (int, float, list, tuple)):
        return None
    for given in (lambda: _tensor.Tensor(x, dtype).dtype, lambda: x.dtype):
        with contextlib.suppress(BaseException):
            return dtype_name(given())
    return None


def arguments(name, pairs, op):
    """The arguments of tutti_all_reduce_many between the group and the options."""
    pointers = ctypes.c_void_p * len(pairs)
    return (pointers(*(source.address for source, _ in pairs)),
            pointers(*(target.address for _, target in pairs)),
            (ctypes.c_size_t * len(pairs))(*(source.count for source, _ in pairs)),
            len(pairs), DTYPES[name], _tensor.op_number(op))


def start_all(start, calls):
    """What start(*call) returns, for each call. All are made, also after one has failed, because
    the other ranks make them; raises the first Error."""
    works, first = [], None
    for call in calls:
        try:
            works.append(start(*call))
        except Error as error:
            first = first or error
    if first is not None:
        works.clear()  # The error's traceback would keep them, and so their arrays in use.
        raise first
    return works


def listed(xs):
    """What an iterable of arrays yields."""
    if not hasattr(xs, "__iter__"):
        raise invalid(f"{type(xs).__name__} is no list of arrays")
    return list(xs)


def pair_up(xs, outs):
    """Pairs of array and output; the output is None for an array that is reduced in place."""
    outs = [None] * len(xs) if outs is None else listed(outs)
    if len(outs) != len(xs):
        raise invalid(f"all_reduce_many has {len(xs)} arrays but {len(outs)} outputs")
    return zip(xs, outs)


def apart(sides):
    """The pairs of source and target, where none gets in another's way. For arrays that are listed
    again with the same output it has the first pair again, which the library leaves out. Raises
    where arrays overlap that are not contiguous, or of a list of several dtypes, each of which is
    an operation of its own; the library does for others."""
    if (len({source.dtype for source, _ in sides}) < 2
            and not any(tensor.is_copy for pair in sides for tensor in pair)):
        return sides
    first, listed, uses = {}, [], []
    for pair in sides:
        listed.append(first.setdefault((pair[0].elements, pair[1].elements), pair))
        uses.append(_tensor.uses_of(*pair) if listed[-1] is pair else [])
    _overlap.check_list(uses)
    return listed


class Works(Unique):
    """Several works that are waited for as one. Like Work, with a list for a result."""

    _instead = "wait for it, and copy the results"

    def __init__(self, works, results):
        self._works = works
        self._results = results

    def done(self):
        """Whether all operations have ended, so that wait() would not block."""
        return all(work.done() for work in self._works)

    def wait(self, timeout=None):
        """Waits until all operations have ended; returns the list of results or raises the first
        Error. Raises DEADLINE_EXCEEDED after `timeout` seconds: see Work.wait()."""
        limit = None if timeout is None else time.monotonic() + timeout
        first = None
        for work in self._works:
            try:
                work.wait(None if limit is None else max(0, limit - time.monotonic()))
            except Error as error:
                if not work.done():
                    raise
                first = first or error
        if first is not None:
            raise first
        return self._results
