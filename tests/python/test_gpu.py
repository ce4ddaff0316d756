"""Arrays on GPUs, over real agents and workers, and the fake driver.

TUTTI_TEST_CUDA_DRIVER names another driver: tests/gpu/run.
"""

import os
import subprocess
import sys
import unittest

_RANK = '''
import ctypes, os, sys
driver = ctypes.CDLL(os.environ["TUTTI_CUDA_DRIVER"])
import numpy, tutti

class Gpu:
    """An array as CuPy's and Numba's are, by __cuda_array_interface__."""
    def __init__(self, values, strides=None):
        context, self.at = ctypes.c_void_p(), ctypes.c_uint64()
        assert driver.cuInit(0) == 0
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert driver.cuCtxPushCurrent_v2(context) == 0
        assert driver.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(values.nbytes)) == 0
        self.copy(self.at.value, values.ctypes.data, values.nbytes)
        self.shape, self.typestr, self.strides = values.shape, values.dtype.str, strides
        self.nbytes, self.dtype = values.nbytes, values.dtype
    @staticmethod
    def copy(to, source, size):
        assert driver.cuMemcpyAsync(ctypes.c_uint64(to), ctypes.c_uint64(source),
                                    ctypes.c_size_t(size), None) == 0
        assert driver.cuStreamSynchronize(None) == 0
    def read(self):
        values = numpy.empty(self.shape, self.dtype)
        self.copy(values.ctypes.data, self.at.value, self.nbytes)
        return values
    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.typestr, "strides": self.strides,
                "data": (self.at.value, False), "version": 3}

group = tutti.join()
x = Gpu(numpy.full((3, 5), group.rank + 1, "float32"))
assert group.all_reduce(x) is x
assert (x.read() == 3).all(), x.read()
mine = Gpu(numpy.full(4, group.rank, "int64"))
both = Gpu(numpy.zeros(8, "int64"))
group.all_gather(mine, out=both)
assert both.read().tolist() == [0] * 4 + [1] * 4, both.read()
work = group.all_reduce(x, op="mean", blocking=False)
work.wait()
assert (x.read() == 3).all()
class Stream:
    """A stream of CUDA, by the protocol that libraries share."""
    def __init__(self):
        self.handle = ctypes.c_void_p()
        assert driver.cuStreamCreate(ctypes.byref(self.handle), ctypes.c_uint(1)) == 0
    def __cuda_stream__(self):
        return 0, self.handle.value
    def finish(self):
        assert driver.cuStreamSynchronize(self.handle) == 0

stream = Stream()
gate = ctypes.c_void_p()
assert driver.cuMemHostAlloc(ctypes.byref(gate), ctypes.c_size_t(4096), ctypes.c_uint(1)) == 0
word = ctypes.c_uint64.from_address(gate.value)
word.value = 0
assert driver.cuStreamWaitValue64_v2(stream.handle, gate, ctypes.c_uint64(1), 0) == 0
work = group.all_reduce(x, blocking=False, stream=stream)
assert group.all_reduce(x, stream=stream.handle.value) is x
assert not work.done(), "the stream has not reached the operation"
word.value = 1
work.wait()
stream.finish()
assert (x.read() == 12).all(), x.read()
class Produced(Gpu):
    """An array whose values a stream makes."""
    stream = None
    @property
    def __cuda_array_interface__(self):
        return super().__cuda_array_interface__ | {"stream": self.stream}

word.value = 0
assert driver.cuStreamWaitValue64_v2(stream.handle, gate, ctypes.c_uint64(1), 0) == 0
late = Produced(numpy.zeros(5, "int64"))
ones = numpy.ones(5, "int64")
assert driver.cuMemcpyAsync(late.at, ctypes.c_uint64(ones.ctypes.data), ctypes.c_size_t(40),
                            stream.handle) == 0
late.stream = stream.handle.value
work = group.all_reduce(late, blocking=False)
group.all_reduce(x, op="mean")
assert not work.done(), "the stream has not made the values"
word.value = 1
assert work.wait() is late
assert (late.read() == 2).all(), late.read()
other = Produced(numpy.zeros(5, "int64"))
other.stream = 1
group.all_reduce(x, op="mean", stream=0)
assert driver.cuStreamSynchronize(None) == 0
assert (x.read() == 12).all(), x.read()

group.all_reduce(x, op="premul_sum", factor=[0.5, 0.25][group.rank], stream=stream)
stream.finish()
assert (x.read() == 9).all(), x.read()

pair = [Gpu(numpy.full(3, group.rank + 1, "float32")), Gpu(numpy.full(5, 2, "int64"))]
group.all_reduce_many(pair)
group.all_reduce_many(pair, stream=stream)
stream.finish()
assert pair[0].read().tolist() == [6] * 3 and pair[1].read().tolist() == [8] * 5

peer, back = 1 - group.rank, Stream()
sent, came = Gpu(numpy.full(2000, group.rank, "float32")), Gpu(numpy.zeros(2000, "float32"))
assert group.recv(came, peer, stream=back) is None
group.send(sent, peer, stream=stream)
back.finish()
assert (came.read() == peer).all()
work = group.send(sent, peer, tag=1, blocking=False)
assert group.recv(came, tag=1) == peer
work.wait()
work = group.send(sent, peer, tag=2, blocking=False)
arrives = Produced(numpy.zeros(2000, "float32"))
arrives.stream = back.handle.value
os.environ["FAKE_CUDA_SLOW_WRITES"] = "300"
assert group.recv(arrives, tag=2) == peer
assert (arrives.read() == peer).all(), "a call without stream= waits for the result"
del os.environ["FAKE_CUDA_SLOW_WRITES"]
work.wait()

for wrong, words in ((lambda: group.all_reduce(x, stream="s"), "no stream of CUDA"),
                     (lambda: group.all_gather(mine), "give out="),
                     (lambda: group.all_reduce(late, out=other), "give stream="),
                     (lambda: group.all_reduce(Gpu(numpy.zeros((2, 2), "f4"), (4, 8))),
                      "not contiguous"),
                     (lambda: group.all_reduce(x, out=numpy.zeros((3, 5), "f4")),
                      "not in the memory of a GPU")):
    try:
        wrong()
    except tutti.Error as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
group.leave()
'''


_DRIVER = os.environ.get("TUTTI_TEST_CUDA_DRIVER", os.environ.get("TUTTI_FAKE_CUDA"))


@unittest.skipUnless(_DRIVER, "there is no fake driver")
class GpuTest(unittest.TestCase):
    def test_arrays_with_the_cuda_array_interface(self):
        programs = os.environ.get("TUTTI_BIN") or os.path.dirname(os.environ["TUTTI_FAKE_JOB"])
        program = os.path.join(programs, "tutti")
        run = subprocess.run([program, "run", "--per-host", "2", "--", sys.executable, "-c", _RANK],
                             env=os.environ | {"TUTTI_CUDA_DRIVER": _DRIVER},
                             text=True, capture_output=True, timeout=120, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
