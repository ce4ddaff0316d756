"""tutti.torch as the backend of torch.distributed. Needs torch 2.9 or newer."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from ranks import Ranks, RanksTest, needs_torch

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


    def test_a_call_that_one_rank_refuses_fails_on_all(self):
        first, second = self.run_ranks("refused_alone")
        self.assertIn("has 10 elements, but must have 6", first["error"])
        self.assertRegex(second["error"], r"rank 0 \(host .*, pid \d+\)")
        self.assertLess(second["seconds"], 20)

    def test_the_default_group_is_made_again(self):
        self.assertEqual(self.run_ranks("again"), [[2.0, 2.0, 2.0]] * 2)

    def test_monitored_barrier_names_all_that_are_missing(self):
        first, missing, third, _ = self.run_ranks("monitored", 4)
        for told in (first, missing, third):
            self.assertIn("Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms", told)

    @unittest.skipUnless("TUTTI_FAKE_CUDA" in os.environ, "there is no fake driver")
    def test_tensors_on_gpus(self):
        driver = {"TUTTI_CUDA_DRIVER": os.environ["TUTTI_FAKE_CUDA"]}
        self.run_ranks("gpus", 2, **driver)
        for told in self.run_ranks("gpu_ends", 2, **driver):
            self.assertEqual(told[0], [4.0] * 10)
            self.assertIn("disagree", told[1])
        first, second = self.run_ranks("gpu_failures", 2, **driver)
        self.assertIn("disagree", first[0])
        self.assertIn("disagree", second[0])
        self.assertRegex(second[1], r"rank 0 \(host .*, pid \d+\)")

    def test_abort_of_a_subgroup_ends_it_alone_and_of_the_default_group_all(self):
        ((error, seconds), first), (_, second) = self.run_ranks("aborts")
        self.assertIn("CANCELLED: the process group was aborted", error)
        self.assertLess(seconds, 10)
        self.assertIn("CANCELLED: the process group was aborted", first)
        self.assertRegex(second, r"UNAVAILABLE: rank 0 \(host .*\) left")

    def test_a_group_is_reproducible_by_its_options(self):
        self.run_ranks("reproducible")

    @needs_torch("2.15", "split_group() on CPUs")
    def test_split_group(self):
        self.run_ranks("splits", 4)
        self.run_ranks("reproducible_split")

    def test_coalescing(self):
        self.run_ranks("coalesced")

    def test_timeouts(self):
        (of_group, of_wait, changed, of_list), _ = self.run_ranks("timeouts")
        for seconds, error in (of_group, changed, of_list):
            self.assertGreaterEqual(seconds, 0.9)
            self.assertLess(seconds, 10)
            self.assertRegex(error, "DEADLINE_EXCEEDED: Timed out waiting: .*rank 1")
        self.assertLess(of_list[0], 3)  # One deadline for its four tensors.
        self.assertGreaterEqual(of_wait[0], 0.5)
        self.assertIn("Timed out waiting", of_wait[1])

    def test_details(self):
        self.assertEqual(self.run_ranks("details"), [{}, {}])

    def test_calls(self):
        for size in (2, 3):
            self.assertEqual(self.run_ranks("calls", size), [{}] * size)

    @needs_torch("2.15", "a flight recorder of backends in Python")
    def test_the_flight_recorder_has_the_calls(self):
        self.run_ranks("recorded")

    def test_uneven_parts(self):
        for size in (1, 2, 3):
            self.run_ranks("uneven", size)

    def test_messages(self):
        for size in (2, 3):
            self.run_ranks("messages", size)

    def test_tensors_in_shared_memory(self):
        self.run_ranks("allocates")

    def test_sparse_tensors(self):
        for size in (2, 3):
            self.run_ranks("sparse", size)


class Deaths(RanksTest):
    def test_backward_names_the_rank_that_died(self):
        first, dead, third = self.run_ranks("dies", 3)
        self.assertIsNone(dead)
        for told in (first, third):
            self.assertRegex(told["error"], r"UNAVAILABLE: rank 1 \(host .*, pid \d+\) died")
            self.assertLess(told["seconds"], 20)

    def test_the_others_form_a_new_group(self):
        first, second, dead = self.run_ranks("recovers", 3)
        self.assertIsNone(dead)
        for told in (first, second):
            self.assertEqual(told, {"sum": [3.0, 3.0, 3.0], "error": "REMOTE_ERROR"})


class Exits(RanksTest):
    def test_while_a_daemon_thread_waits(self):
        for way in ("call", "wait", "future", "recv", "then"):
            with self.subTest(way):
                ranks = Ranks("exits", 2, "tutti", {"TMPDIR": self.directory,
                                                    "TUTTI_TEST_WAY": way})
                self.addCleanup(ranks.end)
                self.assertEqual([process.wait(180) for process in ranks.processes], [3, 0],
                                 ranks.log(0))


class PrivateAgents(RanksTest):
    def test_it_ends_with_the_run(self):
        self.run_ranks("objects")
        self.assert_nothing_is_left()

    def test_it_ends_when_the_ranks_are_killed(self):
        self.run_ranks("killed")
        self.assert_nothing_is_left()

    def assert_nothing_is_left(self):
        self.wait_until(lambda: not list(pathlib.Path(self.directory).glob("tutti-torch-*")))
        self.wait_until(lambda: subprocess.run(["pgrep", "-f", self.directory], check=False,
                                               stdout=subprocess.DEVNULL).returncode != 0)

    def test_it_ends_while_a_forked_child_lives(self):
        for seconds in self.run_ranks("forks"):
            self.assertLess(seconds, 15)

    def test_it_outlives_the_thread_that_started_it(self):
        self.assertEqual(self.run_ranks("from_a_thread"), [True, False])

    def test_the_command_finds_it(self):
        ranks = Ranks("explained", 2, "tutti", {"TMPDIR": self.directory})
        self.addCleanup(ranks.end)
        said = ranks.results()[1]
        self.assertRegex(said, r"(?m)^WARN +torch-\w+ rank 1 \(host .*\) is 1 operation behind")
        line = f"tutti.torch: to see what this run waits for: TMPDIR={self.directory} "
        self.assertEqual(ranks.log(0).count(line), 1, ranks.log(0))
        self.assertNotIn("tutti.torch:", ranks.log(1))

    def test_a_long_TMPDIR_is_avoided(self):
        long = pathlib.Path(self.directory, "a" * 120)
        long.mkdir()
        self.run_ranks("objects", TMPDIR=str(long))

    def test_all_ranks_learn_that_it_cannot_start(self):
        ranks = Ranks("objects", 2, "tutti", {"TUTTI_LIBRARY": self.library_alone(), "PATH": ""})
        self.addCleanup(ranks.end)
        for rank, process in enumerate(ranks.processes):
            self.assertEqual(process.wait(60), 1)
            self.assertIn("tuttid is neither beside", ranks.log(rank))

    def library_alone(self):
        """A copy of the library without programs beside it."""
        copy = pathlib.Path(self.directory, "libtutti.so")
        shutil.copy(os.environ["TUTTI_LIBRARY"], copy)
        return str(copy)


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
        """Rank 0's host knows itself by a loopback address, as Debian's /etc/hosts has it."""
        self.run_hosts("--netns", "--", "env", "TUTTI_SOCKET=/nonexistent/tuttid.sock", "sh", "-c",
                       '[ "$RANK" -ge 2 ] || export MASTER_ADDR=127.0.0.1; exec "$@"', "sh")


if __name__ == "__main__":
    unittest.main()
