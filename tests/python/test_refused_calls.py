"""Calls that Python refuses on one rank keep their place in the order: see refused_calls.py."""

import unittest

import numpy as np
from ranks import RanksTest
from refused_calls import Checks, Raises

import tutti
from tutti import burn, cross_device, distribute
from tutti.average_gradients import average_gradients


class RefusedCalls(RanksTest):
    def test_collectives(self):
        self.on_ranks(lambda group: Checks(group).collectives())

    def test_sends(self):
        self.on_ranks(lambda group: Checks(group).refused_sends())

    def test_receives(self):
        self.on_ranks(lambda group: Checks(group).refused_receives())

    def test_the_reason_is_passed_on(self):
        def body(group):
            x = np.ones(4, np.float32)
            x.flags.writeable = group.rank == 0
            with self.assertRaises(tutti.Error) as caught:
                group.broadcast(x)
            group.barrier()  # Nobody leaves before: the fake job has no worker that reports it.
            return caught.exception

        told, own = self.on_ranks(body)
        self.assertEqual((told.code, own.code), ("INVALID_ARGUMENT", "INVALID_ARGUMENT"))
        self.assertIn("asked for broadcast: the array to write to is read-only", told.message)
        self.assertEqual((told.rank, own.rank), (1, None))

    def test_messages_are_refused_in_their_order(self):
        """Also before the receiver calls, and among messages with other tags."""
        def body(group):
            if group.rank == 0:
                group.send(np.full(2, 1.0), 1, tag=1, blocking=False)
                self.assert_invalid("is none of", group.send, np.zeros(2, np.complex64), 1, tag=2)
                group.send(np.full(2, 3.0), 1, tag=2, blocking=False)
                group.barrier()
                self.assertEqual(group.recv(x := np.zeros(2)), 1)
                return x.tolist()
            group.barrier()
            with self.assertRaises(tutti.Error) as caught:
                group.recv(np.zeros(2), tag=2)
            self.assertEqual((caught.exception.code, caught.exception.rank),
                             ("INVALID_ARGUMENT", 0))
            self.assertIn("rank 0 (host a) refused to send it", caught.exception.message)
            self.assertEqual(group.recv(two := np.zeros(2), tag=2), 0)
            self.assertEqual(group.recv(one := np.zeros(2), source=0, tag=1), 0)
            self.assert_invalid("destination 7 is no rank", group.send, one, 7)
            group.send(one, 0)
            return two.tolist()

        self.assertEqual(self.on_ranks(body), [[1, 1], [3, 3]])

    def test_a_list_that_c_refuses_is_an_operation_for_each_dtype(self):
        def body(group):
            xs = [np.ones(2, np.float32), np.ones(2)]
            self.assert_invalid("unknown strategy", group.all_reduce_many, xs,
                                strategy="star" if group.rank else None)
            return group.all_reduce_many(xs)[1].tolist()

        self.assertEqual(self.on_ranks(body), [[2, 2]] * 2)

    def test_a_receive_with_a_misspelt_peer_takes_no_message(self):
        def body(group):
            if group.rank == 0:
                return group.send(np.full(1, 7.0), 1)
            with self.assertRaises(TypeError):
                group.recv(np.zeros(1), src=0)
            group.recv(x := np.zeros(1), source=0)
            return x[0]

        self.assertEqual(self.on_ranks(body), [None, 7])

    def test_what_ends_programs_is_refused_by_every_face(self):
        """A program may go on after Ctrl-C, as notebooks do."""
        def body(group):
            strategy = distribute.Strategy(group=group)
            ops = cross_device.ReductionToOneDevice(group=group)
            peers = burn.Collective(group)
            peers.register(group.rank, "cpu", burn.CollectiveConfig())
            for call in (lambda x: strategy.reduce("SUM", x), lambda x: strategy.gather(x, 0),
                         lambda x: strategy.broadcast_parameters([x]),
                         lambda x: strategy.run(
                             lambda: distribute.get_replica_context().all_reduce("SUM", x)),
                         lambda x: ops.reduce("SUM", x, "CPU:0"),
                         lambda x: ops.broadcast(x, "CPU:0"),
                         lambda x: average_gradients([x], group),
                         lambda x: peers.all_reduce(group.rank, x)):
                for error in (KeyboardInterrupt(), SystemExit(3)):
                    mine = np.ones(2, np.float32) if group.rank == 0 else Raises(error)
                    with self.assertRaises(type(error) if group.rank else RuntimeError):
                        call(mine)
                    self.assertEqual(group.all_reduce(np.full(2, 3.0))[0], 6)

        self.on_ranks(body)

    def test_an_error_with_a_strange_text_is_passed_on(self):
        class Strange(tutti.Error):
            def __init__(self):
                super().__init__("NO_SUCH_CODE", "")
                self.message = 3

        def body(group):
            with self.assertRaises(tutti.Error):
                group.all_reduce(Raises(Strange()) if group.rank else np.ones(1))
            return group.all_reduce(np.ones(1))[0]

        self.assertEqual(self.on_ranks(body), [2, 2])


if __name__ == "__main__":
    unittest.main()
