"""Results that ranks compare, of four ranks on one host and on two."""

import os
import pathlib
import subprocess
import sys
import unittest


class Verified(unittest.TestCase):
    def test_results_are_compared(self):
        program = pathlib.Path(__file__).with_name("verified_ranks.py")
        for per_host in ("4", "2,2"):
            run = subprocess.run(
                [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run",
                 "--hosts", str(per_host.count(",") + 1), "--per-host", per_host, "--",
                 sys.executable, program],
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500)
            self.assertEqual(run.returncode, 0, run.stdout)


if __name__ == "__main__":
    unittest.main()
