"""Reproducible reductions send the bytes of a ring: counted by the interfaces of hosts that have a
network namespace each. This file is also the program of the ranks."""

import os
import re
import subprocess
import sys
import unittest

import numpy as np

import tutti

CALLS = 10
ELEMENTS = (16 << 20) // 4
LAYOUTS = ((2, 1), (3, 1), (2, 2), (3, 2), (4, 1))  # Hosts, ranks of each.
RATIO = 1.1


def sent_bytes():
    """By the network namespace of this process, except over its loopback interface."""
    with open("/proc/self/net/dev") as file:
        interfaces = [line.replace(":", " ").split() for line in file.readlines()[2:]]
    return sum(int(fields[9]) for fields in interfaces if fields[0] != "lo")


def run_rank(strategy, reproducible):
    """Rank 0 prints what all hosts have sent."""
    with tutti.join(timeout=60) as group:
        x = group.empty(ELEMENTS)
        x[:] = group.rank
        group.barrier()
        before = sent_bytes()
        group.barrier()  # All have read.
        for _ in range(CALLS):
            group.all_reduce(x, strategy=strategy, reproducible=reproducible)
        group.barrier()
        of_host = sent_bytes() - before if os.environ["LOCAL_RANK"] == "0" else 0
        total = group.all_reduce(np.array([of_host], "int64"))[0]
        if group.rank == 0:
            print(f"sent {total} bytes")


@unittest.skipIf(os.geteuid() != 0, "network namespaces need root")
class BytesAsRoot(unittest.TestCase):
    def sent(self, hosts, ranks, strategy, reproducible):
        run = subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--netns", "--hosts",
             str(hosts), "--per-host", str(ranks), "--", sys.executable, __file__, strategy,
             str(reproducible)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        self.assertEqual(run.returncode, 0, run.stdout)
        sent = int(re.search(r"sent (\d+) bytes", run.stdout)[1])
        # Each element reaches and leaves every host but one: less was not counted.
        self.assertGreaterEqual(sent, 2 * (hosts - 1) * CALLS * ELEMENTS * 4)
        return sent

    def test_as_many_as_a_ring(self):
        for hosts, ranks in LAYOUTS:
            ring = self.sent(hosts, ranks, "ring", False)
            for strategy in ("auto", "ring", "tree:1"):
                ratio = self.sent(hosts, ranks, strategy, True) / ring
                print(f"{hosts} hosts of {ranks}, {strategy}: {ratio:.4f} of a ring's bytes",
                      flush=True)
                self.assertLessEqual(ratio, RATIO, (hosts, ranks, strategy))


if __name__ == "__main__":
    if "TUTTI_RANK" in os.environ:
        run_rank(sys.argv[1], sys.argv[2] == "True")
    else:
        unittest.main()
