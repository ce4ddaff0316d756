"""Runs the bodies of bodies.py as the ranks of a torch.distributed job, as torchrun does."""

import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from importlib import metadata

_HERE = pathlib.Path(__file__).parent
_SECONDS = 180


def free_port():
    """One that the kernel gives to nobody who asks for any, until a rank listens there."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def needs_torch(oldest, what):
    """Skips a test of what an older torch has not."""
    numbers = [tuple(map(int, version.split(".")[:2]))
               for version in (metadata.version("torch"), oldest)]
    return unittest.skipIf(numbers[0] < numbers[1], f"{what} needs torch {oldest}")


class Ranks:
    """The processes of one run, each with the standard error of its own."""

    def __init__(self, body, size, backend, variables):
        self._logs = [tempfile.TemporaryFile(mode="w+") for _ in range(size)]
        port = str(free_port())
        self.processes = []
        for rank, log in enumerate(self._logs):
            environment = os.environ | {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
                "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "OMP_NUM_THREADS": "1", "TUTTI_SOCKET": "/nonexistent/tuttid.sock"} | variables
            self.processes.append(subprocess.Popen(
                [sys.executable, str(_HERE / "bodies.py"), body, backend], env=environment,
                stdout=subprocess.PIPE, stderr=log, text=True))

    def results(self):
        """What each body returned; raises with the standard errors where one failed."""
        results = []
        for rank, process in enumerate(self.processes):
            out, _ = process.communicate(timeout=_SECONDS)
            killed = process.returncode == -signal.SIGKILL
            if process.returncode != 0 and not killed:
                raise AssertionError(f"rank {rank} ended with {process.returncode}:\n"
                                     + self.log(rank))
            results.append(None if killed else json.loads(out.splitlines()[-1]))
        return results

    def log(self, rank):
        self._logs[rank].seek(0)
        return self._logs[rank].read()

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        for log in self._logs:
            log.close()


class RanksTest(unittest.TestCase):
    """A test whose bodies run in processes of their own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def run_ranks(self, body, size=2, backend="tutti", **variables):
        """What the bodies return, by rank; None for those that were killed."""
        ranks = Ranks(body, size, backend, {
            "TMPDIR": self.directory, "TUTTI_TEST_FILE": self.directory + "/store"} | variables)
        self.addCleanup(ranks.end)
        return ranks.results()

    def wait_until(self, condition):
        limit = time.monotonic() + _SECONDS
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)
