"""tests/gpu/race.py, on tensors of the CPU: its checks, its table and its exit code."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

_RACE = pathlib.Path(__file__).parents[1] / "gpu" / "race.py"

# A Gloo that adds one too many to what is on rank 1.
_LIES = """
import runpy, sys
import torch.distributed as dist
honest = dist.all_reduce
def all_reduce(tensor, *arguments, group=None, **options):
    work = honest(tensor, *arguments, group=group, **options)
    if dist.get_backend(group) == "gloo" and dist.get_rank() == 1 and tensor.is_floating_point():
        tensor[-1] += 1
    return work
dist.all_reduce = all_reduce
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Race(unittest.TestCase):
    def race(self, contestants, program=()):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   "--nproc-per-node", "2", *program, str(_RACE), "--device", "cpu", "--rounds",
                   "2", "--sizes", "4,64K", "--contestants", contestants]
        with tempfile.TemporaryDirectory() as directory:
            environment = os.environ | {"TMPDIR": directory, "OMP_NUM_THREADS": "1",
                                        "TUTTI_SOCKET": "/nonexistent/tuttid.sock"}
            return subprocess.run(command, env=environment, capture_output=True, text=True,
                                  timeout=300, check=False)

    def test_each_size_has_a_row_for_all_that_run(self):
        done = self.race("tutti,nccl,gloo")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = re.findall(r"(?m)^ +(\d+) (\w+) +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +\d+% +([\d.]+)$",
                          done.stdout)
        names = ["tutti", "gloo", "copy", "launch"]
        self.assertEqual([row[:2] for row in rows],
                         [(size, name) for size in ("4", "65536") for name in names], done.stdout)
        self.assertEqual([row[2] for row in rows if row[1] == "tutti"], ["1.00", "1.00"])
        self.assertRegex(done.stdout, r"(?m)^nccl is not in the race: \S")

    def test_wrong_sums_fail_it(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as lies:
            lies.write(_LIES)
            lies.flush()
            done = self.race("tutti,gloo", [lies.name])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^gloo is not in the race: rank 1: wrong: 1 of 1 elem")
        self.assertNotRegex(done.stdout, r"(?m)^ +\d+ gloo ")


if __name__ == "__main__":
    unittest.main()
