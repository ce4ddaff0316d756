"""tests/gpu/run, over the fake driver: its lines, its table and its exit code."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).with_name("run")
BUILD = pathlib.Path(os.environ["TUTTI_BIN"]).parent
FAKE = os.environ["TUTTI_FAKE_CUDA"]
CHECKS = ["gpus", "probes", "driver", "device", "engine", "process", "memory", "python", "bench",
          "torch", "race", "sanitizer"]


class RunTest(unittest.TestCase):
    def run_checks(self, *checks, **environment):
        with tempfile.TemporaryDirectory() as logs:
            done = subprocess.run([RUN, "--build", BUILD, "--quick", "--logs", logs, *checks],
                                  env=os.environ | {"TUTTI_TEST_CUDA_DRIVER": FAKE} | environment,
                                  text=True, capture_output=True, timeout=500, check=False)
        return done

    def test_checks_pass_over_the_fake_driver(self):
        done = self.run_checks("--jobs", "2", "probes", "driver", "python", "bench", "sanitizer",
                               "race", "memory")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^gpus +PASS  GPU 0: Fake GPU, .*; GPU 1: Fake GPU, ")
        self.assertRegex(done.stdout, r"(?m)^probes +PASS  13 assumptions hold$")
        self.assertRegex(done.stdout, r"(?m)^driver +PASS  \d+ tests passed$")
        self.assertRegex(done.stdout, r"(?m)^python +PASS ")
        self.assertRegex(done.stdout, r"(?m)^bench +PASS  2, 4 and 8 ranks, 1 KiB to 64K, ")
        self.assertRegex(done.stdout, r"(?m)^race +SKIP  the driver is the fake one$")
        self.assertRegex(done.stdout, r"(?m)^memory +SKIP  the driver is the fake one$")
        self.assertRegex(done.stdout, r"(?m)^check +result +seconds  what$")
        self.assertRegex(done.stdout, r"(?m)^bench +PASS +\d+  2, 4 and 8 ranks")
        self.assertRegex(done.stdout, r"(?m)^5 passed, 0 failed, 3 skipped; logs: ")
        rows = re.findall(r"(?m)^ +(\d+) +\d+ +f32 +sum +-1 .* 0 +[\d.]+ +[\d.]+$", done.stdout)
        self.assertEqual(rows[:12], ["1024", "4096", "16384", "65536"] * 3)

    def test_a_check_that_fails_is_named_and_fails_the_run(self):
        done = self.run_checks("bench", FAKE_CUDA_ERRS="1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^bench +FAIL  exit code 1$")
        self.assertIn("elements of results were wrong", done.stdout)
        self.assertIn("1 passed, 1 failed, 0 skipped", done.stdout)

    def test_without_a_gpu_all_that_needs_one_is_skipped(self):
        for environment, why in (({"TUTTI_TEST_CUDA_DRIVER": "libcuda-that-is-not-there.so"},
                                  "there is no CUDA driver here"),
                                 ({"FAKE_CUDA_GPUS": "0"}, "the CUDA driver does not start")):
            done = self.run_checks(**environment)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for check in CHECKS:
                self.assertRegex(done.stdout, rf"(?m)^{check} +SKIP  .*{why}")
            self.assertIn("0 passed, 0 failed, 12 skipped", done.stdout)

    def test_wrong_arguments_are_refused(self):
        for arguments in (["--bogus"], ["bogus"], ["--build", "/"], ["--jobs", "0"],
                          ["--limit", "x"]):
            done = self.run_checks(*arguments)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertTrue(done.stderr.startswith("gpu/run: "), done.stderr)


if __name__ == "__main__":
    unittest.main()
