"""How ranks become a job: what rank 0 and the leaders tell, deadlines, addresses, programs."""

import importlib.util
import pathlib
import pickle
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from unittest import mock

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

import torch.distributed as dist

from tutti.torch import BackendError, _address, _agent, _job


def place(host, address="127.0.0.1", sees=()):
    return {"host": host, "address": address, "socket": "", "served": False,
            "sees": [host, *sees]}


def nothing():
    """The check of a job that is wanted."""


class Join(unittest.TestCase):
    def test_what_hinders_a_leader_is_reported_to_its_host(self):
        store = dist.HashStore()
        job = {"token": "", "places": [place("a/boot/1", "127.0.0.1")] * 2}
        with mock.patch.object(_job, "_start_agent", side_effect=OSError(28, "No space left")):
            for rank in (0, 1):
                board = _job._Board(store, "", timedelta(seconds=2))
                with self.assertRaisesRegex(BackendError, "UNAVAILABLE.* host a .*No space left"):
                    _job._find_agent(board, rank, job, nothing)
                with self.assertRaisesRegex(BackendError, "UNAVAILABLE.* host a .*No space left"):
                    board.read("go", "")

    def test_all_name_the_rank_that_is_missing_by_one_deadline(self):
        store, told = dist.HashStore(), []

        def run(rank):
            begin = time.monotonic()
            with self.assertRaisesRegex(BackendError, "rank 2 has not called") as raised:
                _job.join(store, rank, 3, timedelta(seconds=1))
            told.append((time.monotonic() - begin, str(raised.exception)))

        threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(told), 2)
        board = _job._Board(store, "", timedelta(seconds=2))
        begin = time.monotonic()
        for _ in range(5):
            self.assertRaises(BackendError, board.read, "nothing", "")
        self.assertLess(time.monotonic() - begin, 8)  # One deadline for all: five take ten.


class Tries(unittest.TestCase):
    """Ranks that try to join at different times, and more than once."""

    def setUp(self):
        self.store, self.jobs = dist.HashStore(), {}

    def join(self, rank, size, seconds):
        """Joins on a thread; the name of the job is then in self.jobs."""
        def run():
            try:
                limit = timedelta(seconds=seconds)
                self.jobs[rank] = _job.join(self.store, rank, size, limit).group
            except BackendError as error:
                self.jobs[rank] = error

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def joining(self):
        """Stands for agents, which admit everybody."""
        return mock.patch.multiple(
            _job, tutti=mock.Mock(join=lambda job, **_: job),
            _find_agent=lambda *_: (None, "", None))

    def assert_one_job(self, size):
        self.assertEqual(len(self.jobs), size, self.jobs)
        self.assertEqual(len(set(self.jobs.values())), 1, self.jobs)
        self.assertRegex(self.jobs[0], "torch-")

    def test_a_rank_that_has_given_up_meets_the_others_in_its_next_try(self):
        with self.joining():
            for _ in range(3):
                self.join(1, 2, 0.1).join()
                self.assertIn("rank 0 has not called", str(self.jobs[1]))
            for thread in [self.join(1, 2, 60), self.join(0, 2, 60)]:
                thread.join()
            self.assert_one_job(2)
            self.jobs.clear()
            for thread in [self.join(0, 2, 60), self.join(1, 2, 60)]:  # The next job, on the store.
                thread.join()
            self.assert_one_job(2)

    def test_a_rank_that_was_started_again_takes_the_place_of_its_dead_process(self):
        dead = _job._Board(self.store, "tutti/", timedelta(seconds=60))
        dead.write("rank1", place("a/boot/1") | {"number": "dead"})
        with self.joining():
            first = [self.join(0, 3, 60), self.join(2, 3, 60)]
            self.assertTrue(dead.wait(["dead"], 60), "rank 0 has proposed a job to the dead one")
            for thread in [*first, self.join(1, 3, 60)]:
                thread.join()
        self.assert_one_job(3)

    def test_a_rank_that_has_called_and_is_silent_is_named(self):
        dead = _job._Board(self.store, "tutti/", timedelta(seconds=60))
        dead.write("rank1", place("a/boot/1") | {"number": "dead"})
        with self.joining():
            for thread in [self.join(0, 3, 2), self.join(2, 3, 2)]:
                thread.join()
        for rank in (0, 2):
            self.assertIn("rank 1 has called init_process_group, but has ended",
                          str(self.jobs[rank]))


