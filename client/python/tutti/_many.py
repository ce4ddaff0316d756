"""Lists of tensors: grouped by dtype, passed to the C ABI, and waited for as one work."""

import ctypes
import time

from tutti import _tensor
from tutti._dtype import DTYPES
from tutti._error import Error, invalid


def by_dtype(sides):
    """Pairs of source and target by dtype, in the order of the dtypes' numbers, which is the
    same on all ranks. An empty list is one of f32, because it is compared with the other ranks'
    lists."""
    grouped = {name: [] for name in DTYPES}
    for source, target in sides:
        grouped[source.dtype].append((source, target))
    return {name: pairs for name, pairs in grouped.items() if pairs} or {"f32": []}


def arguments(name, pairs, op):
    """The arguments of tutti_all_reduce_many between the group and the options."""
    pointers = ctypes.c_void_p * len(pairs)
    return (pointers(*(source.address for source, _ in pairs)),
            pointers(*(target.address for _, target in pairs)),
            (ctypes.c_size_t * len(pairs))(*(source.count for source, _ in pairs)),
            len(pairs), DTYPES[name], _tensor.op_number(op))


def pair_up(xs, outs):
    """Pairs of array and output; the output is None for an array that is reduced in place."""
    xs = list(xs)
    outs = [None] * len(xs) if outs is None else list(outs)
    if len(outs) != len(xs):
        raise invalid(f"all_reduce_many has {len(xs)} arrays but {len(outs)} outputs")
    return zip(xs, outs)


class Works:
    """Several works that are waited for as one. Like Work, with a list for a result."""

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
