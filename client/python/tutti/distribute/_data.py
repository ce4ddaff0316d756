"""Batches of data for replicas."""

import itertools

import numpy

from tutti import _traced
from tutti._error import invalid
from tutti._handle import Unique
from tutti.distribute import _api, _nest
from tutti.distribute._values import PerReplica


def _wrap(batches):
    """A batch for each replica of this process, as run() takes it."""
    return batches[0] if len(batches) == 1 else _nest.regroup(batches, PerReplica)


def _rows_of(batch):
    """The number of rows of a batch. Raises ValueError where its parts differ."""
    leaves = _nest.flatten(batch)
    rows = {numpy.shape(leaf)[0] if numpy.shape(leaf) else None for leaf in leaves}
    if len(rows) != 1 or None in rows:
        raise invalid(f"the parts of a global batch have the shapes "
                      f"{[tuple(numpy.shape(leaf)) for leaf in leaves]}; they must have equally "
                         "many rows")
    return rows.pop()


def _emptied(batch):
    """A batch without rows like this one; None where a part is a number, which has no rows."""
    if any(numpy.shape(leaf) == () for leaf in _nest.flatten(batch)):
        return None
    return _nest.map_leaves(lambda leaf: leaf[:0], batch)


class _Batches(Unique):
    """Batches for the replicas of all processes, which iterate together: until all data has ended,
    those whose data ended first get empty ones."""

    _instead = "have its strategy make another one of the data"

    def __init__(self, strategy, dataset):
        self._strategy = strategy
        self._dataset = dataset

    def __iter__(self):
        _traced.refuse_call("the loop over a data set")
        replicas = len(self._strategy.local_replica_ids)
        batches, last = None, None
        while True:
            with self._strategy.telling():
                batches = iter(self._dataset) if batches is None else batches
                parts = self._next_of(batches, replicas)
                if len(parts) < replicas:  # Some begin from the start when asked again.
                    batches = iter(())
                last = parts[0] if parts else last
                lacking = replicas - len(parts)
                empty = _emptied(last) if lacking and last is not None else None
            if not self._anybody_has(len(parts), lacking and empty is None):
                return
            yield _wrap(parts + [empty] * lacking)

    def _anybody_has(self, parts, lacks):
        """Whether any process has data left. Raises ValueError in all of them if so, and one
        `lacks` batches that cannot be empty: it has never had any, so that their shape is not
        known, or they are numbers."""
        if self._strategy.world_size == 1 and not (parts and lacks):
            return parts > 0
        told = numpy.zeros(1 + self._strategy.world_size, "int64")
        told[0], told[1 + self._strategy.rank] = parts, lacks
        left, *without = self._strategy.reduce(
            "SUM", PerReplica([told] * len(self._strategy.local_replica_ids)))
        if left and any(without):
            ranks = ", ".join(f"rank {rank}" for rank, lacks in enumerate(without) if lacks)
            raise invalid(f"the data set of {ranks} has no batch for a replica, while others "
                             "have, and an empty one cannot be made: its elements are numbers, or "
                             "it has had none; give each replica equally many numbers, and each "
                             "process at least one batch")
        return bool(left)


class SharedBatches(_Batches):
    """The rows of this process's replicas of each global batch."""

    def _next_of(self, batches, replicas):
        for batch in batches:
            rows = _rows_of(batch)
            bounds = [_api.rows_of_replica(rows, replica, self._strategy.num_replicas_in_sync)
                      for replica in self._strategy.local_replica_ids]
            return [_nest.map_leaves(lambda leaf, b=begin, e=end: leaf[b:e], batch)
                    for begin, end in bounds]
        return []


class ReplicaBatches(_Batches):
    """A batch of a process's data set for each of its replicas at a time."""

    def _next_of(self, batches, replicas):
        return list(itertools.islice(batches, replicas))
