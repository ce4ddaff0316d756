"""A trainer of the tests: joins by its variables alone, and does what its argument says.

values: checks a sum by every strategy. hold: repeats a sum until it fails, and prints the error.
steps FILE: repeats a sum until the file is there."""

import json
import os
import sys

import numpy
import tutti


def expect_sum(group, strategy, count):
    x = numpy.arange(count, dtype="float32") + group.rank
    group.all_reduce(x, strategy=strategy)
    size = group.world_size
    numpy.testing.assert_array_equal(
        x, numpy.arange(count, dtype="float32") * size + size * (size - 1) // 2)


def main(what, *more):
    try:
        group = tutti.join(timeout=30)
    except tutti.Error as error:
        print(f"refused: {error}", flush=True)
        return 1
    print(f"joined: rank {group.rank} of {group.world_size} by {group.launcher}", flush=True)
    if what == "values":
        for strategy in ("centralized", "tree:2", "ring", "auto", "ring,tree:2"):
            for count in (1, 1000, 1_000_000):
                expect_sum(group, strategy, count)
        print("values are right", flush=True)
    elif what == "steps":
        stop = numpy.zeros(1)
        while stop[0] == 0:
            stop[0] = os.path.exists(more[0])
            group.all_reduce(stop, op="max")
    else:
        try:
            while True:
                expect_sum(group, "ring", 10_000)
        except tutti.Error as error:
            print(json.dumps({"rank": error.rank, "host": error.host, "text": str(error)}),
                  flush=True)
            return 0
    group.leave()
    return 0


sys.exit(main(*sys.argv[1:]))
