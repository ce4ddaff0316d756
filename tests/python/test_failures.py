"""Errors, works, deadlines, joining and leaving."""

import os
import pickle
import subprocess
import sys
import threading
import unittest

import numpy as np
from ranks import FAILING_COUNT, RanksTest, fake_job

import tutti


class Failures(RanksTest):
    def test_error_has_code_message_and_culprit(self):
        def body(group):
            with self.assertRaises(tutti.Error) as caught:
                group.all_reduce(np.zeros(FAILING_COUNT))
            group.barrier()
            return caught.exception

        for error in self.on_ranks(body):
            self.assertEqual(error.code, "FAILED_PRECONDITION")
            self.assertEqual(error.message, "ranks disagree")
            self.assertEqual((error.rank, error.host), (1, "b"))
            self.assertEqual(str(error), "FAILED_PRECONDITION: ranks disagree")
            self.assertEqual(pickle.loads(pickle.dumps(error)).host, "b")

    def test_wrong_arguments_are_named(self):
        def body(group):
            x = np.zeros(3)
            self.assert_invalid("op 'avg'", group.all_reduce, x, op="avg")
            self.assert_invalid("arity must be >= 1", group.all_reduce, x, strategy="tree:0")
            self.assert_invalid("arity must be >= 1", group.all_reduce, x, strategy={"Tree": 0})
            self.assert_invalid("unknown strategy 'star'", group.all_reduce, x, strategy="star")
            self.assert_invalid("timeout", group.all_reduce, x, timeout=0)
            self.assert_invalid("dtype 'f8x'", group.empty, 3, "f8x")

        self.on_ranks(body)

    def test_integer_mean_fails_everywhere(self):
        def body(group):
            self.assert_invalid("use SUM and divide", group.all_reduce, np.zeros(3, int), op="mean")

        self.on_ranks(body)

    def test_work_is_waited_for(self):
        waited = threading.Event()

        def body(group):
            x = np.ones(1000)
            if group.rank == 1:
                waited.wait(20)
            work = group.all_reduce(x, blocking=False)
            if group.rank == 0:
                self.assertFalse(work.done())
                with self.assertRaises(tutti.Error) as caught:
                    work.wait(timeout=0.01)
                waited.set()
                self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
            self.assertIs(work.wait(), x)
            self.assertTrue(work.done())
            self.assertIs(work.wait(), x)
            self.assertEqual(x.sum(), 2000)

        self.on_ranks(body)

    def test_operation_has_a_deadline(self):
        over = threading.Event()

        def body(group):
            if group.rank == 0:
                with self.assertRaises(tutti.Error) as caught:
                    group.barrier(timeout=0.05)
                over.set()
                self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
                self.assertIn("not all ranks", caught.exception.message)
            over.wait(20)

        self.on_ranks(body)

    def test_after_leaving_nothing_works(self):
        def body(group):
            group.barrier()
            group.leave()
            with self.assertRaises(tutti.Error) as caught:
                group.barrier()
            self.assertEqual(caught.exception.code, "FAILED_PRECONDITION")

        self.on_ranks(body)

    def test_dead_worker_is_named(self):
        with fake_job(1) as (path, process):
            group = tutti.join("demo", 0, 1, socket=path)
            group.barrier()
            process.kill()
            process.wait()
            with self.assertRaises(tutti.Error) as caught:
                # One rank alone needs no worker, and checks now and then that it lives.
                for _ in range(10_000_000):
                    group.barrier()
            self.assertEqual(caught.exception.code, "UNAVAILABLE")
            self.assertIn("the worker of job 'demo' on host ", caught.exception.message)


