"""tutti.tensorflow, tutti.jax and the faces on several ranks, and after a rank's death. Run by
tests/tensorflow/run, with the Python that has both."""

import os
import pathlib
import subprocess
import sys
import unittest


class Ranks(unittest.TestCase):
    def run_ranks(self, program, *arguments, hosts=2, per_host=2):
        return subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--hosts", str(hosts),
             "--per-host", str(per_host), "--", sys.executable,
             pathlib.Path(__file__).with_name(program), *arguments],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500)

    def test_values_and_gradients(self):
        for program in ("tensorflow_ranks.py", "keras_ranks.py", "jax_ranks.py",
                        "values_ranks.py"):
            with self.subTest(program):
                run = self.run_ranks(program)
                self.assertEqual(run.returncode, 0, run.stdout)

    def test_keras_on_another_backend_is_refused(self):
        run = subprocess.run([sys.executable, "-c", "import tutti.tensorflow"], text=True,
                             stderr=subprocess.PIPE, env={**os.environ, "KERAS_BACKEND": "jax"})
        self.assertIn("ImportError: tutti.tensorflow needs", run.stderr)

    def test_a_dead_rank_is_named(self):
        for program in ("tensorflow_ranks.py", "jax_ranks.py"):
            with self.subTest(program):
                run = self.run_ranks(program, "die", per_host=1)
                self.assertIn("rank 0 learns of rank 1", run.stdout)


if __name__ == "__main__":
    unittest.main()
