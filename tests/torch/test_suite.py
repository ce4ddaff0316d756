"""torch's own suite with Tutti in Gloo's place: what passes with Gloo (suite/names.txt, which
suite/record writes) passes with Tutti."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from ranks import needs_torch

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

_SUITE = pathlib.Path(__file__).with_name("suite")
_SECONDS = 900
# What a Python backend cannot pass in torch 2.15, with the words of its failure: it must fail
# there, and only there. DDP's log asks for Gloo's own class and calls every other backend "custom".
_A_RANK_FAILED = r"UNAVAILABLE: rank \d+ .* (died|left)"  # What its peers may tell first.
_LIMITS_OF_TORCH = {
    "test_ddp_logging_data_cpu": "'custom' != 'gloo'"}


def names_for(ranks):
    """The tests that pass with Gloo at this number of ranks."""
    lines = [line.split() for line in (_SUITE / "names.txt").read_text().splitlines()
             if not line.startswith("#")]
    return [name for name, *passed_with in lines if str(ranks) in passed_with]


@needs_torch("2.15", "the list of its tests")
class Suite(unittest.TestCase):
    def check(self, ranks, hosts=1):
        names = names_for(ranks)
        self.assertGreater(len(names), 80)
        with tempfile.TemporaryFile("w+") as errors:
            run = subprocess.run([sys.executable, _SUITE / "suite.py", "--backend", "tutti",
                                  "--ranks", str(ranks), "--hosts", str(hosts), *names],
                                 env=os.environ | {"TUTTI_SOCKET": "/nonexistent/tuttid.sock"},
                                 text=True, stdout=subprocess.PIPE, stderr=errors,
                                 timeout=_SECONDS, check=False)
            errors.seek(0)
            said = errors.read()[-4000:]
        outcomes = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([outcome["name"] for outcome in outcomes], names, said)
        failed = {outcome["name"]: outcome["reason"][-1500:] for outcome in outcomes
                  if outcome["outcome"] != "passed"}
        for name, why in _LIMITS_OF_TORCH.items():
            self.assertIn(name, failed, "passes now: remove it from _LIMITS_OF_TORCH")
            self.assertRegex(failed.pop(name), f"{re.escape(why)}|{_A_RANK_FAILED}")
        self.assertEqual(failed, {}, "\n".join(f"{name}: {why}" for name, why in failed.items()))

    def test_with_2_ranks(self):
        self.check(2)

    def test_with_4_ranks(self):
        self.check(4)

    def test_with_2_hosts_of_2_ranks(self):
        self.check(4, hosts=2)


if __name__ == "__main__":
    unittest.main()
