"""tutti.distribute: strategies of several replicas in one process, and of ranks over a fake job.
What is computed is tested in C++ (tests/distribute); here it is the way there and back."""

import collections
import contextvars
import gc
import itertools
import os
import threading
import unittest
from unittest import mock

import numpy as np
from ranks import RanksTest

import tutti
from tutti import distribute
from tutti.distribute import PerReplica, ReduceOp, Strategy, Variable
from tutti.distribute import cluster_resolver as resolvers

CHIEF = ('{"cluster":{"chief":["h0:1"],"worker":["h1:1","h2:1"]},'
         '"task":{"type":"worker","index":%s}}')


def each(strategy, values):
    """The values of the strategy's own replicas."""
    return PerReplica([values[i] for i in strategy.local_replica_ids])


def replica_id():
    return distribute.get_replica_context().replica_id_in_sync_group


class Strategies(unittest.TestCase):
    def assert_result(self, result, want):
        np.testing.assert_array_equal(result, want)
        self.assertEqual(np.shape(result), np.shape(want))

    def test_reductions_of_ids(self):
        strategy = Strategy(local_replicas=4)
        ids = strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group)
        self.assertEqual(strategy.experimental_local_results(ids), (0, 1, 2, 3))
        self.assertEqual(strategy.num_replicas_in_sync, 4)
        got = strategy.run(replica_id)
        self.assertEqual(strategy.reduce(ReduceOp.SUM, got, axis=None), 6)
        floats = strategy.run(lambda i: float(i), args=(got,))
        self.assertEqual(strategy.reduce("mean", floats), 1.5)
        self.assertEqual(strategy.reduce("SUM", floats).dtype, np.float64)

    def test_reductions_along_axes(self):
        strategy = Strategy(local_replicas=2)
        uneven = PerReplica([np.arange(4, dtype="f4"), np.array([4, 5], "f4")])
        self.assert_result(strategy.reduce("MEAN", uneven, axis=0), np.float32(2.5))
        self.assert_result(strategy.reduce("SUM", uneven, axis=(0,)), np.float32(15))
        with self.assertRaisesRegex(ValueError, r"f32\[4\].*f32\[2\]"):
            strategy.reduce("SUM", uneven)
        with self.assertRaisesRegex(ValueError, "axis=3 is out of range"):
            strategy.reduce("MEAN", uneven, axis=3)
        with self.assertRaisesRegex(TypeError, "axis='0'"):
            strategy.reduce("MEAN", uneven, axis="0")

    def test_gather(self):
        strategy = Strategy(local_replicas=2)
        self.assert_result(strategy.gather(PerReplica([np.array([[1], [2]])] * 2), 0),
                           [[1], [2], [1], [2]])
        parts = {"a": PerReplica([np.ones(2), np.zeros((1,))])}
        self.assert_result(strategy.gather(parts, axis=0)["a"], [1, 1, 0])
        with self.assertRaisesRegex(ValueError, "out of range"):
            strategy.gather(PerReplica([1.0, 2.0]), 0)

    def test_structures(self):
        Pair = collections.namedtuple("Pair", "x y")
        strategy = Strategy(local_replicas=2)

        def step():
            value = {"b": [2.0, np.array([3.0])], "a": Pair(1.0, (np.float32(4),))}
            return distribute.get_replica_context().all_reduce("SUM", value)

        result = strategy.run(step)
        self.assertEqual(list(result), ["b", "a"])
        self.assertIsInstance(result["a"], Pair)
        self.assertEqual([float(x) for x in result["a"].x.values], [2, 2])
        self.assertEqual(result["a"].y[0].values[1].dtype, np.float32)
        self.assert_result(result["b"][1].values[0], [6.0])

        def differ():
            value = {"a": 1.0} if replica_id() else [1.0]
            return distribute.get_replica_context().all_reduce("SUM", value)

        with self.assertRaisesRegex(ValueError, "replica 0 has .*[*].*, replica 1 .*'a':"):
            strategy.run(differ)

    def test_contexts(self):
        strategy, other = Strategy(local_replicas=2), Strategy()
        with self.assertRaisesRegex(RuntimeError, "cross-replica context"):
            strategy.run(lambda: strategy.reduce("SUM", PerReplica([1.0, 2.0])))
        self.assertFalse(distribute.has_strategy())
        with strategy.scope():
            self.assertIs(distribute.get_strategy(), strategy)
            self.assertTrue(distribute.in_cross_replica_context())
            with self.assertRaisesRegex(RuntimeError, "mixing"), other.scope():
                pass
            self.assertEqual(strategy.run(distribute.in_cross_replica_context), False)
            with strategy.scope():
                pass
            seen = []
            thread = threading.Thread(target=lambda: seen.append(distribute.has_strategy()))
            thread.start()
            thread.join()
            self.assertEqual(seen, [False])
        with self.assertRaisesRegex(RuntimeError, "no strategy's scope"):
            distribute.get_strategy()
        self.assertIsNone(distribute.get_replica_context())

    def test_replicas_have_the_context_variables_of_the_caller(self):
        variable = contextvars.ContextVar("variable", default=0)
        for replicas in (1, 2):
            variable.set(5)
            seen = Strategy(local_replicas=replicas).run(lambda: (variable.get(), object())[0])
            self.assertEqual(seen, 5)

    def test_less_common_names(self):
        strategy = Strategy(local_replicas=2)
        extended = strategy.extended
        with strategy.scope():
            v = Variable(2.0, synchronization="ON_READ", aggregation="SUM")
        ids = extended.call_for_each_replica(lambda x: replica_id() + x, (1,), {})
        self.assertEqual(ids.values, (1, 2))
        extended.call_for_each_replica(v.assign_add, (1.0,))
        self.assertEqual(extended.read_var(v), 6.0)
        with extended.colocate_vars_with(v):
            self.assertEqual(extended.non_slot_devices([v]), extended.worker_devices)
        for foreign in (3.0, v):
            with self.assertRaisesRegex(ValueError, "scope of this strategy"):
                Strategy().extended.colocate_vars_with(foreign)
        topology = distribute.Topology([1, 1, 1, 4], [[[0, 0, 0, core] for core in range(4)]])
        paired = Strategy(None, distribute.DeviceAssignment.build(topology, [1, 1, 1, 2],
                                                                  num_replicas=2))
        devices = paired.run(lambda: [*distribute.get_replica_context().devices])
        self.assertEqual([name.values[1] for name in devices],
                         [f"/job:worker/task:0/device:GPU:{i}" for i in (2, 3)])

    def test_what_a_replica_raises_is_raised(self):
        strategy = Strategy(local_replicas=2)

        def step():
            if replica_id() == 1:
                raise KeyError("mine")
            return distribute.get_replica_context().all_reduce("SUM", 1.0)

        with self.assertRaisesRegex(KeyError, "mine"):
            strategy.run(step)
        self.assertEqual(strategy.reduce("SUM", PerReplica([1, 2])), 3)
        with self.assertRaisesRegex(ValueError, "args=3"):
            strategy.run(step, args=3)
        with self.assertRaisesRegex(TypeError, "not callable"):
            strategy.run(3)

    def test_merge_calls(self):
        strategy = Strategy(local_replicas=3)

        def merge(merged, value, same, factor):
            self.assertIs(merged, strategy)
            self.assertEqual(same, "text")
            return merged.reduce("SUM", value) * factor

        def step(value):
            return distribute.get_replica_context().merge_call(merge, (value, "text"),
                                                               {"factor": 10})

        self.assertEqual(strategy.run(step, (PerReplica([1, 2, 3]),)), 60)

        def failing():
            return distribute.get_replica_context().merge_call(lambda _: 1 / 0)

        with self.assertRaises(ZeroDivisionError):
            strategy.run(failing)

    def test_one_replica_is_the_identity(self):
        with mock.patch.dict("os.environ"):
            for name in ("TF_CONFIG", "TUTTI_WORLD_SIZE"):
                os.environ.pop(name, None)
            strategy = Strategy()
        self.assertEqual(strategy.num_replicas_in_sync, 1)
        value = np.array([1.5, np.nan])
        self.assert_result(strategy.reduce("SUM", value), value)
        main = threading.current_thread()
        self.assertIs(strategy.run(threading.current_thread), main)
        self.assertEqual(strategy.run(lambda x, y=1: x + y, (2,), {"y": 3}), 5)

    def test_values_that_are_the_same_for_all(self):
        strategy = Strategy(local_replicas=2)
        self.assertEqual(strategy.reduce("MEAN", 5.0), 5.0)
        self.assertEqual(strategy.reduce("SUM", 0.0), 0.0)
        with self.assertRaisesRegex(ValueError, "one value for several replicas"):
            strategy.reduce("SUM", 5.0)

    def test_wrong_calls_are_named(self):
        strategy = Strategy(local_replicas=2)
        ids = PerReplica([1, 2])
        for error, words, call in (
                (ValueError, "'MAX' is none of SUM, MEAN", lambda: strategy.reduce("MAX", ids)),
                (TypeError, "reduce_op=3", lambda: strategy.reduce(3, ids)),
                (ValueError, "MEAN needs a floating", lambda: strategy.reduce("MEAN", ids)),
                (ValueError, "None is no tensor",
                 lambda: strategy.reduce("SUM", PerReplica([1, None]))),
                (ValueError, "3 values",
                 lambda: strategy.reduce("SUM", PerReplica([1, 2, 3]))),
                (TypeError, "device_assignment=3", lambda: Strategy(None, 3)),
                (TypeError, "cluster_resolver=3 is no resolver", lambda: Strategy(3)),
                (ValueError, "0 replicas", lambda: Strategy(local_replicas=0)),
                (ValueError, "timeout", lambda: Strategy(timeout=-1)),
                (ValueError, "'yes' is none of True", lambda: Strategy(reproducible="yes"))):
            with self.subTest(words=words), self.assertRaisesRegex(error, words):
                call()


