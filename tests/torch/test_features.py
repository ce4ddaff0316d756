"""What is trained with tutti.torch has the parameters that Gloo's training has."""

import importlib.util
import unittest

from ranks import RanksTest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")


class Features(RanksTest):
    def train(self, size):
        """The values by feature, under Gloo and under Tutti; checks that all ranks have the
        same."""
        told = []
        for backend in ("gloo", "tutti"):
            with self.subTest(backend):
                ranks = self.run_ranks("features", size, backend,
                                       TUTTI_TEST_FILE=f"{self.directory}/{backend}")
                told.append(ranks[0])
        # Gloo has no PREMUL_SUM.
        told[0]["fsdp2_divide_factor"] = told[0]["fsdp2"]
        return told

    def test_2_ranks_get_the_same_bits(self):
        under_gloo, under_tutti = self.train(2)
        for name, values in under_gloo.items():
            with self.subTest(name):
                self.assertIsInstance(values, list, values)
                self.assertEqual(under_tutti[name], values)

    def test_4_ranks_get_nearly_the_same(self):
        under_gloo, under_tutti = self.train(4)
        for name, values in under_gloo.items():
            with self.subTest(name):
                self.assertIsInstance(values, list, values)
                self.assertIsInstance(under_tutti[name], list, under_tutti[name])
                self.assertEqual(len(under_tutti[name]), len(values))
                for mine, theirs in zip(under_tutti[name], values):
                    self.assertAlmostEqual(mine, theirs, delta=1e-3 * max(1, abs(theirs)))


if __name__ == "__main__":
    unittest.main()
