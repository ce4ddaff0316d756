"""A rank that trains on COUNT floats, PAUSE_MS apart, until a call fails.

    rank.py COUNT PAUSE_MS [LOAD]

LOAD: sums (the default); pipeline, two sub-groups in which each rank computes for PAUSE_MS on what
it receives, then sends it on; halo, which asks its neighbours for their edges and offers its own
before it computes for PAUSE_MS.

Where the node has a file /etc/tutti/strategy its ranks ask for that strategy, and for as many
floats as /etc/tutti/count says."""

import pathlib
import sys
import time

import numpy
import tutti

STRATEGY, COUNT = pathlib.Path("/etc/tutti/strategy"), pathlib.Path("/etc/tutti/count")


def sums(group, count, pause_ms):
    step = 0
    while True:
        if COUNT.exists():
            count = int(COUNT.read_text())
        group.all_reduce(numpy.ones(count, "float32"),
                         strategy=STRATEGY.read_text() if STRATEGY.exists() else None)
        step += 1
        if step % 10 == 0:
            print(f"step {step}", flush=True)
        time.sleep(pause_ms / 1000)


def pipeline(group, count, pause_ms):
    stages = group.subgroup(range(group.rank % 2, group.world_size, 2))  # On all nodes.
    x = numpy.ones(count, "float32")
    while True:
        if stages.rank > 0:
            stages.recv(x, stages.rank - 1)
        time.sleep(pause_ms / 1000)
        if stages.rank < stages.world_size - 1:
            stages.send(x, stages.rank + 1)


def halo(group, count, pause_ms):
    neighbours = {(group.rank + way) % group.world_size for way in (1, -1)}
    own = numpy.ones(count, "float32")
    while True:
        works = [group.recv(numpy.empty(count, "float32"), one, blocking=False)
                 for one in neighbours]
        works += [group.send(own, one, blocking=False) for one in neighbours]
        time.sleep(pause_ms / 1000)
        for work in works:
            work.wait()


def main(count, pause_ms, load="sums"):
    group = tutti.join()
    print("joined", flush=True)
    {"sums": sums, "pipeline": pipeline, "halo": halo}[load](group, int(count), int(pause_ms))


main(*sys.argv[1:])
