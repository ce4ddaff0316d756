"""Reproducible reductions of four ranks on one, two, three and four hosts; those of the faces."""

import os
import pathlib
import re
import subprocess
import sys
import unittest


class Reproducible(unittest.TestCase):
    def run_ranks(self, per_host, program):
        hosts = per_host.count(",") + 1
        program = pathlib.Path(__file__).with_name(program)
        run = subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--hosts", str(hosts),
             "--per-host", per_host, "--", sys.executable, program],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500)
        self.assertEqual(run.returncode, 0, run.stdout)
        return run.stdout

    def digest(self, per_host):
        return re.search("[0-9a-f]{64}", self.run_ranks(per_host, "reproducible_ranks.py"))[0]

    def test_the_same_bits_on_any_hosts(self):
        layouts = ("4", "2,2", "1,3", "2,1,1", "1,1,1,1")
        self.assertEqual(len({self.digest(layout) for layout in layouts}), 1)

    def test_the_option_of_each_face(self):
        self.run_ranks("2,2", "reproducible_faces.py")


if __name__ == "__main__":
    unittest.main()
