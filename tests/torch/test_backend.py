"""tutti.torch as the backend of torch.distributed. Needs torch 2.14 or newer."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

from ranks import RanksTest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")


class Backend(RanksTest):
    def test_collectives(self):
        for size in (1, 2, 4):
            self.run_ranks("collectives" if size > 1 else "objects", size)

    def test_collectives_with_blocks(self):
        for size in (2, 4):
            self.run_ranks("blocks", size)

    def test_objects(self):
        self.run_ranks("objects", 3)

    def test_subgroups(self):
        self.run_ranks("subgroups", 3)

    def test_wrong_calls_are_refused_with_a_remedy(self):
        for told in self.run_ranks("wrong"):
            self.assertEqual(len(told), 7)
            for words, sentence in zip(("has 1 elements, but must have 10",
                                        "is of torch.float32, but the output of torch.float64",
                                        "is of torch.float32, but the output of torch.float64",
                                        "cannot be cut into 2 along its first axis",
                                        "use SUM and divide",
                                        "BAND needs integers or bools", "cannot be reduced"), told):
                self.assertIn(words, str(sentence))


class Training(RanksTest):
    """The same parameters, bit for bit, as under Gloo."""

    def compare(self, body):
        under_gloo = self.run_ranks(body, backend="gloo")
        under_tutti = self.run_ranks(body)
        self.assertEqual(under_gloo, under_tutti)
        self.assertEqual(under_tutti[0], under_tutti[1])

    def test_ddp(self):
        self.compare("ddp")

    def test_ddp_with_unused_parameters(self):
        self.compare("ddp_unused")

    def test_fsdp2(self):
        self.compare("fsdp2")


class Deaths(RanksTest):
    def test_backward_names_the_rank_that_died(self):
        first, dead, third = self.run_ranks("dies", 3)
        self.assertIsNone(dead)
        for told in (first, third):
            self.assertRegex(told["error"], r"UNAVAILABLE: rank 1 \(host .*, pid \d+\) died")
            self.assertLess(told["seconds"], 20)

    def test_the_private_agent_ends_with_the_run(self):
        self.run_ranks("objects", 2)
        agents = subprocess.run(["pgrep", "-f", "tutti-torch-.*tuttid.conf"], text=True,
                                stdout=subprocess.PIPE, check=False).stdout
        self.assertEqual(agents, "")
        self.assertEqual(list(pathlib.Path("/tmp").glob("tutti-torch-*")), [])


class Hosts(unittest.TestCase):
    """Two hosts of two ranks, with `tutti run` as launcher."""

    def run_hosts(self, *command):
        tutti = pathlib.Path(os.environ["TUTTI_LIBRARY"]).parent.parent / "bin" / "tutti"
        bodies = pathlib.Path(__file__).with_name("bodies.py")
        run = subprocess.run([tutti, "run", "--hosts", "2", "--per-host", "2", *command,
                              sys.executable, bodies, "blocks", "tutti"],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=180, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_agents_that_serve_the_hosts_are_used(self):
        self.run_hosts("--")

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_private_agents_find_each_other(self):
        self.run_hosts("--netns", "--", "env", "TUTTI_SOCKET=/nonexistent/tuttid.sock")


if __name__ == "__main__":
    unittest.main()
