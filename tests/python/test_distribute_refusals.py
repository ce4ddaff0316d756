"""tutti.distribute: a call that one rank refuses is an error of all of them, and none is a call
ahead of the others afterwards."""

import unittest

import numpy as np
from ranks import RanksTest

from tutti import distribute
from tutti.cross_device import CommunicationOptions, IndexedSlices
from tutti.distribute import PerReplica, Strategy, Variable


class Refusals(RanksTest):
    def expect_steps(self, right, mistakes, make=lambda group: Strategy(group=group)):
        """Rank 1 makes each of the mistakes {words: call(strategy)} where rank 0 makes the right
        call: both raise, and rank 0's words name rank 1."""
        def body(group):
            strategy = make(group)
            for words, mistake in mistakes.items():
                with self.assertRaises((ValueError, TypeError, RuntimeError)) as caught:
                    (mistake if group.rank == 1 else right)(strategy)
                self.assertRegex(str(caught.exception), words)
                if group.rank == 0:
                    self.assertRegex(str(caught.exception), "rank 1")
            self.assertEqual(strategy.reduce("SUM", float(1 + group.rank)), 3)

        self.on_ranks(body)

    def test_reductions(self):
        self.expect_steps(lambda strategy: strategy.reduce("SUM", 100.0), {
            "'MAX' is none": lambda strategy: strategy.reduce("MAX", 100.0),
            "reduce_op=3": lambda strategy: strategy.reduce(3, 100.0),
            "axis='0'": lambda strategy: strategy.reduce("SUM", 100.0, axis="0"),
            f"axis={2**64}": lambda strategy: strategy.reduce("SUM", 100.0, axis=2**64),
            "None is no tensor": lambda strategy: strategy.reduce("SUM", None),
            "is no tensor": lambda strategy: strategy.reduce("SUM", "text"),
            "2 values": lambda strategy: strategy.reduce("SUM", PerReplica([1.0, 2.0])),
            "has the key": lambda strategy: strategy.reduce("SUM", {object(): 1.0}),
            "SUM of bool": lambda strategy: strategy.reduce("SUM", True)})

    def test_gathers_and_broadcasts(self):
        self.expect_steps(lambda strategy: strategy.gather(np.zeros(2), 0), {
            "axis=None": lambda strategy: strategy.gather(np.zeros(2), None),
            f"axis={2**70}": lambda strategy: strategy.gather(np.zeros(2), 2**70),
            "None is no tensor": lambda strategy: strategy.gather(None, 0)})
        self.expect_steps(lambda strategy: strategy.broadcast_parameters(np.zeros(2)), {
            "root='0'": lambda strategy: strategy.broadcast_parameters(np.zeros(2), "0"),
            f"root={2**32}": lambda strategy: strategy.broadcast_parameters(np.zeros(2), 2**32),
            "None is no tensor": lambda strategy: strategy.broadcast_parameters(None)})

    def test_gathers_of_slices_are_not_implemented(self):
        def body(group):
            strategy = Strategy(group=group)
            slices = IndexedSlices(np.ones((1, 2)), np.array([0]), (3, 2))
            with self.assertRaises(NotImplementedError):
                strategy.gather(PerReplica([slices]), 0)
            if group.rank == 1:
                with self.assertRaises(NotImplementedError):
                    strategy.gather(slices, 0)
            else:
                with self.assertRaisesRegex(ValueError, "rank 1.*IndexedSlices"):
                    strategy.gather(np.ones((1, 2)), 0)
            self.assertEqual(strategy.reduce("SUM", 1.0), 2)

        self.on_ranks(body)

    def test_within_replicas(self):
        def call(*arguments):
            return lambda strategy: strategy.run(
                lambda: distribute.get_replica_context().all_reduce(*arguments))

        def two_each(group):
            return Strategy(group=group, local_replicas=2)

        mistakes = {"'MAX' is none": call("MAX", 100.0), "reduce_op=3": call(3, 100.0),
                    "None is no tensor": call("SUM", None)}
        self.expect_steps(call("SUM", 100.0), mistakes)

        def body(group):
            strategy = two_each(group)

            def step():
                context = distribute.get_replica_context()
                last = context.replica_id_in_sync_group == 3
                for op, value in (("MAX", 1.0), (3, 1.0), ("SUM", None)):
                    with self.assertRaises((ValueError, TypeError)) as caught:
                        context.all_reduce(*((op, value) if last else ("SUM", 100.0)))
                    if not last:
                        self.assertRegex(str(caught.exception), "replica 3")
                return context.all_reduce("SUM", 1.0)

            self.assertEqual([float(x) for x in strategy.run(step).values], [4, 4])

        self.on_ranks(body)

    def test_variables(self):
        def make(**options):
            def body(strategy):
                with strategy.scope():
                    Variable(**{"initial_value": 1.0, "name": "v", **options})
            return body

        self.expect_steps(make(), {
            "None is no tensor": make(initial_value=None),
            "name=3": make(name=3),
            "aggregation 'AVG'": make(aggregation="AVG"),
            "aggregation=3": make(aggregation=3),
            "initial_value: str is no tensor": make(initial_value="x", dtype="f4")})

    def test_assignments_within_replicas(self):
        def body(group):
            strategy = Strategy(group=group)
            with strategy.scope():
                variable = Variable(0.0, aggregation="SUM")
            for wrong in (None, "text", PerReplica([1.0, 2.0]), [1.0, 2.0]):
                with self.assertRaises((ValueError, TypeError, RuntimeError)):
                    strategy.run(lambda: variable.assign(wrong if group.rank else 100.0))
            strategy.run(lambda: variable.assign_add(1.0))
            self.assertEqual(float(variable), 2)

        self.on_ranks(body)

    def test_creations_with_a_group(self):
        def body(group):
            for wrong in ({"local_replicas": "1"}, {"local_replicas": 2**32 + 1},
                          {"local_replicas": 241}, {"cluster_resolver": 3},
                          {"device_assignment": 3}, {"timeout": -1}, {"job": object()}):
                with self.assertRaises((ValueError, TypeError)) as caught:
                    Strategy(group=group, **(wrong if group.rank == 1 else {}))
                if group.rank == 0:
                    self.assertRegex(str(caught.exception), "rank 1")
            self.assertEqual(Strategy(group=group).reduce("SUM", 1.0), 2)

        self.on_ranks(body)
        with self.assertRaisesRegex(TypeError, "group='x' must be a tutti.Group"):
            Strategy(group="x")

    def test_data_sets(self):
        def body(group):
            strategy = Strategy(group=group)

            def broken(_):
                yield np.ones(1)
                if group.rank == 1:
                    raise OSError("no such file")
                yield np.ones(1)

            for batches in (strategy.distribute_datasets_from_function(broken),
                            strategy.experimental_distribute_dataset(broken(None))):
                batches = iter(batches)
                next(batches)
                with self.assertRaisesRegex(OSError if group.rank else ValueError, "no such file"):
                    next(batches)
            rows = [len(batch) for batch in strategy.experimental_distribute_dataset(
                [np.ones(3)] * (1 + group.rank))]
            self.assertEqual(rows, [1, 1] if group.rank else [2, 0])
            uneven = [(np.ones(2), np.ones(2 + group.rank))]
            with self.assertRaisesRegex(ValueError, "equally many rows"):
                list(strategy.experimental_distribute_dataset(uneven))
            none = strategy.distribute_datasets_from_function(
                lambda _: [np.ones(1)] * (1 - group.rank))
            with self.assertRaisesRegex(ValueError, "rank 1 .*no batch"):
                list(none)
            empty = strategy.distribute_datasets_from_function(lambda _: [])
            self.assertEqual(list(empty), [])
            self.assertEqual(strategy.reduce("SUM", 1.0), 2)

        self.on_ranks(body)


