"""Runs torch's own suite, torch/testing/_internal/distributed/distributed_test.py.

    python suite.py --backend gloo|tutti --ranks N [--hosts H] [NAME...]

Tutti takes the name "gloo" here, because the suite skips most tests of other names. Prints a line
of JSON for each test: its name, its outcome (passed, skipped, failed) and the reason.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

_SECONDS = 120  # For one test.


def prepare(arguments):
    """What the suite expects of the environment, before it is imported."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="torch-suite-"))
    for name in ("barrier", "test_dir", "init_dir"):
        (directory / name).mkdir()
    os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(arguments.ranks),
                   "TEMP_DIR": str(directory), "OMP_NUM_THREADS": "1",
                   "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(_SECONDS)}
    torch.set_num_threads(1)
    return directory


def take_the_place_of_gloo(ranks_per_host):
    """Registers Tutti's backend as "gloo". Each run of ranks_per_host ranks is a host."""
    from tutti.torch import _backend, _job

    def create(opts, backend_options):
        _job.host = lambda: f"host{opts.group_rank // ranks_per_host}/boot/0"
        return _backend.create(opts, backend_options, name="gloo")

    dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu", "cuda"])


def suite_class():
    from torch.testing._internal.distributed import distributed_test

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


class Outcomes(unittest.TestResult):
    """Prints each outcome as it comes."""

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def _tell(self, test, outcome, reason=""):
        print(json.dumps({"name": test.id().rsplit(".", 1)[-1], "outcome": outcome,
                          "seconds": round(time.monotonic() - self._began, 1),
                          "reason": reason}), flush=True)

    def addSuccess(self, test):
        self._tell(test, "passed")

    def addSkip(self, test, reason):
        self._tell(test, "skipped", reason)

    def addFailure(self, test, err):
        self._tell(test, "failed", str(err[1]))

    addError = addFailure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("gloo", "tutti"), required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    directory = prepare(arguments)
    if arguments.backend == "tutti":
        take_the_place_of_gloo(arguments.ranks // arguments.hosts)
    cls = suite_class()
    names = arguments.names or unittest.TestLoader().getTestCaseNames(cls)
    try:
        unittest.TestSuite(map(cls, names)).run(Outcomes())
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
