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


def place(host, address):
    return {"host": host, "address": address, "socket": "", "served": False}


class Join(unittest.TestCase):
    def test_what_hinders_a_leader_is_told_to_its_host(self):
        store = dist.HashStore()
        job = {"token": "", "places": [place("a/boot/1", "127.0.0.1")] * 2}
        with mock.patch.object(_job, "_start_agent", side_effect=OSError(28, "No space left")):
            for rank in (0, 1):
                board = _job._Board(store, 1, timedelta(seconds=2))
                with self.assertRaisesRegex(BackendError, "UNAVAILABLE.* host a .*No space left"):
                    _job._find_agent(board, rank, job)

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
        board = _job._Board(store, 2, timedelta(seconds=1))
        begin = time.monotonic()
        for _ in range(5):
            self.assertRaises(BackendError, board.read, "nothing", "")
        self.assertLess(time.monotonic() - begin, 3)


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