class Ranks(RanksTest):
    def test_a_group_is_a_cluster_of_workers(self):
        def body(group):
            own = Strategy(group=group).cluster_resolver
            return own.task_type, own.task_id, own.cluster_spec().num_tasks("worker")

        with mock.patch.dict("os.environ", {"TF_CONFIG": CHIEF % 1}):  # It is for another cluster.
            self.assertEqual(self.on_ranks(body), [("worker", 0, 2), ("worker", 1, 2)])

    def test_strategies_over_a_group(self):
        def body(group):
            strategy = Strategy(group=group, local_replicas=1 + group.rank)
            self.assertEqual(strategy.num_replicas_in_sync, 3)
            total = strategy.reduce("SUM", each(strategy, [1.0, 2.0, 4.0]))
            self.assertEqual(total, 7)
            parts = each(strategy, [np.array([1]), np.array([2]), np.array([3])])
            joined = strategy.gather(parts, 0)
            self.assertEqual(joined.tolist(), [1, 2, 3])
            with strategy.scope():
                counter = Variable(float(group.rank), aggregation="SUM")
            self.assertEqual(counter.numpy(), 0)
            strategy.run(lambda: counter.assign_add(1.0))
            self.assertEqual([float(copy) for copy in counter.values], [3.0] * (1 + group.rank))
            weights = {"w": np.full(3, group.rank, "f4"),
                       "b": np.full((2, 2), group.rank + 0.5)[:, :1]}
            self.assertIs(strategy.broadcast_parameters(weights), weights)
            self.assertEqual(weights["w"].tolist(), [0, 0, 0])
            self.assertEqual(weights["b"].tolist(), [[0.5], [0.5]])

        self.on_ranks(body)

    def test_data_of_ranks_that_end_at_different_times(self):
        def body(group):
            strategy = Strategy(group=group)

            def make(context):
                self.assertEqual(context.num_input_pipelines, 2)
                self.assertEqual(context.input_pipeline_id, group.rank)
                return [{"x": np.array([i])} for i in range(1 + 2 * group.rank)]

            batches = strategy.distribute_datasets_from_function(make)
            return [batch["x"].tolist() for batch in batches]

        self.assertEqual(self.on_ranks(body), [[[0], [], []], [[0], [1], [2]]])

    def test_a_rank_that_differs_is_an_error_of_all(self):
        def body(group):
            strategy = Strategy(group=group)
            second = group.rank == 1
            for mistake in (
                    lambda: strategy.reduce("SUM", {"a": 1.0} if second else [1.0]),
                    lambda: strategy.reduce("SUM", np.zeros((2, 3) if second else (3, 2))),
                    lambda: strategy.reduce("SUM", 1) if second else strategy.gather([1], 0),
                    lambda: strategy.reduce("SUM", np.zeros(2, "f4" if second else "i4"))):
                with self.assertRaises(ValueError):
                    mistake()
            self.assertEqual(strategy.reduce("SUM", 1), 2)

        self.on_ranks(body)


