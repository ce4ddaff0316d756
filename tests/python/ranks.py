"""Fixtures: ranks as threads of this process that join a fake_job process."""

import contextlib
import ctypes
import os
import subprocess
import tempfile
import threading
import unittest

import tutti
from tutti import _dlpack

FAILING_COUNT = 1313  # tests/support/fake_job.h


@contextlib.contextmanager
def fake_job(world_size):
    """Runs a fake_job process; yields (path of its socket, process)."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "tuttid.sock")
        process = subprocess.Popen([os.environ["TUTTI_FAKE_JOB"], path, str(world_size)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"ready\n"
            yield path, process
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(30)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_KINDS = {"i": 0, "u": 1, "f": 2, "V": 4, "c": 5, "b": 6}  # "V": bfloat16 of ml_dtypes.


class Dlpack:
    """A DLPack producer that is no NumPy array. versioned: its capsules say what may be done with
    its memory, which is read-only if `read_only`; others have no version and do not say."""

    def __init__(self, array, device=1, versioned=True, read_only=False):
        self.array, self.device = array, device
        self.versioned, self.read_only = versioned, read_only
        self.dtype = array.dtype
        sides = ctypes.c_int64 * array.ndim
        self._shape = sides(*array.shape)
        self._strides = sides(*(stride // array.itemsize for stride in array.strides))
        self._tensor = _dlpack._Tensor(
            array.ctypes.data, device, 0, array.ndim, _KINDS[array.dtype.kind], 8 * array.itemsize,
            1, self._shape, self._strides, 0)
        self._with_version = _dlpack._Versioned(1, 0, None, None, int(read_only), self._tensor)

    def __dlpack__(self, max_version=None, **_):
        if self.versioned and max_version is not None:
            return _new_capsule(ctypes.addressof(self._with_version), b"dltensor_versioned", None)
        return _new_capsule(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return (self.device, 0)


class RanksTest(unittest.TestCase):
    """Base of tests that run a function on all ranks of a job at the same time."""

    def on_ranks(self, body, world_size=2):
        """Calls body(group) for every rank; returns the results by rank."""
        results, failures = [None] * world_size, []

        def rank_main(path, rank):
            try:
                with tutti.join("demo", rank, world_size, timeout=20, socket=path) as group:
                    results[rank] = body(group)
            except BaseException as error:  # Reported by the main thread.
                failures.append(error)

        with fake_job(world_size) as (path, _):
            ranks = [threading.Thread(target=rank_main, args=(path, rank))
                     for rank in range(world_size)]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(60)
        if failures:
            raise failures[0]
        return results

    def assert_invalid(self, words, call, *args, **options):
        """The call raises INVALID_ARGUMENT with `words` in the message."""
        with self.assertRaises(tutti.Error) as caught:
            call(*args, **options)
        self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        self.assertIn(words, caught.exception.message)
