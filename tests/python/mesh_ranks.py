"""Programs on the ranks of a real mesh, on one host and on two."""

import os
import pathlib
import subprocess
import sys
import unittest

_EXITS = """
import sys, threading, numpy, tutti
group = tutti.join(timeout=60)
shared = group.empty(int(sys.argv[1]))
for x in (numpy.ones(int(sys.argv[1]), "float32"), shared):
    threading.Thread(target=lambda x=x: group.subgroup([0, 1]).all_reduce(x), daemon=True).start()
threading.Thread(target=lambda: group.recv(numpy.ones(3)), daemon=True).start()
inside = threading.Event()
inside.wait(0.3 if group.rank == 0 else 60)
sys.exit(3)
"""

_INTERRUPTED = """
import sys, numpy, tutti
from inside import interrupt_inside
from tutti import _work
group = tutti.join(timeout=60)
xs = [numpy.full(int(sys.argv[2]), group.rank + 1.0) for _ in range(2)]
call = eval(sys.argv[1])
if group.rank == 0:
    interrupt_inside()
    try:
        call(xs)
    except KeyboardInterrupt:
        group.send(numpy.ones(1), 1)
else:
    group.recv(numpy.zeros(1), 0)
    call(xs)
    assert {xs[0].min(), xs[0].max()} == {3}, xs
assert group.all_reduce(numpy.ones(1))[0] == 2
while _work._kept:
    _work.drop_ended()
for x in xs:
    x[:] = group.rank + 1
    assert set(group.all_reduce(x)) == {3}, "what was in use may be used again"
print("worked")
"""


class Mesh(unittest.TestCase):
    def run_ranks(self, hosts, *command):
        """(exit code, lines of the output) of two ranks on so many hosts."""
        run = subprocess.run(
            [os.path.join(os.environ["TUTTI_BIN"], "tutti"), "run", "--hosts", str(hosts),
             "--per-host", str(2 // hosts), "--", sys.executable, *command],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500,
            cwd=pathlib.Path(__file__).resolve().parent)
        return run.returncode, run.stdout

    def test_refused_calls(self):
        program = pathlib.Path(__file__).with_name("refused_calls.py")
        for hosts in (1, 2):
            code, output = self.run_ranks(hosts, str(program))
            self.assertEqual(code, 0, output)
            self.assertEqual(output.count("calls were refused"), 2, output)

    def test_a_process_ends_with_its_code_while_threads_are_within_calls(self):
        for hosts in (1, 2):
            for count in (10, 1_000_000):
                code, output = self.run_ranks(hosts, "-c", _EXITS, str(count))
                self.assertEqual(code, 3, output)

    def test_ctrl_c_ends_a_wait_and_not_its_operation(self):
        for hosts in (1, 2):
            for size, call in ((3 << 20, "lambda xs: group.all_reduce(xs[0])"),
                               (3 << 20, "lambda xs: group.all_reduce_many(xs)"),
                               (9 << 10, "lambda xs: group.all_reduce(xs[0])")):
                code, output = self.run_ranks(hosts, "-c", _INTERRUPTED, call, str(size))
                self.assertEqual((code, output.count("worked")), (0, 2), output)


if __name__ == "__main__":
    unittest.main()