class Variables(unittest.TestCase):
    def setUp(self):
        self.strategy = Strategy(local_replicas=3)

    def make(self, value, **options):
        with self.strategy.scope():
            return Variable(value, **options)

    def test_aggregations(self):
        values = PerReplica([10.0, 20.0, 30.0])
        for aggregation, want in (("SUM", [60] * 3), ("MEAN", [20] * 3),
                                  ("ONLY_FIRST_REPLICA", [10] * 3), ("NONE", [10, 20, 30])):
            variable = self.make(0.0, aggregation=aggregation)
            self.strategy.run(variable.assign, (values,))
            self.assertEqual([float(copy) for copy in variable.values], want)
        summed = self.make(np.zeros(2, "f4"), aggregation=distribute.VariableAggregation.SUM)
        self.strategy.run(lambda: summed.assign_add([1, 1]))
        self.assertEqual(summed.numpy().tolist(), [3, 3])
        self.assertEqual(summed.dtype, np.float32)

    def test_on_read(self):
        variable = self.make(lambda: 0.0, synchronization="ON_READ", aggregation="MEAN", name="m")
        self.strategy.run(lambda: variable.assign_sub(float(replica_id())))
        self.assertEqual(float(variable), -1)
        self.assertEqual(self.strategy.run(lambda: float(variable)).values, (0, -1, -2))

    def test_means_of_integers_are_refused(self):
        for value in (1, True, np.uint8(1)):
            for how in ("ON_WRITE", "ON_READ"):
                with self.assertRaisesRegex(ValueError, "variable 'steps' of .* has no MEAN; give"):
                    self.make(value, name="steps", aggregation=distribute.VariableAggregation.MEAN,
                              synchronization=how)
            self.assertEqual(self.make(value, dtype="float16", aggregation="MEAN").numpy(), 1)

    def test_like_an_array(self):
        variable = self.make([1.0, 2.0], dtype="float32")
        self.assertEqual((variable * 2 + 1).tolist(), [3, 5])
        self.assertEqual((1 - variable).dtype, np.float32)
        self.assertEqual(np.add(variable, variable).tolist(), [2, 4])
        self.assertEqual(variable.assign(variable * 3).numpy().tolist(), [3, 6])
        self.assertEqual(self.strategy.reduce("SUM", variable).tolist(), [9, 18])
        self.strategy.extended.update(variable, lambda copy, by: copy + by,
                                      (PerReplica([1, 2, 3]),))
        self.assertEqual([copy.tolist() for copy in variable.values], [[4, 7], [5, 8], [6, 9]])

    def test_wrong_values_are_named(self):
        variable = self.make([1.0, 2.0])
        with self.assertRaisesRegex(ValueError, r"f64\[2\], but the value is f64\[\]"):
            variable.assign(1.0)
        with self.assertRaisesRegex(RuntimeError, "no strategy's scope"):
            Variable(1.0)
        with self.assertRaisesRegex(ValueError, "aggregation 'AVG' is none"):
            self.make(1.0, aggregation="AVG")
        with self.assertRaisesRegex(ValueError, "synchronization NONE"):
            self.make(1.0, synchronization="NONE")

    def test_results_outlive_their_call(self):
        result = self.make(np.arange(1000.0)).value()
        gc.collect()
        np.testing.assert_array_equal(result, np.arange(1000.0))


