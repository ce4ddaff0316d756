"""What each rank of mesh_reproducible does with the faces: their option gives the bits of
tutti.reference(), and ranks that choose differently fail, and go on."""

import re

import numpy as np

import tutti
from reproducible_ranks import wild
from tutti import burn
from tutti.average_gradients import average_gradients
from tutti.cross_device import (CommunicationOptions, HierarchicalCopyAllReduce,
                                ReductionToOneDevice)
from tutti.distribute import Strategy, Variable, get_replica_context


def by_average_gradients(group, x, choice):
    mean, = average_gradients([x], group, strategy="ring", reproducible=choice)
    return mean * group.world_size


def by_cross_device(kind):
    def reduce(group, x, choice):
        options = CommunicationOptions(implementation="RING", reproducible=choice)
        return kind(group=group).reduce("SUM", x, "CPU:0", options)

    return reduce


def by_burn(reduce):
    def run(group, x, choice):
        collective = burn.Collective(group, 60, choice)
        collective.register(group.rank, "cpu", burn.CollectiveConfig(
            global_all_reduce_strategy="ring", global_reduce_strategy="tree:1"))
        return reduce(collective, group.rank, x)

    return run


def by_strategy(reduce):
    return lambda group, x, choice: reduce(Strategy(group=group, reproducible=choice), x, None)


def by_call(reduce):
    """The call's choice counts before the strategy's."""
    return lambda group, x, choice: reduce(
        Strategy(group=group, reproducible=group.rank == 1), x,
        CommunicationOptions(reproducible=choice is True))


def in_replica(strategy, x, options):
    return strategy.run(lambda: get_replica_context().all_reduce("SUM", x, options))


def in_variable(strategy, x, options):
    with strategy.scope():
        total = Variable(np.zeros_like(x), aggregation="SUM")
    strategy.run(lambda: total.assign(x))
    return total.numpy()


def between_replicas(strategy, x, options):
    return strategy.reduce("SUM", x, options=options)


def along_axes(strategy, x, options):
    return strategy.reduce("SUM", x[np.newaxis], axis=0, options=options)


WAYS = {
    "average_gradients": by_average_gradients,
    "HierarchicalCopyAllReduce": by_cross_device(HierarchicalCopyAllReduce),
    "ReductionToOneDevice": by_cross_device(ReductionToOneDevice),
    "burn.all_reduce": by_burn(lambda collective, peer, x: collective.all_reduce(peer, x)),
    "burn.reduce": by_burn(lambda collective, peer, x: collective.reduce(peer, x, "sum", 0)),
    "Variable": by_strategy(in_variable),
    **{f"{by.__name__} {reduce.__name__}": by(reduce) for by in (by_strategy, by_call)
       for reduce in (in_replica, between_replicas, along_axes)}}


def check(name, group, xs):
    result = WAYS[name](group, xs[group.rank], True)
    if result is not None:  # That of another rank.
        assert result.tobytes() == tutti.reference(xs).tobytes(), name
    try:
        WAYS[name](group, xs[group.rank], group.rank == 0 or None)
        raise AssertionError(f"{name}: ranks that choose differently must fail")
    except tutti.Error as error:
        assert re.search("FAILED_PRECONDITION: .*reproducible", str(error)), (name, error)


def main():
    with tutti.join(timeout=60) as group:
        xs = [wild(rank, 1000, "float32", 1) for rank in range(group.world_size)]
        for name in WAYS:
            check(name, group, xs)
        group.barrier()


if __name__ == "__main__":
    main()
