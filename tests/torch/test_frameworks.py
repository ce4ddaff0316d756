"""Lightning and accelerate train with Tutti as with Gloo. Skipped where they are not installed."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

_SECONDS = 300


def is_missing(name):
    return importlib.util.find_spec(name) is None


class Frameworks(unittest.TestCase):
    def train(self, framework, backend):
        script = pathlib.Path(__file__).with_name("frameworks.py")
        with tempfile.TemporaryDirectory() as directory:
            run = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                 "2", script, framework, backend, directory],
                env=os.environ | {"TUTTI_SOCKET": "/nonexistent/tuttid.sock", "TMPDIR": directory,
                                  "OMP_NUM_THREADS": "1"},
                text=True, capture_output=True, timeout=_SECONDS, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        told = next(json.loads(line) for line in run.stdout.splitlines() if line.startswith("{"))
        self.assertEqual(told.pop("backend"), backend)
        return told

    def compare(self, framework):
        self.assertEqual(self.train(framework, "tutti"), self.train(framework, "gloo"))

    @unittest.skipIf(is_missing("lightning"), "lightning is not installed")
    def test_lightning(self):
        self.compare("lightning")

    @unittest.skipIf(is_missing("accelerate"), "accelerate is not installed")
    def test_accelerate(self):
        self.compare("accelerate")


if __name__ == "__main__":
    unittest.main()
