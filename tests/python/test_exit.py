"""The interpreter's exit while threads are within calls, and arrays of empty() are in use."""

import os
import signal
import subprocess
import sys
import unittest

from ranks import fake_job

import tutti
from tutti import burn

_CALLS = """\
group.all_reduce(new())
group.all_reduce(group.empty(1000))
group.all_reduce_many([new(), group.empty(1000)])
group.reduce(new())
group.broadcast(new())
group.all_gather(new())
group.reduce_scatter(new())
group.gather(new())
group.scatter(new(), out=new(half))
group.all_to_all(new())
group.all_gather_v(new(), [count] * 2)
group.reduce_scatter_v(new(), [half] * 2)
group.all_to_all_v(new(), [half] * 2, [half] * 2)
group.barrier()
group.recv(new())
group.recv(new(), source=1, blocking=False).wait()
group.send(new(), 1)
group.subgroup([0, 1]).barrier()
group.all_reduce(new(), blocking=False).wait()
tutti.join(world_size=2, rank=1, job="other", timeout=600)
"""
_FACES = """\
distribute.Strategy(group=group).reduce("SUM", new())
average_gradients.average_gradients([[new()]], group=group)
cross_device.ReductionToOneDevice(group=group).reduce("SUM", new(), new())
burn.Collective(group=group).register(0, "cpu", burn.CollectiveConfig().with_num_devices(2))
"""
# The library has no place for the last of them.
_MANY = """\
[group.all_reduce(new(), blocking=False) for _ in range(300)]
[group.all_reduce_many([new()], blocking=False) for _ in range(300)]
[group.send(new(), 1, blocking=False) for _ in range(300)]
"""
_BEGIN = """
import sys, threading, numpy, tutti
from inside import interrupt_inside, wait_until_inside
from tutti import average_gradients, burn, cross_device, distribute
group = tutti.join(timeout=600)
count = int(sys.argv[1])
half = count // 2
def new(size=count):
    return numpy.ones(size, "float32")
"""
_THREADS = _BEGIN + """
shared = group.empty(1000)
shared[:] = 1
def read():
    while True:
        shared.sum()
threads = [threading.Thread(target=eval, args=(call, globals()), name=call, daemon=True)
           for call in sys.argv[2].splitlines()]
reads = threading.Thread(target=read, daemon=True)
for thread in [*threads, reads]:
    thread.start()
wait_until_inside(threads)
sys.exit(3)
"""
_INTERRUPT = """
interrupt_inside()
try:
    eval(sys.argv[2])
except KeyboardInterrupt:
    sys.exit(3)
"""
_INTERRUPTED = _BEGIN + _INTERRUPT
_STOPPED = _BEGIN + """
print("joined", flush=True)
input()
""" + _INTERRUPT
_NODE = """
import sys, threading, numpy
from inside import wait_until_inside
from tutti import burn
burn.register(0, "cpu", burn.CollectiveConfig(
    num_nodes=2, global_address="a:1", node_address="b:1", data_service_port=1))
peer = threading.Thread(target=burn.all_reduce, args=(0, numpy.ones(3)), daemon=True)
peer.start()
wait_until_inside([peer])
sys.exit(3)
"""


class Exit(unittest.TestCase):
    def run_rank(self, program, *arguments, stops=False):
        """(exit code, output) of rank 0, beside a rank 1 that makes no call. stops: the job does,
        once rank 0 has printed "joined", and rank 0 then gets a line."""
        with fake_job(2) as (path, job):
            environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                               TUTTI_WORLD_SIZE="2")
            environment["PYTHONPATH"] += os.pathsep + os.path.dirname(__file__)
            run = subprocess.Popen([sys.executable, "-c", program, *arguments], env=environment,
                                   text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
            with tutti.join("demo", 1, 2, socket=path):
                try:
                    if stops:
                        self.assertEqual(run.stdout.readline(), "joined\n")
                        job.send_signal(signal.SIGSTOP)
                        os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
                    out, err = run.communicate("\n", timeout=60)
                finally:
                    job.send_signal(signal.SIGCONT)
                    run.kill()
        return run.returncode, out, err

    def test_threads_within_calls(self):
        for calls in (_CALLS, _FACES):
            for count in (10, 1_000_000):
                with self.subTest(calls=calls, count=count):
                    code, _, err = self.run_rank(_THREADS, str(count), calls)
                    self.assertEqual(code, 3, err)

    def test_after_ctrl_c(self):
        for call in (_CALLS + _FACES + _MANY).splitlines():
            with self.subTest(call=call):
                code, _, err = self.run_rank(_INTERRUPTED, "1000", call)
                self.assertEqual(code, 3, err)

    def test_ctrl_c_while_the_worker_does_not_answer(self):
        """A first message waits for it, and the refusal of one."""
        for call in ("group.send(new(), 1)", "group.send('text', 1)", "group.recv(new(), 1)",
                     "group.recv(new())", "group.recv(new(), 1, blocking=False)"):
            with self.subTest(call=call):
                code, _, err = self.run_rank(_STOPPED, "1000", call, stops=True)
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

    def test_nodes_of_burn_learn_that_it_left(self):
        """Also while a peer is in a call, which has the group."""
        with fake_job(2) as (path, _):
            environment = dict(os.environ, TUTTI_SOCKET=path, TUTTI_JOB="demo", TUTTI_RANK="0",
                               TUTTI_LOG="info")
            environment["PYTHONPATH"] += os.pathsep + os.path.dirname(__file__)
            run = subprocess.Popen([sys.executable, "-c", _NODE], env=environment, text=True,
                                   stderr=subprocess.PIPE)
            with tutti.join("demo", 1, 2, socket=path) as group:
                collective = burn.Collective(group)
                collective.register(1, "cpu", burn.CollectiveConfig())
                err = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 3, err)
            self.assertIn("rank 0 of 2 of job 'demo' leaves", err)


if __name__ == "__main__":
    unittest.main()