class Data(unittest.TestCase):
    def test_rows_of_global_batches_as_tensorflow_shares_them(self):
        strategy = Strategy(local_replicas=4)
        batches = strategy.experimental_distribute_dataset(
            [(np.arange(8), np.arange(8.0)), (np.arange(2), np.arange(2.0))])
        got = [[x.tolist() for x in batch[0].values] for batch in batches]
        self.assertEqual(got, [[[0, 1], [2, 3], [4, 5], [6, 7]], [[0], [1], [], []]])
        with self.assertRaisesRegex(ValueError, "equally many rows"):
            list(strategy.experimental_distribute_dataset([(np.arange(8), np.arange(7))]))

    def test_batches_of_a_function(self):
        strategy = Strategy(local_replicas=4)
        batches = strategy.distribute_datasets_from_function(
            lambda context: (np.array([i]) for i in range(6)))
        got = [[x.tolist() for x in batch.values] for batch in batches]
        self.assertEqual(got, [[[0], [1], [2], [3]], [[4], [5], [], []]])

    def test_data_that_would_begin_again(self):
        """An iterator is not asked again after its end."""
        class Restarting:
            def __init__(self, batches):
                self.batches, self.left = batches, list(batches)

            def __iter__(self):
                return self

            def __next__(self):
                if self.left:
                    return self.left.pop(0)
                self.left = list(self.batches)
                raise StopIteration

        strategy = Strategy(local_replicas=2)
        of_replicas = strategy.distribute_datasets_from_function(
            lambda context: Restarting([np.array([i]) for i in range(3)]))
        shared = strategy.experimental_distribute_dataset(Restarting([np.arange(2)] * 3))
        for batches, expected in ((of_replicas, 2), (shared, 3)):
            self.assertEqual(len(list(itertools.islice(batches, 9))), expected)

    def test_batch_sizes(self):
        context = distribute.InputContext(1, 0, 4)
        self.assertEqual(context.get_per_replica_batch_size(8), 2)
        with self.assertRaisesRegex(ValueError, "10 is not divisible"):
            context.get_per_replica_batch_size(10)
        with self.assertRaises(TypeError):
            context.get_per_replica_batch_size(8.0)


