"""deploy/train_transformer.py, by torchrun and by `tutti run`: the losses are those under Gloo."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

_SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "train_transformer.py"
_TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
_SECONDS = 240


_TUTTI = pathlib.Path(os.environ["TUTTI_LIBRARY"]).parents[1] / "bin" / "tutti"


def output(launcher, *arguments):
    """What a run of some steps prints."""
    environment = os.environ | {"TUTTI_SOCKET": "/nonexistent/tuttid.sock", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([*launcher, _SCRIPT, "--steps", "12", "--sample", "8", *arguments],
                         env=environment, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=_SECONDS, check=False)
    if run.returncode != 0:
        raise AssertionError(run.stdout)
    return run.stdout


def losses(launcher, *arguments):
    """The losses that a run prints, as text, by step."""
    return re.findall(r"(?m)^ +(\d+) +(\d+\.\d+) .*█", output(launcher, *arguments))


def digest(hosts, *arguments):
    """The parameters' digest after a run on hosts with so many ranks each."""
    launcher = [_TUTTI, "run", "--hosts", str(len(hosts)), "--per-host", ",".join(map(str, hosts)),
                "--", sys.executable]
    return re.search("SHA-256 of the parameters: ([0-9a-f]{64})", output(launcher, *arguments))[1]


class Transformer(unittest.TestCase):
    def check(self, reported):
        """One report a step, and the loss falls."""
        self.assertEqual([int(step) for step, _ in reported], list(range(1, 13)))
        self.assertLess(float(reported[-1][1]), float(reported[0][1]) - 0.5)

    def test_replicated(self):
        under_tutti = losses(_TORCHRUN)
        self.check(under_tutti)
        self.assertEqual(under_tutti, losses(_TORCHRUN, "--backend", "gloo"))
        self.assertEqual(under_tutti, losses([_TUTTI, "run", "--per-host", "2", "--",
                                              sys.executable]))

    def test_a_wrong_call_ends_with_one_sentence_before_the_ranks_meet(self):
        for arguments, library, words in (
                (["--steps", "0"], "", "--steps must be 1 or more"),
                (["--text", "/nonexistent"], "", "cannot read /nonexistent"),
                ([], "/nonexistent/libtutti.so", "install the wheel, or set PYTHONPATH")):
            environment = os.environ | {"RANK": "0", "LOCAL_RANK": "0"}
            environment["TUTTI_LIBRARY"] = library or environment["TUTTI_LIBRARY"]
            run = subprocess.run([sys.executable, _SCRIPT, *arguments], env=environment, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=_SECONDS, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertRegex(run.stdout, rf"^train_transformer: .*{words}.*\n\Z")

    def test_reproducible_on_any_hosts(self):
        """The layouts matter otherwise."""
        hosts = [[4], [2, 2], [2, 1, 1], [1, 1, 1, 1]]
        self.assertEqual(len({digest(each, "--reproducible") for each in hosts}), 1)
        self.assertEqual(len({digest(each, "--reproducible", "--parallel", "fsdp2")
                              for each in hosts[1:3]}), 1)
        self.assertGreater(len({digest(each) for each in hosts[:3]}), 1)

    def test_sharded(self):
        under_tutti = losses(_TORCHRUN, "--parallel", "fsdp2")
        self.check(under_tutti)
        self.assertEqual(under_tutti,
                         losses(_TORCHRUN, "--parallel", "fsdp2", "--backend", "gloo"))


if __name__ == "__main__":
    unittest.main()
