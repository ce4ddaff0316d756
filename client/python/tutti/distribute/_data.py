"""Batches of data for replicas."""

import itertools

import numpy

from tutti import _traced
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
        raise ValueError(f"the parts of a global batch have the shapes "
                         f"{[tuple(numpy.shape(leaf)) for leaf in leaves]}; they must have equally "
                         "many rows")
    return rows.pop()


class _Batches(Unique):
    _instead = "have its strategy make another one of the data"


class SharedBatches(_Batches):
    """The rows of this process's replicas of each global batch."""

    def __init__(self, strategy, dataset):
        self._strategy = strategy
        self._dataset = dataset

    def __iter__(self):
        _traced.refuse_call("the loop over a data set")
        for batch in self._dataset:
            rows = _rows_of(batch)
            parts = []
            for replica in self._strategy.local_replica_ids:
                begin, end = _api.rows_of_replica(rows, replica,
                                                  self._strategy.num_replicas_in_sync)
                parts.append(_nest.map_leaves(lambda leaf, b=begin, e=end: leaf[b:e], batch))
            yield _wrap(parts)


class ReplicaBatches(_Batches):
    """A batch of a process's data set for each of its replicas at a time."""

    def __init__(self, strategy, dataset):
        self._strategy = strategy
        self._dataset = dataset

    def __iter__(self):
        _traced.refuse_call("the loop over a data set")
        replicas = len(self._strategy.local_replica_ids)
        batches, empty = None, None
        while True:
            with self._strategy.telling():
                batches = iter(self._dataset) if batches is None else batches
                parts = list(itertools.islice(batches, replicas))
                if parts:
                    empty = _nest.map_leaves(lambda leaf: leaf[:0], parts[0])
            if not self._anybody_has(len(parts), empty is None):
                return
            yield _wrap(parts + [empty] * (replicas - len(parts)))

    def _anybody_has(self, parts, never):
        """Whether any process has data left. Raises ValueError in all of them if so, and one has
        `never` had any, whose empty batches would have no known shape."""
        if self._strategy.world_size == 1:
            return parts > 0
        told = numpy.zeros(1 + self._strategy.world_size, "int64")
        told[0], told[1 + self._strategy.rank] = parts, never
        left, *without = self._strategy.reduce(
            "SUM", PerReplica([told] * len(self._strategy.local_replica_ids)))
        if left and any(without):
            ranks = ", ".join(f"rank {rank}" for rank, never in enumerate(without) if never)
            raise ValueError(f"the data set of {ranks} has no batch, while others have; give each "
                             "process at least one")
        return bool(left)
