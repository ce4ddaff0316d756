"""Reproducible reductions of four ranks on one, two, three and four hosts."""

import os
import pathlib
import re
import subprocess
import sys
import unittest


class Reproducible(unittest.TestCase):
    def digest(self, per_host):
        hosts = per_host.count(",") + 1
        program = pathlib.Path(__file__).with_name("reproducible_ranks.py")
        run = subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--hosts", str(hosts),
             "--per-host", per_host, "--", sys.executable, program],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500)
        self.assertEqual(run.returncode, 0, run.stdout)
        return re.search("[0-9a-f]{64}", run.stdout)[0]

    def test_the_same_bits_on_any_hosts(self):
        layouts = ("4", "2,2", "1,3", "2,1,1", "1,1,1,1")
        self.assertEqual(len({self.digest(layout) for layout in layouts}), 1)


if __name__ == "__main__":
    unittest.main()
