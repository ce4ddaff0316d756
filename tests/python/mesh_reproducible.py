"""Reproducible reductions of the same ranks on different hosts. TUTTI_SIMULATION_SEED=S repeats the
random jobs of a run that has failed; a failure says their seed."""

import os
import pathlib
import random
import re
import subprocess
import sys
import unittest

import processor

EIGHT_RANKS = ("8", "4,4", "3,5", "1,7", "2,2,2,2", "1,1,1,1,1,1,1,1")


class Reproducible(unittest.TestCase):
    def run_ranks(self, per_host, program, *arguments):
        """The output of a job."""
        hosts = per_host.count(",") + 1
        run = subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--hosts", str(hosts),
             "--per-host", per_host, "--", sys.executable,
             pathlib.Path(__file__).with_name(program), *arguments],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500)
        self.assertEqual(run.returncode, 0, f"{program} {arguments} on {per_host}: {run.stdout}")
        return run.stdout

    def test_the_same_bits_on_any_hosts(self):
        layouts = ("4", "2,2", "1,3", "2,1,1", "1,1,1,1")
        outputs = [self.run_ranks(layout, "reproducible_ranks.py") for layout in layouts]
        self.assertEqual(len({re.search("[0-9a-f]{64}", output)[0] for output in outputs}), 1)

    def check_random(self, layouts, *arguments, steps):
        """Results of reproducible reductions are the same in all layouts. Others of the same values
        are not, and another floating-point mode changes some, or the values prove nothing."""
        seed = os.environ.get("TUTTI_SIMULATION_SEED") or str(random.SystemRandom().getrandbits(32))
        exact, loose, in_other_modes = {}, {}, []
        for layout in layouts:
            output = self.run_ranks(layout, "reproducible_random.py", *arguments, seed, layout,
                                    str(steps))
            exact[layout], loose[layout] = (
                re.search(f"{kind} ([0-9a-f]{{64}})", output)[1] for kind in ("exact", "loose"))
            in_other_modes.append(int(re.search(r"(\d+) of \d+ results differ", output)[1]))
        self.assertEqual(len(set(exact.values())), 1, f"TUTTI_SIMULATION_SEED={seed}: {exact}")
        self.assertGreater(len(set(loose.values())), 1, f"TUTTI_SIMULATION_SEED={seed}: {loose}")
        if not arguments and processor.IS_X86:
            self.assertGreater(sum(in_other_modes), 0, f"TUTTI_SIMULATION_SEED={seed}")

    def test_random_calls(self):
        """In other floating-point modes and by other kernels on each rank, in random groups."""
        self.check_random(EIGHT_RANKS, steps=20)

    def test_ranks_that_are_stopped(self):
        self.check_random(("8", "3,5", "2,2,2,2"), "--stops", steps=6)

    def test_the_option_of_each_face(self):
        self.run_ranks("2,2", "reproducible_faces.py")


if __name__ == "__main__":
    unittest.main()
