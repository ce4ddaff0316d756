"""Fixtures: ranks as threads of this process that join a fake_job process."""

import contextlib
import os
import subprocess
import tempfile
import threading
import unittest

import tutti

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


class Dlpack:
    """A DLPack producer that is no NumPy array, like a torch tensor."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device
        self.dtype = array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

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