class Steps(RanksTest):
    def test_values_of_ranks_with_different_numbers_of_replicas(self):
        def body(group):
            strategy = Strategy(group=group, local_replicas=1 + group.rank)
            results = [strategy.reduce(op, 2.0) for op in ("MEAN", "SUM")]
            same = strategy.run(lambda: None or 1.5)
            return [float(x) for x in (*results, strategy.reduce("MEAN", same))]

        self.assertEqual(self.on_ranks(body), [[2.0, 6.0, 1.5]] * 2)

    def test_timeouts_of_none_and_of_zero_are_the_default(self):
        def body(group):
            strategy = Strategy(group=group)
            for seconds in (None, 0, 20):
                options = CommunicationOptions(timeout_seconds=seconds)
                self.assertEqual(strategy.reduce("SUM", 1.0, options=options), 2)
            with self.assertRaisesRegex(TypeError, "options=3"):
                strategy.reduce("SUM", 1.0, options=3)

        self.on_ranks(body)

    def test_the_first_leaf_that_differs_is_quoted(self):
        def body(group):
            shapes = [np.zeros((3, 1), "f4")] * 500
            shapes[400] = np.zeros((3, 1 + group.rank), "f4")
            with self.assertRaises(ValueError) as caught:
                Strategy(group=group).reduce("SUM", shapes)
            self.assertIn("value 400: f32[3,1]", str(caught.exception))
            self.assertIn("value 400: f32[3,2]", str(caught.exception))
            self.assertLess(len(str(caught.exception)), 2000)

        self.on_ranks(body)


class Replicas(unittest.TestCase):
    def test_a_context_is_of_no_use_afterwards(self):
        strategy = Strategy(local_replicas=2)
        kept = strategy.run(distribute.get_replica_context).values[0]
        with self.assertRaisesRegex(RuntimeError, "outside of the replica's function"):
            kept.all_reduce("SUM", 1.0)
        with self.assertRaisesRegex(RuntimeError, "outside of the replica's function"):
            kept.merge_call(lambda _: None)

    def test_numbers_that_do_not_fit(self):
        strategy = Strategy(local_replicas=2)
        topology = distribute.Topology([1, 1, 1, 4], [[[0, 0, 0, i] for i in range(4)]])
        for words, call in (
                ("num_replicas", lambda: distribute.DeviceAssignment.build(
                    topology, num_replicas=2**32 + 4)),
                ("local_replicas", lambda: Strategy(local_replicas=2**32 + 1)),
                ("local_replicas", lambda: Strategy(local_replicas=50000)),
                ("mesh_shape", lambda: distribute.Topology([2**32 + 1, 1, 1, 1], [[[0] * 4]])),
                ("global_batch_size",
                 lambda: distribute.InputContext(1, 0, 2).get_per_replica_batch_size(2**64)),
                (f"partition_dimensions={2**64}",
                 lambda: strategy.experimental_split_to_logical_devices(np.zeros(2), [2**64])),
                ("port_base", lambda: distribute.cluster_resolver.SlurmClusterResolver(
                    port_base=8888.9)),
                ("tasks_per_node", lambda: distribute.cluster_resolver.SlurmClusterResolver(
                    tasks_per_node=2.5)),
                ("port", lambda: distribute.cluster_resolver.KubernetesClusterResolver(
                    tf_server_port=2**32 + 1)),
                ("task_id", lambda: distribute.cluster_resolver.TFConfigClusterResolver(
                    task_id=2**32))):
            with self.subTest(words=words), self.assertRaisesRegex((ValueError, TypeError), words):
                call()


if __name__ == "__main__":
    unittest.main()
