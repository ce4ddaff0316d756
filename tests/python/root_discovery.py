"""Topologies of hosts that have a network namespace each, of which two have a slow link between
them. This file is also the program of the ranks."""

import os
import pathlib
import subprocess
import sys
import time
import unittest

import numpy as np

import tutti
from tutti import distribute

SLOW_MBIT = 40
BLOCK = 1 << 19  # Elements, 2 MiB: a rate is measured by more than 1 MiB.
ROUNDS = 3


def slow_down(address):
    """Limits what this host sends to another."""
    for line in ("qdisc add dev eth0 root handle 1: htb default 1 r2q 1000",
                 "class add dev eth0 parent 1: classid 1:1 htb rate 10gbit",
                 f"class add dev eth0 parent 1: classid 1:2 htb rate {SLOW_MBIT}mbit",
                 "filter add dev eth0 parent 1: protocol ip u32 match ip dst "
                 f"{address}/32 flowid 1:2"):
        subprocess.run(["tc", *line.split()], check=True)


def measure_links(group, per_host):
    """Called by the first rank of each host. Each host sends to one other at a time, because a
    slower link would hold up what it sends to more."""
    block, target = np.ones(BLOCK, "float32"), np.empty(BLOCK, "float32")
    for step in range(per_host, group.world_size, per_host):
        received = group.recv(target, (group.rank - step) % group.world_size, blocking=False)
        group.send(block, (group.rank + step) % group.world_size)
        received.wait()


def duration(group, x):
    """How long an all-reduce along the group's ring takes, in seconds."""
    group.barrier()
    begin = time.monotonic()
    group.all_reduce(x, strategy="ring")
    group.barrier()
    return time.monotonic() - begin


def run_rank():
    """Rank 0 prints what the test looks at."""
    other = {"b": "10.77.0.3", "c": "10.77.0.2"}.get(os.environ["TUTTI_HOST"])
    if other is not None and os.environ["LOCAL_RANK"] == "0":
        slow_down(other)
    with tutti.join(timeout=60) as group:
        group.barrier()  # The link is slow.
        for _ in range(ROUNDS if os.environ["LOCAL_RANK"] == "0" else 0):
            measure_links(group, int(os.environ["LOCAL_WORLD_SIZE"]))
        topology = distribute.discover(group)
        everywhere = group.all_gather(np.array(topology.ring_order()))
        assert (everywhere.reshape(group.world_size, -1) == everywhere.ravel()[
            :2 * group.world_size]).all(), everywhere
        along = group.subgroup([task for task, _ in topology.ring_order()])
        strategy = distribute.Strategy(group=along)
        total = strategy.reduce("SUM", np.arange(5.0) + group.rank)
        np.testing.assert_array_equal(
            total, group.world_size * (np.arange(5) + (group.world_size - 1) / 2))
        times = [duration(each, np.ones(4 * BLOCK, "float32")) for each in (group, along)]
        if group.rank == 0:
            print("links", len(topology.links), "faster", times[1] < times[0] / 2)
            print("ring", *(host.name for host in topology.hosts))
            print(times, topology.links, flush=True)


@unittest.skipIf(os.geteuid() != 0, "network namespaces need root")
class SlowLinkAsRoot(unittest.TestCase):
    def test_the_ring_avoids_it(self):
        for per_host in (1, 2):
            with self.subTest(per_host=per_host):
                run = subprocess.run(
                    [pathlib.Path(os.environ["TUTTI_BIN"]) / "tutti", "run", "--netns", "--hosts",
                     "4", "--per-host", str(per_host), "--", sys.executable, __file__],
                    text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
                self.assertEqual(run.returncode, 0, run.stdout)
                self.assertIn("links 12 faster True", run.stdout)
                self.assertRegex(run.stdout, "ring a (b d c|c d b)")


if __name__ == "__main__":
    if "TUTTI_RANK" in os.environ:
        run_rank()
    else:
        unittest.main()
