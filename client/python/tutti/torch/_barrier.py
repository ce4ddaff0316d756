"""A barrier that names the ranks which are missing."""

import time
from datetime import timedelta

from tutti.torch._work import BackendError


class MonitoredBarrier:
    """One barrier, numbered from 1, of the group that the store belongs to. Every rank says that it
    is there; rank 0 waits for all and tells the outcome. For barriers that all have passed only the
    last one's outcome stays in the store."""

    def __init__(self, store, number, rank, size, timeout):
        self._store = store
        self._number = number
        self._name = f"tutti/barrier{number}"
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout

    def run(self, wait_all_ranks):
        if self._rank == 0:
            self._lead(wait_all_ranks)
        else:
            self._follow()

    def _lead(self, wait_all_ranks):
        missing = []
        for rank in range(1, self._size):
            if not missing and time.monotonic() >= self._deadline:
                self._fail(f"Rank 0 timed out in monitoredBarrier after {self._milliseconds()} ms. "
                           f"No rank from {rank} on was waited for")
            if not self._has(f"rank{rank}"):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            ranks = ("Ranks " if wait_all_ranks else "Rank ") + ", ".join(map(str, missing))
            self._fail(f"{ranks} failed to pass monitoredBarrier in {self._milliseconds()} ms",
                       missing[0])
        self._store.set(f"{self._name}/outcome", "")
        # Who is here has read the outcome of the barrier before.
        self._store.delete_key(f"tutti/barrier{self._number - 1}/outcome")
        for rank in range(1, self._size):
            self._store.delete_key(f"{self._name}/rank{rank}")

    def _follow(self):
        self._store.set(f"{self._name}/rank{self._rank}", "")
        reached = (f"Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                   "while waiting for send/recv from rank 0")
        # Rank 0 may use up the whole timeout before it tells.
        self._deadline += self._timeout
        if not self._has("outcome"):
            raise BackendError("DEADLINE_EXCEEDED", f"{reached}: it did not answer", 0)
        failure = self._store.get(f"{self._name}/outcome").decode()
        if failure:
            raise BackendError("DEADLINE_EXCEEDED", f"{reached}: {failure}")

    def _has(self, key):
        """Waits for a key until the deadline; whether it is there."""
        key = f"{self._name}/{key}"
        seconds = max(0.001, self._deadline - time.monotonic())
        try:
            self._store.wait([key], timedelta(seconds=seconds))
            return True
        except RuntimeError:  # FileStore raises no DistStoreError.
            return self._store.check([key])

    def _fail(self, message, rank=None):
        self._store.set(f"{self._name}/outcome", message)
        raise BackendError("DEADLINE_EXCEEDED", message, rank)

    def _milliseconds(self):
        return round(self._timeout * 1000)