class Devices(unittest.TestCase):
    def topology(self, x, y):
        tasks = [[[i, j, 0, core] for i in range(x) for core in range(2)] for j in range(y)]
        return distribute.Topology([x, y, 1, 2], tasks)

    def test_assignments(self):
        topology = self.topology(2, 2)
        assignment = distribute.DeviceAssignment.build(topology, [1, 1, 1, 2], num_replicas=4)
        self.assertEqual(assignment.core_assignment[:, 0, :2].tolist(),
                         [[0, 0], [1, 0], [1, 1], [0, 1]])
        self.assertEqual(assignment.num_cores_per_replica, 2)
        self.assertEqual(assignment.coordinates(2, 1), (1, 1, 0, 1))
        self.assertEqual(assignment.tpu_device(1, 1, "w"), "/job:w/task:0/device:GPU:3")
        self.assertEqual(assignment.host_device(2), "/task:1/device:CPU:0")
        self.assertEqual(assignment.lookup_replicas(1, 0), [2, 3])
        self.assertEqual(topology.missing_devices.shape, (0, 4))
        self.assertEqual(len(topology.ring_order()), 8)

    def test_wrong_assignments_are_value_errors(self):
        topology = self.topology(2, 2)
        build = distribute.DeviceAssignment.build
        for shape, replicas in (([1, 1, 1], 1), ([0, 1, 1, 1], 1), ([3, 1, 1, 1], 1),
                                ([1, 1, 1, 2], 5)):
            with self.assertRaises(ValueError):
                build(topology, shape, num_replicas=replicas)
        with self.assertRaises(IndexError):
            build(topology).coordinates(1, 0)
        with self.assertRaises(ValueError):
            build(topology).lookup_replicas(1, 0)
        with self.assertRaises(TypeError):
            distribute.Topology([1, 1, 1, 1.5], [[[0, 0, 0, 0]]])

    def test_logical_devices(self):
        topology = distribute.Topology([1, 1, 1, 4], [[[0, 0, 0, core] for core in range(4)]])
        assignment = distribute.DeviceAssignment.build(topology, [1, 1, 1, 2], num_replicas=2)
        strategy = Strategy(None, assignment)
        self.assertEqual(strategy.num_replicas_in_sync, 2)
        x = np.arange(8).reshape(2, 4)
        parts = strategy.experimental_split_to_logical_devices(x, [1, 2])
        self.assertEqual([name for name, _ in parts],
                         ["/job:worker/task:0/device:GPU:0", "/job:worker/task:0/device:GPU:1"])
        self.assertEqual(parts[1][1].tolist(), [[2, 3], [6, 7]])
        name = strategy.run(lambda: strategy.experimental_assign_to_logical_device(x, 1)[0])
        self.assertEqual(name.values[1], "/job:worker/task:0/device:GPU:3")
        self.assertEqual(len(strategy.experimental_replicate_to_logical_devices(x)), 2)
        with strategy.extended.experimental_logical_device(1):
            self.assertEqual(strategy.extended.worker_devices[0], "/job:worker/task:0/device:GPU:1")
        for wrong in ([1, 3], [2], [2, 2]):
            with self.assertRaises(ValueError):
                strategy.experimental_split_to_logical_devices(x, wrong)
        with self.assertRaisesRegex(ValueError, "out of range"):
            strategy.experimental_assign_to_logical_device(x, 2)


