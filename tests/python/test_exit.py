"""The interpreter's exit while threads are within calls, and arrays of empty() are in use."""

import os
import signal
import subprocess
import sys
import unittest

from ranks import fake_job

import tutti

_CALLS = """\
group.all_reduce(x)
group.all_reduce(shared)
group.all_reduce_many([x, shared])
group.barrier()
group.recv(x)
group.recv(x, source=1, blocking=False).wait()
group.send(x, 1)
group.subgroup([0, 1]).barrier()
group.all_reduce(x, blocking=False).wait()
[shared.sum() for _ in iter(int, 1)]
tutti.join(world_size=2, rank=1, job="other")
"""
_FACES = """\
distribute.Strategy(group=group).reduce("SUM", x)
average_gradients.average_gradients([[x]], group=group)
cross_device.ReductionToOneDevice(group=group).reduce("SUM", x, x)
burn.Collective(group=group).register(0, "cpu", burn.CollectiveConfig().with_num_devices(2))
"""
_THREADS = """
import sys, threading, numpy, tutti
from tutti import average_gradients, burn, cross_device, distribute
group = tutti.join(timeout=60)
x = numpy.ones(int(sys.argv[1]), "float32")
shared = group.empty(1000)
shared[:] = 1
inside = threading.Semaphore(0)
calls = sys.argv[2].splitlines()
def body(call):
    inside.release()
    eval(call)
for call in calls:
    threading.Thread(target=body, args=(call,), daemon=True).start()
for call in calls:
    inside.acquire()
threading.Event().wait(0.2)  # Where that is too short, the test sees no fault.
sys.exit(3)
"""
_INTERRUPTED = """
import sys, numpy, tutti
from tutti import average_gradients, burn, cross_device, distribute
group = tutti.join(timeout=60)
x = numpy.ones(1000, "float32")
try:
    print("go", flush=True)
    CALL
except KeyboardInterrupt:
    sys.exit(3)
"""


class Exit(unittest.TestCase):
    def run_rank(self, program, *arguments, interrupted=False):
        """(exit code, output) of rank 0, beside a rank 1 that makes no call."""
        with fake_job(2) as (path, _):
            environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                               TUTTI_WORLD_SIZE="2")
            run = subprocess.Popen([sys.executable, "-c", program, *arguments], env=environment,
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            with tutti.join("demo", 1, 2, socket=path):
                if interrupted:
                    self.assertEqual(run.stdout.readline(), "go\n")
                    run.send_signal(signal.SIGINT)
                out, err = run.communicate(timeout=60)
        return run.returncode, out, err

    def test_threads_within_calls(self):
        for calls in (_CALLS, _FACES):
            for count in (10, 1_000_000):
                with self.subTest(calls=calls, count=count):
                    code, _, err = self.run_rank(_THREADS, str(count), calls)
                    self.assertEqual(code, 3, err)

    def test_after_ctrl_c(self):
        for call in [*_FACES.splitlines(), "group.recv(x)"]:
            with self.subTest(call=call):
                code, _, err = self.run_rank(_INTERRUPTED.replace("CALL", call), interrupted=True)
                self.assertEqual(code, 3, err)

    def test_functions_that_run_at_exit(self):
        """Registered earlier than any of the package, they run after its own."""
        program = ("import atexit\nkept = []\n"
                   "atexit.register(lambda: print('sum', kept[0].sum(), flush=True))\n"
                   "import tutti; group = tutti.join()\n"
                   "kept.append(group.empty(1000)); kept[0][:] = 1\n"
                   "other = group.empty(1000); works = [group.all_reduce(other, blocking=False)]\n")
        self.assertEqual(self.run_rank(program), (0, "sum 1000.0\n", ""))

    def test_the_other_ranks_learn_that_it_left(self):
        program = "import tutti; group = tutti.join()"
        with fake_job(2) as (path, _):
            environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                               TUTTI_WORLD_SIZE="2", TUTTI_LOG="info")
            run = subprocess.Popen([sys.executable, "-c", program], env=environment, text=True,
                                   stderr=subprocess.PIPE)
            with tutti.join("demo", 1, 2, socket=path):
                self.assertIn("rank 0 of 2 of job 'demo' leaves", run.communicate(timeout=60)[1])


if __name__ == "__main__":
    unittest.main()
