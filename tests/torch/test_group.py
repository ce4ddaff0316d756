"""The process group that stands for a backend before torch 2.14: which calls it passes on, and how.
(Newer releases cannot use it; with older ones test_backend does.)"""

import importlib.util
import unittest
from datetime import timedelta
from unittest import mock

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

import torch
import torch.distributed as dist

from tutti.torch import _group
from tutti.torch._backend import TuttiBackend

_c10d = torch._C._distributed_c10d


class Groups(unittest.TestCase):
    def setUp(self):
        self.backend = mock.Mock(spec=TuttiBackend)
        self.backend.rank.return_value, self.backend.size.return_value = 1, 3
        self.group = _group.Group(self.backend, ["cpu"], dist.HashStore())

    def test_it_has_the_ranks_and_the_device_of_its_backend(self):
        self.assertEqual((self.group.rank(), self.group.size()), (1, 3))
        self.assertEqual(self.group._device_types, [torch.device("cpu")])
        self.assertIs(self.group._get_backend(torch.device("cpu")), self.backend)
        with self.assertRaisesRegex(RuntimeError, "No backend type associated with device type"):
            self.group._get_backend(torch.device("cuda"))

    def test_calls_have_the_names_of_torch_2_14(self):
        x, opts = torch.ones(1), _c10d.AllgatherOptions()
        self.group._allgather_base(x, x, opts)
        self.backend.all_gather_single.assert_called_once_with(x, x, opts)
        self.group.alltoall_base(x, x, [], [], opts=(opts := _c10d.AllToAllOptions()))
        self.backend.all_to_all_single.assert_called_once_with(x, x, [], [], opts)
        self.group.recv([x], 2, 7)
        self.backend.recv.assert_called_once_with([x], 2, 7)

    def test_options_may_be_missing(self):
        self.group.allreduce([torch.ones(1)])
        self.assertIsInstance(self.backend.allreduce.call_args.args[1], _c10d.AllreduceOptions)
        self.group.barrier()
        self.assertIsInstance(self.backend.barrier.call_args.args[0], _c10d.BarrierOptions)
        self.group.monitored_barrier(timedelta(seconds=5), wait_all_ranks=True)
        opts, wait_all_ranks = self.backend.monitored_barrier.call_args.args
        self.assertEqual((opts.timeout, wait_all_ranks), (timedelta(seconds=5), True))


if __name__ == "__main__":
    unittest.main()
