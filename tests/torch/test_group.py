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

    def test_collectives_have_all_forms_of_torch(self):
        x, y, most = torch.ones(5), torch.zeros(5), dist.ReduceOp.MAX
        soon = timedelta(seconds=5)
        for call, name, arguments, fields in (
                (lambda g: g.allreduce(x), "allreduce", [[x]], {}),
                (lambda g: g.allreduce([x], most), "allreduce", [[x]], {"reduceOp": most}),
                (lambda g: g.allreduce(x, op=most, timeout=soon), "allreduce", [[x]],
                 {"reduceOp": most, "timeout": soon}),
                (lambda g: g.allreduce(tensors=[x], opts=_c10d.AllreduceOptions()), "allreduce",
                 [[x]], {}),
                (lambda g: g.broadcast(x, 1), "broadcast", [[x]], {"rootRank": 1}),
                (lambda g: g.broadcast(tensor=x, root=2), "broadcast", [[x]], {"rootRank": 2}),
                (lambda g: g.reduce(x, 1, most), "reduce", [[x]],
                 {"rootRank": 1, "reduceOp": most}),
                (lambda g: g.allgather([x, y], x), "allgather", [[[x, y]], [x]], {}),
                (lambda g: g.gather([x, y], y, root=1), "gather", [[[x, y]], [y]],
                 {"rootRank": 1}),
                (lambda g: g.gather([], y, root=1), "gather", [[], [y]], {"rootRank": 1}),
                (lambda g: g.scatter(y, [x, y], root=0), "scatter", [[y], [[x, y]]],
                 {"rootRank": 0}),
                (lambda g: g.reduce_scatter(y, [x, y], op=most), "reduce_scatter",
                 [[y], [[x, y]]], {"reduceOp": most}),
                (lambda g: g.alltoall_base(y, x, [], [], soon), "all_to_all_single",
                 [y, x, [], []], {"timeout": soon}),
                (lambda g: g.barrier(timeout=soon), "barrier", [], {"timeout": soon}),
                (lambda g: g.barrier(soon), "barrier", [], {"timeout": soon})):
            call(self.group)
            *given, opts = getattr(self.backend, name).call_args.args
            self.assertEqual(repr(given), repr(arguments), name)
            for field, value in fields.items():
                self.assertEqual(getattr(opts, field), value, (name, field))
        self.group.send(tensors=[x], dstRank=2, tag=7)
        self.backend.send.assert_called_once_with([x], 2, 7)
        for call in (lambda: self.group.allreduce(), lambda: self.group.allreduce(x, most, soon, 1),
                     lambda: self.group.broadcast(x, bogus=1)):
            self.assertRaises(TypeError, call)


if __name__ == "__main__":
    unittest.main()