class Resolvers(unittest.TestCase):
    def test_tf_config(self):
        with mock.patch.dict("os.environ", {"TF_CONFIG": CHIEF % 1}):
            resolver = resolvers.TFConfigClusterResolver()
            self.assertEqual(resolver.placement(), {"rank": 2, "world_size": 3, "is_chief": False,
                                                    "leader": "h0:1"})
            self.assertEqual((resolver.task_type, resolver.task_id), ("worker", 1))
            self.assertEqual(resolver.master("worker", 0, "grpc"), "grpc://h1:1")
            self.assertEqual(resolver.cluster_spec().as_dict(),
                             {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"]})
        for text, words in (("{", "TF_CONFIG is not JSON"),
                            (CHIEF % 5, "task_id 5 is out of range")):
            with mock.patch.dict("os.environ", {"TF_CONFIG": text}):
                with self.assertRaisesRegex(ValueError, words):
                    resolvers.TFConfigClusterResolver().placement()

    def test_slurm(self):
        step = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NODELIST": "n[2,10]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
        with mock.patch.dict("os.environ", step):
            resolver = resolvers.SlurmClusterResolver(gpus_per_node=0)
            self.assertEqual(resolver.cluster_spec().as_dict(), {"worker": ["n2:8888", "n10:8888"]})
            self.assertEqual(resolver.get_task_info(), ("worker", 1))
            by_name = resolvers.SlurmClusterResolver(gpus_per_node=0, sort_nodes=True)
            self.assertEqual(by_name.master(), "grpc://n2:8888")
        with self.assertRaisesRegex(RuntimeError, "SLURM_PROCID is not set"):
            resolvers.SlurmClusterResolver()

    def test_unions(self):
        def simple(tasks):
            return resolvers.SimpleClusterResolver(resolvers.ClusterSpec({"worker": tasks}))

        union = resolvers.UnionClusterResolver(simple(["a:1"]), simple(["b:1", "c:1"]))
        self.assertEqual(union.cluster_spec().as_dict(), {"worker": ["a:1", "b:1", "c:1"]})
        with self.assertRaisesRegex(KeyError, "task 3"):
            resolvers.UnionResolver(simple({3: "a:1"}), simple({3: "b:1"})).cluster_spec()
        with self.assertRaises(ValueError):
            resolvers.UnionResolver()
        with self.assertRaises(TypeError):
            resolvers.UnionResolver("a:1")

    def test_others(self):
        rank = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
        with mock.patch.dict("os.environ", rank):
            self.assertEqual(resolvers.TorchrunClusterResolver().placement()["rank"], 1)
        mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        with mock.patch.dict("os.environ", mpi):
            self.assertEqual(resolvers.MPIClusterResolver("h:1").master(), "h:1")
        with self.assertRaises(tutti.Error):
            resolvers.KubernetesClusterResolver({"worker": ["no-such.invalid"]}).cluster_spec()

    def test_cluster_specs(self):
        spec = resolvers.ClusterSpec({"ps": {2: "p:1"}, "worker": ["a:1"]})
        self.assertEqual(spec.as_dict(), {"ps": {2: "p:1"}, "worker": ["a:1"]})
        self.assertEqual((spec.num_tasks("ps"), spec.task_indices("ps")), (1, [2]))
        self.assertEqual(spec.task_address("ps", 2), "p:1")
        for wrong in (lambda: spec.task_address("ps", 0), lambda: spec.num_tasks("chief")):
            self.assertRaises(ValueError, wrong)
        for wrong in (3, {1: ["a"]}, {"a": 3}, {"a": [3]}, {"a": {"b": "c"}}):
            with self.assertRaises(TypeError):
                resolvers.ClusterSpec(wrong)
        with self.assertRaises(TypeError):
            resolvers.SimpleClusterResolver({"worker": ["a:1"]})

        sparse = resolvers.ClusterSpec({"ps": {2: "p:1", 0: "p:0"}, "worker": []})
        self.assertEqual(sparse.job_tasks("ps"), ["p:0", None, "p:1"])
        self.assertEqual(sparse.job_tasks("worker"), [])
        self.assertRaises(ValueError, sparse.job_tasks, "chief")

    def test_tasks_that_are_set(self):
        with mock.patch.dict("os.environ", {"TF_CONFIG": CHIEF % 1}):
            spec = resolvers.TFConfigClusterResolver().cluster_spec()
            simple = resolvers.SimpleClusterResolver(spec, "m:1", "worker", 1, rpc_layer="grpc")
            for resolver in (simple, resolvers.TFConfigClusterResolver(),
                             resolvers.UnionResolver(simple)):
                resolver.task_type, resolver.task_id, resolver.rpc_layer = "chief", 0, "http"
                self.assertEqual((resolver.task_type, resolver.task_id, resolver.rpc_layer),
                                 ("chief", 0, "http"))
                self.assertTrue(resolver.placement()["is_chief"])
                self.assertEqual(resolver.cluster_spec(), spec)
                self.assertEqual(resolver.master("worker", 0), "http://h1:1")
                resolver.rpc_layer = None
                self.assertIsNone(resolver.rpc_layer)
            with self.assertRaises(ValueError):
                simple.task_id = "first"
            self.assertEqual(simple.task_id, 0)
        kubernetes = resolvers.KubernetesClusterResolver()
        kubernetes.task_type, kubernetes.task_id = "worker", 3
        self.assertEqual((kubernetes.task_type, kubernetes.task_id), ("worker", 3))
        with self.assertRaisesRegex(AttributeError, "UnionResolver"):
            resolvers.MPIClusterResolver().task_id = 1

    def test_defaults_of_strategies(self):
        alone = Strategy().cluster_resolver
        self.assertEqual((alone.task_type, alone.task_id, alone.cluster_spec().as_dict()),
                         (None, None, {}))
        config = '{"cluster":{"worker":["h:1"]},"task":{"type":"worker","index":0}}'
        with mock.patch.dict("os.environ", {"TF_CONFIG": config}):
            own = Strategy().cluster_resolver
            self.assertIsInstance(own, resolvers.TFConfigClusterResolver)
            self.assertEqual((own.task_type, own.task_id), ("worker", 0))
            given = resolvers.SimpleClusterResolver(resolvers.ClusterSpec({}))
            self.assertIs(Strategy(given).cluster_resolver, given)
        launch = {"TUTTI_RANK": "0", "TUTTI_WORLD_SIZE": "1", "RANK": "0", "WORLD_SIZE": "1",
                  "MASTER_ADDR": "h", "MASTER_PORT": "7"}
        with mock.patch.dict("os.environ", launch):
            own = resolvers.default_resolver(0, 1, from_variables=True)
            self.assertEqual((own.task_type, own.task_id, own.cluster_spec().as_dict()),
                             ("worker", 0, {"worker": ["h:7"]}))
            os.environ.update(RANK="1", WORLD_SIZE="2")  # Of another launcher than TUTTI_RANK.
            own = resolvers.default_resolver(0, 2, from_variables=True)
            self.assertEqual((own.task_id, own.placement()["rank"]), (0, 0))

    def test_any_object_that_tells_a_cluster(self):
        class Theirs:
            task_type, task_id = "worker", 0

            def cluster_spec(self):
                return resolvers.ClusterSpec({"worker": ["a:1"]})

        self.assertEqual(Strategy(Theirs()).num_replicas_in_sync, 1)


if __name__ == "__main__":
    unittest.main()
