"""Topologies of jobs of real agents, found before their strategy is made. This file is also the
program of the ranks."""

import os
import subprocess
import sys
import unittest

import numpy as np

from tutti import distribute

RANKS = ((0, 1), (2,), (3,))  # Of hosts a, b and c.


def run_rank():
    """Fails where a rank does not find what it should."""
    topology = distribute.discover()
    assert {host.name: host.tasks for host in topology.hosts} == dict(zip("abc", RANKS)), topology
    assert topology.mesh_shape.tolist() == [3, 1, 1, 2], topology.mesh_shape
    assignment = distribute.DeviceAssignment.build(topology, num_replicas=4)
    strategy = distribute.Strategy(device_assignment=assignment)
    assert strategy.topology is topology
    (replica,) = strategy.local_replica_ids
    assert assignment.tpu_device(replica).startswith(f"/task:{strategy.rank}/"), assignment
    total = strategy.reduce("SUM", np.full(3, 10.0 ** replica))
    np.testing.assert_array_equal(total, np.full(3, 1111.0))
    resolver = strategy.cluster_resolver
    assert (resolver.task_type, resolver.task_id) == ("worker", strategy.rank)
    assert resolver.placement()["leader"] == (
        f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"), resolver.placement()


class Discovery(unittest.TestCase):
    def test_before_the_strategy(self):
        run = subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--hosts", "3", "--per-host",
             ",".join(str(len(ranks)) for ranks in RANKS), "--", sys.executable, __file__],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(run.returncode, 0, run.stdout)


if __name__ == "__main__":
    if "TUTTI_RANK" in os.environ:
        run_rank()
    else:
        unittest.main()