class Joining(unittest.TestCase):
    def test_no_agent(self):
        with self.assertRaises(tutti.Error) as caught:
            tutti.join("demo", 0, 1, socket="/nonexistent.sock")
        self.assertEqual(caught.exception.code, "UNAVAILABLE")
        self.assertIn("tuttid --socket /nonexistent.sock", caught.exception.message)

    def test_bad_arguments(self):
        for rank, world_size, words in ((2, 2, "rank 2"), (-1, 2, "rank -1"), (0, 0, "world_size")):
            with self.assertRaises(tutti.Error) as caught:
                tutti.join("demo", rank, world_size, socket="/nonexistent.sock")
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
            self.assertIn(words, caught.exception.message)

    def test_what_is_no_text_is_named(self):
        for name in ("job", "socket", "token"):
            with self.assertRaises(tutti.Error) as caught:
                tutti.join(rank=0, world_size=1, **{"job": "demo", "socket": "/nonexistent.sock",
                                                    name: 5})
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
            self.assertIn(f"{name} 5 is no text", caught.exception.message)

    def test_a_text_with_nul_is_not_cut(self):
        for texts in ({"job": "demo\0x"}, {"job": "demo", "token": "\0"},
                      {"job": "demo", "socket": "/tmp/x\0"}):
            with self.assertRaises(tutti.Error) as caught:
                tutti.join(rank=0, world_size=1, **{"socket": "/nonexistent.sock", **texts})
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
            self.assertIn("NUL", caught.exception.message)

    def test_refusal(self):
        with fake_job(1) as (path, _), self.assertRaises(tutti.Error) as caught:
            tutti.join("demo", 0, 1, socket=path, token="wrong")
        self.assertEqual(caught.exception.code, "UNAUTHENTICATED")

    def test_environment_and_exit_with_a_work_under_way(self):
        program = ("import numpy, tutti; g = tutti.join(); x = g.empty(4); x[:] = 2;"
                   "w = g.all_reduce(x, blocking=False); print(g.rank, g.all_reduce(x).sum())")
        with fake_job(1) as (path, _):
            environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                               TUTTI_WORLD_SIZE="1", TUTTI_TIMEOUT="10.5")
            run = subprocess.run([sys.executable, "-c", program], env=environment, text=True,
                                 capture_output=True, timeout=60)
        self.assertEqual((run.stdout, run.stderr, run.returncode), ("0 8.0\n", "", 0))

    def test_ctrl_c_ends_a_join(self):
        program = ("import tutti\ntry:\n  print('go', flush=True); tutti.join(timeout=60)\n"
                   "except KeyboardInterrupt: print('stopped')")
        with fake_job(2) as (path, _):
            environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                               TUTTI_WORLD_SIZE="2")
            run = subprocess.Popen([sys.executable, "-c", program], env=environment, text=True,
                                   stdout=subprocess.PIPE)
            self.assertEqual(run.stdout.readline(), "go\n")
            run.send_signal(2)
            self.assertEqual(run.communicate(timeout=30)[0], "stopped\n")

    def test_ctrl_c_ends_an_operation_of_any_size(self):
        program = ("import numpy, sys, tutti\ng = tutti.join()\n"
                   "x = numpy.ones(int(sys.argv[1]))\n"
                   "try:\n  print('go', flush=True); g.all_reduce(x, timeout=60)\n"
                   "except KeyboardInterrupt: print('stopped')")
        for count in (1, 1 << 20):
            with fake_job(2) as (path, _):
                environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                                   TUTTI_WORLD_SIZE="2")
                run = subprocess.Popen([sys.executable, "-c", program, str(count)],
                                       env=environment, text=True, stdout=subprocess.PIPE)
                with tutti.join("demo", 1, 2, socket=path):
                    self.assertEqual(run.stdout.readline(), "go\n")
                    run.send_signal(2)
                    self.assertEqual(run.communicate(timeout=30)[0], "stopped\n", count)

    def test_many_threads_share_a_group(self):
        with fake_job(1) as (path, _), tutti.join("demo", 0, 1, socket=path) as group:
            threads = [threading.Thread(target=lambda: [group.barrier() for _ in range(50)])
                       for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertTrue(group.all_reduce(np.ones(3), blocking=False).wait().all())


if __name__ == "__main__":
    unittest.main()
