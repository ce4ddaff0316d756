"""Every public object is copied right by copy, deepcopy and pickle, or refuses with a TypeError
that names its class and says what to do."""

import copy
import gc
import importlib
import inspect
import pickle
import unittest

import numpy as np
from ranks import RanksTest

import tutti
from tutti import average_gradients, burn, cross_device, distribute
from tutti.distribute import cluster_resolver

_WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy,
         **{f"pickle {protocol}": lambda x, protocol=protocol: pickle.loads(
             pickle.dumps(x, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)}}
_TOPOLOGY = ([1, 1, 1, 2], [[[0, 0, 0, 0], [0, 0, 0, 1]]])


def _resolvers():
    spec = cluster_resolver.ClusterSpec({"worker": ["a:1", "b:1"]})
    simple = cluster_resolver.SimpleClusterResolver(spec)
    return [simple, cluster_resolver.UnionResolver(simple),
            cluster_resolver.TFConfigClusterResolver(), cluster_resolver.MPIClusterResolver(),
            cluster_resolver.TorchrunClusterResolver(),
            cluster_resolver.KubernetesClusterResolver({"worker": ["s"]})]


def _of_strategy(strategy):
    """Objects that refuse: a strategy and what it makes."""
    with strategy.scope():
        variable = distribute.Variable(np.arange(3.0), name="v")
    batches = [np.arange(4.0)]
    return [strategy, strategy.extended, variable,
            strategy.experimental_distribute_dataset(batches),
            strategy.distribute_datasets_from_function(lambda _: batches)]


def _plain():
    """(object, its values) of classes that can be copied."""
    host, link = distribute.Host("a", (0,), 2, 1, 0), distribute.Link(50.0, 1e9)
    topology = distribute.Topology(*_TOPOLOGY, hosts=[host], links={("a", "a"): link})
    return [
        (host, repr), (link, repr),
        (distribute.PerReplica([np.arange(2.0), 3.0]), lambda x: [*map(np.ndarray.tolist, map(
            np.asarray, x.values)), x.devices]),
        (cross_device.Mirrored([np.arange(2.0)]), lambda x: [x.primary.tolist(), x.devices]),
        (cross_device.IndexedSlices(np.ones((1, 2)), np.array([3]), (5, 2)),
         lambda x: (x.values.tolist(), x.indices.tolist(), x.dense_shape)),
        (cross_device.CommunicationOptions(7, 2.5, "RING"), repr),
        (cross_device.ReduceOp.MEAN, repr), (cross_device.CommunicationImplementation.NCCL, repr),
        (distribute.VariableAggregation.SUM, repr),
        (distribute.VariableSynchronization.ON_READ, repr),
        (distribute.DeviceOrderMode.RING, repr),
        (distribute.InputContext(2, 1, 4), lambda x: (repr(x), x.get_per_replica_batch_size(8))),
        (distribute.ValueContext(1, 2), repr),
        (topology, lambda x: (x.device_coordinates.tolist(), x.ring_order(), x.hosts, x.links)),
        (distribute.DeviceAssignment.build(topology, num_replicas=2),
         lambda x: (x.core_assignment.tolist(), x.lookup_replicas(0, 0))),
        (cluster_resolver.ClusterSpec({"worker": ["a:1"], "ps": {3: "b:1"}}),
         cluster_resolver.ClusterSpec.as_dict),
        (burn.CollectiveConfig(num_devices=3).with_local_reduce_strategy("ring"), repr),
        (burn.ReduceOperation.Mean, repr),
        (tutti.Error("UNAVAILABLE", "gone", 3, "a"), lambda x: (str(x), vars(x))),
        *((kind("INVALID_ARGUMENT", "Other: no"), lambda x: (str(x), vars(x)))
          for kind in vars(burn).values()
          if inspect.isclass(kind) and issubclass(kind, burn.CollectiveError)),
        (burn.AllReduceStrategy.Tree(2), type)]


