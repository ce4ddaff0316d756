"""deploy/gpu-bundle: what it packs runs elsewhere, over the fake driver that it holds."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TUTTI_BIN"]).parent


class BundleTest(unittest.TestCase):
    def run_program(self, *command, **environment):
        done = subprocess.run(command, env={"PATH": os.environ["PATH"]} | environment, text=True,
                              capture_output=True, timeout=500, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_bundle_passes_its_checks_where_nothing_else_is(self):
        self.run_program(ROOT / "deploy/gpu-bundle", "--build", BUILD)
        packed = BUILD / "gpu-bundle/tutti-gpu.tar.gz"
        with tempfile.TemporaryDirectory() as elsewhere:
            self.run_program("tar", "-xzf", packed, "-C", elsewhere)
            tree = pathlib.Path(elsewhere, "tutti-gpu")
            checks = self.run_program(
                tree / "tests/gpu/run", "--quick", "driver", "python", "bench",
                TUTTI_TEST_CUDA_DRIVER=str(tree / "lib/libfake_cuda.so"))
            self.run_program("bash", "-c", f". {tree}/env && tutti version")
        self.assertRegex(checks, r"(?m)^4 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