class Hosts(unittest.TestCase):
    def test_one_agent_serves_those_who_can_open_its_socket(self):
        a, other, far = place("a/boot/1"), place("a/boot/1"), place("b/boot2/1")
        self.assertEqual(_job.leaders_of([a, other, far, far]), [0, 0, 2, 2])
        container = place("a/boot/1") | {"sees": ["/tmp:9:2"]}
        self.assertEqual(_job.leaders_of([a, container, a, container]), [0, 1, 0, 1])
        shares = place("a/boot/1") | {"sees": ["mount:1", "/tmp:9:2"]}
        self.assertEqual(_job.leaders_of([container, shares]), [0, 0])
        without_boot = place("a//1") | {"sees": a["sees"]}
        self.assertEqual(_job.leaders_of([a, without_boot]), [0, 0])
        self.assertEqual(_job._host_name([a, container], [0, 1], 1), "a-1")
        self.assertEqual(_job._host_name([a, other, far], [0, 0, 2], 0), "a")

    def test_a_machine_that_does_not_tell_its_boot(self):
        with mock.patch.object(pathlib.Path, "read_text", side_effect=OSError):
            self.assertRegex(_job.host(), "^[^/]+//[0-9]+$")
        one, other = place("a/boot/1"), place("a//1")
        self.assertEqual(_address.to_listen_at([one, other], 0), "127.0.0.1")


class Addresses(unittest.TestCase):
    def test_the_store_is_found_behind_its_prefixes(self):
        server = dist.TCPStore("127.0.0.1", 0, is_master=True)
        store = dist.PrefixStore("a", dist.PrefixStore("b", server))
        with mock.patch.dict("os.environ", MASTER_ADDR="host.invalid"):
            self.assertEqual(_address.toward_store(store), "127.0.0.1")
            self.assertIsNone(_address.toward_store(dist.HashStore()))

    def test_where_an_agent_listens(self):
        one, same = place("a/boot/1", "127.0.0.1"), place("b/boot/1", "127.0.0.1")
        other, far = place("c/boot/2", "127.0.1.1"), place("d/boot/3", "127.0.0.5")
        v6 = place("e/boot/4", "2001:db8::1")
        self.assertEqual(_address.to_listen_at([v6, v6], 1), "127.0.0.1")
        self.assertEqual(_address.to_listen_at([one, same], 1), "127.0.0.1")
        self.assertEqual(_address.to_listen_at([one, v6], 1), "[2001:db8::1]")
        with self.assertRaisesRegex(Exception, "rank 1's .* 127.0.1.1; set MASTER_ADDR"):
            _address.to_listen_at([one, other], 1)
        with mock.patch.object(_address, "_toward", return_value="10.0.0.1") as toward:
            self.assertEqual(_address.to_listen_at([far, place("f/boot/5", "10.0.0.9")], 0),
                             "10.0.0.1")
        toward.assert_called_once_with("10.0.0.9")


class Programs(unittest.TestCase):
    def test_none_is_run_from_the_current_directory(self):
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(_agent, "library_path", return_value="libtutti.so.0"), \
                mock.patch.dict("os.environ", PATH=directory), \
                mock.patch.object(pathlib.Path, "exists", return_value=True):
            with self.assertRaisesRegex(Exception, "NOT_FOUND"):
                _agent._program("tuttid")


class Errors(unittest.TestCase):
    def test_a_timeout_says_so_once(self):
        error = BackendError("DEADLINE_EXCEEDED", "x", 1, "h")
        again = pickle.loads(pickle.dumps(BackendError(error.code, error.message)))
        self.assertEqual(again.message, "Timed out waiting: x")
        self.assertIsInstance(again, dist.DistBackendError)


if __name__ == "__main__":
    unittest.main()