class Copies(RanksTest):
    def assert_refuses(self, thing):
        for way, duplicate in _WAYS.items():
            with self.subTest(type(thing).__name__, way=way):
                with self.assertRaises(TypeError) as caught:
                    duplicate(thing)
                self.assertIn(type(thing).__name__, str(caught.exception))
                self.assertRegex(str(caught.exception), "neither copied nor pickled; .{12}")

    def assert_copies(self, thing, values):
        for way, duplicate in _WAYS.items():
            with self.subTest(type(thing).__name__, way=way):
                other = duplicate(thing)
                self.assertIs(type(other), type(thing))
                self.assertEqual(values(other), values(thing))

    def test_plain_objects_are_copied(self):
        for thing, values in _plain():
            self.assert_copies(thing, values)

    def test_a_deep_copy_shares_nothing(self):
        for make in (copy.deepcopy, _WAYS["pickle 4"]):
            value = distribute.PerReplica([np.arange(2.0)])
            other = make(value)
            other.values[0][...] = 7
            self.assertEqual(value.values[0].tolist(), [0, 1])
            del value
            gc.collect()
            self.assertEqual(other.values[0].tolist(), [7, 7])

    def test_resolvers_refuse(self):
        for resolver in _resolvers():
            self.assert_refuses(resolver)
            self.assertIsInstance(repr(resolver), str)

    def test_what_belongs_to_a_process_refuses(self):
        strategy = distribute.Strategy(local_replicas=2)
        for thing in _of_strategy(strategy):
            self.assert_refuses(thing)
            with self.assertRaises(TypeError):  # Within others, too.
                copy.deepcopy({"a": [thing]})
        strategy.run(lambda: self.assert_refuses(distribute.get_replica_context()))
        for thing in (burn.Collective(), cross_device.HierarchicalCopyAllReduce(),
                      cross_device.ReductionToOneDevice()):
            self.assert_refuses(thing)

    def test_a_variable_keeps_its_value(self):
        strategy = distribute.Strategy()
        with strategy.scope():
            variable = distribute.Variable(np.arange(3.0))
        saved = pickle.loads(pickle.dumps(variable.numpy()))
        self.assert_refuses(variable)
        variable.assign(np.full(3, 7.0))
        del strategy
        gc.collect()
        self.assertEqual(variable.numpy().tolist(), [7, 7, 7])
        self.assertEqual(variable.assign(saved).numpy().tolist(), [0, 1, 2])

    def test_results_are_copied_and_outlive_what_made_them(self):
        ops = cross_device.ReductionToOneDevice()
        result = ops.reduce("SUM", cross_device.PerReplica([np.ones(3)] * 2), "/device:CPU:0")
        for way, duplicate in _WAYS.items():
            with self.subTest(way=way):
                other = duplicate(result)
                other[...] = 5
                self.assertEqual(result.tolist(), [2, 2, 2])
        del ops
        gc.collect()
        self.assertEqual(result.tolist(), [2, 2, 2])

    def test_groups_and_works_refuse(self):
        def body(group):
            work = group.all_reduce(np.ones(3), blocking=False)
            works = group.all_reduce_many([np.ones(3)], blocking=False)
            for thing in (group, work, works, group.subgroup([0, 1])):
                self.assert_refuses(thing)
            work.wait()
            works.wait()
            strategy = distribute.Strategy(group=group)
            for thing in _of_strategy(strategy):
                self.assert_refuses(thing)
            self.assertEqual(group.all_reduce(np.ones(2)).tolist(), [2, 2])

        self.on_ranks(body)

    def test_arrays_of_empty_are_copied(self):
        def body(group):
            for name in ("f32", "bf16", "bool"):
                x = group.empty((2, 2), name)
                x[...] = 1
                for way, duplicate in _WAYS.items():
                    other = duplicate(x)
                    self.assertEqual(tutti._dtype.dtype_name(other.dtype), name, way)
                    other[...] = 0
                    self.assertTrue((x == 1).all())
                    self.assertEqual(group.broadcast(other).tolist(), [[0, 0], [0, 0]])

        self.on_ranks(body)

    def test_every_public_class_is_in_these_tests(self):
        """One that is new must be added to those that are copied, or to those that refuse."""
        unique = tutti._handle.Unique
        copied = {type(thing) for thing, _ in _plain()}
        modules = [tutti, average_gradients, burn, cross_device, distribute]
        public = [value for module in modules for name in module.__all__
                  if inspect.isclass(value := getattr(module, name))]
        public += [value for value in vars(cluster_resolver).values() if inspect.isclass(value)
                   and value.__module__ == cluster_resolver.__name__]
        for kind in public:
            with self.subTest(kind.__name__):
                self.assertTrue(kind in copied or issubclass(kind, unique))


class Torch(unittest.TestCase):
    def test_the_backend_and_its_works_refuse(self):
        try:
            torch_of_tutti = importlib.import_module("tutti.torch._work")
        except ImportError:
            self.skipTest("torch is not installed")
        backend = importlib.import_module("tutti.torch._backend")
        for kind in (torch_of_tutti.Handle, torch_of_tutti.TuttiWork, backend.TuttiBackend):
            self.assertTrue(issubclass(kind, tutti._handle.Unique))
        error = torch_of_tutti.BackendError("UNAVAILABLE", "gone", 1)
        for duplicate in _WAYS.values():
            self.assertEqual(str(duplicate(error)), str(error))


if __name__ == "__main__":
    unittest.main()
