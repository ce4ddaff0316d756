"""tutti.burn: peers as threads of one process, and of ranks over a fake job. What is computed is
tested in C++ (tests/burn); here it is the way there and back."""

import json
import pickle
import signal
import threading
import time
import unittest

import numpy as np
from ranks import RanksTest

import tutti
from tutti import burn
from tutti.burn import Collective, CollectiveConfig, ReduceOperation


def on_peers(collective, config, body, peers=None):
    """Registers the peers, returns body(peer) of each on a thread of its own, by peer."""
    results, failures = {}, []

    def peer_main(peer):
        try:
            collective.register(peer, "cpu", config)
            results[peer] = body(peer)
            collective.finish_collective(peer)
        except BaseException as error:  # Raised again below.
            failures.append(error)
            collective.reset_collective()

    threads = [threading.Thread(target=peer_main, args=(peer,))
               for peer in (peers or range(config.num_devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    return results


class Peers(unittest.TestCase):
    def setUp(self):
        self.collective = Collective(timeout=20)

    def expect(self, error, words, call, *arguments):
        with self.assertRaisesRegex(error, words) as caught:
            call(*arguments)
        self.assertIsInstance(caught.exception, tutti.Error)
        return caught.exception

    def test_sums_and_means_under_every_strategy(self):
        for strategy in ("centralized", "tree:1", burn.AllReduceStrategy.Tree(5), "ring",
                         {"Tree": 2}):
            config = CollectiveConfig(num_devices=4, local_all_reduce_strategy=strategy)

            def body(peer):
                x = np.array([[peer, peer + 1], [peer + 2, peer + 3]], "f4").T
                total = self.collective.all_reduce(peer, x)
                self.assertIsNot(total, x)
                mean = self.collective.all_reduce(peer, x, ReduceOperation.Mean)
                return total.tolist(), mean.tolist()

            self.assertEqual(list(on_peers(self.collective, config, body).values()),
                             [([[6, 14], [10, 18]], [[1.5, 3.5], [2.5, 4.5]])] * 4)

    def test_strategies_are_values(self):
        strategy = burn.AllReduceStrategy
        for value, text, json_text, name in (
                (strategy.Centralized, "centralized", '"Centralized"', "Centralized"),
                (strategy.Tree(2), "tree:2", '{"Tree":2}', "Tree(2)"),
                (strategy.Ring, "ring", '"Ring"', "Ring")):
            self.assertIsInstance(value, strategy)
            self.assertEqual((value, hash(value)), (text, hash(text)))
            self.assertEqual((value.to_json(), strategy.from_json(json_text)), (json_text, value))
            self.assertEqual(repr(value), f"AllReduceStrategy.{name}")
            self.assertIs(type(pickle.loads(pickle.dumps(value))), strategy)
        self.assertEqual((strategy.Tree(7).arity, strategy.Ring.arity), (7, None))
        self.assertEqual(strategy.Tree(2**24 - 1).arity, 2**24 - 1)
        for call, *wrong in (
                (strategy, "mesh", "tree:", "tree:02", "tree:\u0663", "tree:1_0", "Ring"),
                (strategy.Tree, 0, 2**24), (strategy.from_json, '"Mesh"', "Ring", "[]",
                                            '{"Tree":2,"Ring":1}', '{"Tree":true}')):
            for value in wrong:
                with self.subTest(value):
                    self.assertRaisesRegex(burn.InvalidConfig, "InvalidConfig: .*is none of",
                                           call, value)

    def test_reduce_and_broadcast(self):
        def body(peer):
            reduced = self.collective.reduce(peer, np.float32(peer), "sum", root=2)
            given = np.array([7, 8], "f2") if peer == 1 else None
            return (None if reduced is None else float(reduced),
                    self.collective.broadcast(peer, given))

        results = on_peers(self.collective, CollectiveConfig(num_devices=3), body)
        self.assertEqual([results[peer][0] for peer in range(3)], [None, None, 3])
        for peer in range(3):
            self.assertEqual(results[peer][1].tolist(), [7, 8])
            self.assertEqual(results[peer][1].dtype, np.float16)

    def test_mismatches_are_errors_of_all(self):
        def body(peer):
            name = self.expect(burn.AllReduceShapeMismatch, r"f32\[4\].*f32\[5\]",
                               self.collective.all_reduce, peer, np.zeros(4 + peer, "f4")).name
            self.assertEqual(name, "AllReduceShapeMismatch")
            self.expect(burn.AllReduceOperationMismatch, "MEAN", self.collective.all_reduce, peer,
                        np.zeros(1), "mean" if peer else "sum")
            self.expect(burn.ReduceRootMismatch, "root=1", self.collective.reduce, peer,
                        np.zeros(1), "sum", peer)
            self.expect(burn.BroadcastNoTensor, "exactly one", self.collective.broadcast, peer)
            error = self.expect(burn.BroadcastMultipleTensors, "peer 0 and peer 1",
                                self.collective.broadcast, peer, np.zeros(1))
            self.assertIsInstance(error, ValueError)
            return float(self.collective.all_reduce(peer, 1.0))

        self.assertEqual(on_peers(self.collective, CollectiveConfig(num_devices=2), body),
                         {0: 2, 1: 2})

    def test_the_order_of_calls(self):
        one = CollectiveConfig()
        self.expect(burn.RegisterNotFirstOperation, "not registered",
                    self.collective.all_reduce, 0, 1.0)
        self.expect(burn.RegisterNotFirstOperation, "", self.collective.finish_collective, 0)
        self.collective.register(0, "cpu:0", one)
        self.expect(burn.MultipleRegister, "peer 0", self.collective.register, 0, "cpu", one)
        self.expect(burn.RegisterParamsMismatch, "num_devices is 2, not 1",
                    self.collective.register, 1, "cpu", one.with_num_devices(2))
        self.assertEqual(self.collective.all_reduce(0, [1.5]).tolist(), [1.5])
        self.collective.finish_collective(0)
        self.expect(burn.MultipleUnregister, "", self.collective.finish_collective, 0)
        self.collective.reset_collective()

    def test_configs(self):
        config = CollectiveConfig().with_num_devices(3).with_global_all_reduce_strategy("ring")
        self.assertEqual(config, CollectiveConfig(num_devices=3))
        self.assertEqual(config.num_devices, 3)
        self.assertTrue(config.is_valid())
        for name, words in (("num_devices", r"with_num_devices\(2\) returns"),
                            ("num_device", "'num_device' is no field")):
            with self.assertRaisesRegex(AttributeError, words):
                setattr(config, name, 2)
        self.assertEqual(config.num_devices, 3)
        of_json = CollectiveConfig(local_all_reduce_strategy={"Tree": 2})
        self.assertEqual(of_json, CollectiveConfig())
        self.assertEqual(hash(of_json), hash(CollectiveConfig()))
        self.assertEqual(of_json.local_all_reduce_strategy.to_json(), '{"Tree":2}')
        for wrong in ("treee:2", {"Tree": "2"}, 3):
            self.assertFalse(config.with_local_reduce_strategy(wrong).is_valid(), wrong)
        partial = config.with_num_nodes(2)
        self.assertFalse(partial.is_valid())
        self.expect(burn.InvalidConfig, "all or none", self.collective.register, 0, "cpu", partial)
        self.assertTrue(CollectiveConfig(num_nodes=2, global_address="a", node_address="b",
                                         data_service_port=1).is_valid())
        for strategy, words in (("tree:0", "arity must be >= 1"), ("star", "star"), ("tree", ""),
                                ("tree:-1", ""), ("auto", "choose")):
            self.expect(burn.InvalidConfig, words, self.collective.register, 0, "cpu",
                        CollectiveConfig(local_all_reduce_strategy=strategy))
        for text in ("ring", "centralized", "tree:3", json.dumps({"Tree": 3}), '"Ring"'):
            self.assertTrue(CollectiveConfig(local_all_reduce_strategy=text).is_valid())

    def test_wrong_arguments_are_named(self):
        config = CollectiveConfig()
        for error, words, call in (
                (TypeError, "peer='a'", lambda: self.collective.all_reduce("a", 1.0)),
                (ValueError, "peer=-1", lambda: self.collective.all_reduce(-1, 1.0)),
                (TypeError, "op=3", lambda: self.collective.all_reduce(0, 1.0, 3)),
                (ValueError, "'MAX' is none", lambda: self.collective.all_reduce(0, 1.0, "MAX")),
                (ValueError, "None is no tensor", lambda: self.collective.all_reduce(0, None)),
                (ValueError, "device='cuda:0'",
                 lambda: self.collective.register(0, "cuda:0", config)),
                (ValueError, "Other: reproducible='yes' is none of True, False and None",
                 lambda: Collective(reproducible="yes")),
                (TypeError, "config=3", lambda: self.collective.register(0, "cpu", 3)),
                (TypeError, "'devices' is no field", lambda: CollectiveConfig(devices=3)),
                (AttributeError, "no 'with_x'", lambda: config.with_x)):
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()

    def test_every_error_has_burns_name(self):
        self.collective.register(0, "cpu", CollectiveConfig())
        with_ints = np.ones(2, "i4")
        for words, call in (
                ("'MAX' is none", lambda: self.collective.all_reduce(0, 1.0, "MAX")),
                ("None is no tensor", lambda: self.collective.all_reduce(0, None)),
                ("None is no tensor", lambda: self.collective.reduce(0, None, "sum", 0)),
                ("is no tensor", lambda: self.collective.all_reduce(0, "text")),
                ("is no tensor", lambda: self.collective.broadcast(0, object())),
                ("root=-1", lambda: self.collective.reduce(0, 1.0, "sum", -1)),
                (f"peer={2**32}", lambda: self.collective.reduce(2**32, 1.0, "sum", 0)),
                ("MEAN needs", lambda: self.collective.all_reduce(0, with_ints, "mean")),
                ("bools", lambda: self.collective.all_reduce(0, np.ones(2, "?")))):
            with self.subTest(words=words):
                error = self.expect(burn.Other, words, call)
                self.assertIsInstance(error, ValueError)
                self.assertEqual((error.code, error.name), ("INVALID_ARGUMENT", "Other"))
        self.assertEqual(self.collective.all_reduce(0, 1.0), 1)
        with self.assertRaisesRegex(TypeError, "group='x' must be a tutti.Group"):
            Collective("x")

    def test_a_refused_call_fails_for_all_peers(self):
        def body(peer):
            for wrong in ((None, "sum"), ("text", "sum"), (1.0, "MAX"), (1.0, 3)):
                with self.assertRaises((ValueError, TypeError)) as caught:
                    self.collective.all_reduce(peer, *(wrong if peer == 1 else (100.0, "sum")))
                if peer == 0:
                    self.assertIsInstance(caught.exception, burn.Other)
                    self.assertIn("peer 1", str(caught.exception))
            return float(self.collective.all_reduce(peer, 1.0))

        self.assertEqual(on_peers(self.collective, CollectiveConfig(num_devices=2), body),
                         {0: 2, 1: 2})

    def test_numbers_that_do_not_fit(self):
        nodes = {"num_nodes": 2, "global_address": "a", "node_address": "b",
                 "data_service_port": 1}
        self.assertTrue(CollectiveConfig(**nodes).is_valid())
        for name in ("num_devices", "num_nodes", "data_service_port"):
            for number in (-5, -1, -2**63, -2**70, 2**64 + 1, 2**32 + 1):
                config = CollectiveConfig(**{**nodes, name: number})
                self.assertFalse(config.is_valid(), config)
                self.expect(burn.InvalidConfig, name, self.collective.register, 0, "cpu", config)
        for wrong in (CollectiveConfig(num_nodes=-5), CollectiveConfig(num_devices=None)):
            self.assertFalse(wrong.is_valid(), wrong)
        for name, value in (("num_devices", 1.5), ("global_address", 3)):
            with self.assertRaisesRegex(TypeError, name):
                CollectiveConfig(**{name: value}).is_valid()

    def test_ctrl_c_ends_a_wait(self):
        collective = Collective(timeout=60)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        begin = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with self.assertRaises(KeyboardInterrupt):
                collective.register(0, "cpu", CollectiveConfig(num_devices=2))
            self.assertLess(time.monotonic() - begin, 30)
        finally:
            signal.signal(signal.SIGALRM, before)
            collective.reset_collective()  # Ends the call itself.

    def test_missing_peers_are_named(self):
        collective = Collective(timeout=0.1)
        self.expect(burn.Other, "1 of num_devices=2", collective.register, 0, "cpu",
                    CollectiveConfig(num_devices=2))

    def test_the_functions_of_the_module(self):
        burn.register(0, "cpu", CollectiveConfig())
        self.assertEqual(burn.all_reduce(0, 2.0), 2)
        self.assertEqual(burn.reduce(0, 2.0, "mean", 0), 2)
        self.assertEqual(burn.broadcast(0, [1]).tolist(), [1])
        burn.finish_collective(0)
        burn.reset_collective()


class Ranks(RanksTest):
    def test_peers_of_several_processes(self):
        def body(group):
            collective = Collective(group, timeout=20)
            config = CollectiveConfig(num_devices=1 + 2 * group.rank)
            peers = [0] if group.rank == 0 else [1, 2, 3]
            means = on_peers(collective, config, lambda peer: float(
                collective.all_reduce(peer, np.float32(peer), "mean")), peers)
            return sorted(means.items())

        self.assertEqual(self.on_ranks(body), [[(0, 1.5)], [(1, 1.5), (2, 1.5), (3, 1.5)]])


if __name__ == "__main__":
    unittest.main()
