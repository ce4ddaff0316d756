"""tutti.distribute beside tf.distribute itself, with seeded random cases: a MirroredStrategy on
logical CPU devices, device assignments, resolvers and cluster specs. Both must give the same, or
both refuse. Run by tests/tensorflow/run, with the Python that has TensorFlow."""

import gc
import itertools
import json
import random
import sys
import unittest
import warnings
from unittest import mock

import numpy as np
import tensorflow as tf
from devices import logical_cpus
from tensorflow.python.tpu import device_assignment, topology

import tutti
from tutti import distribute
from tutti.distribute import cluster_resolver as resolvers

REPLICAS = (2, 3, 4)
CPUS = logical_cpus()
THEIRS = tf.distribute.cluster_resolver
REFUSED = "refused"


OURS = (ValueError, TypeError, NotImplementedError, tutti.Error)  # What our calls may raise.


def outcome(call, errors=Exception):
    """What a call returns, or that it refuses by one of these errors. Theirs are of many."""
    try:
        return call()
    except errors:
        return REFUSED


def array_of(rng, shape, dtype):
    """An array of small whole numbers, whose sums are exact."""
    numbers = [rng.randint(-99, 99) for _ in range(int(np.prod(shape)))]
    return np.array(numbers, dtype).reshape(shape)


def shapes_of(rng, replicas, free_axis):
    """A shape for each replica, which differ along one axis at most; sometimes a wrong one."""
    rank = rng.randint(0, 3)
    shape = [rng.choice((1, 1, 2, 3, 5)) for _ in range(rank)]
    shapes = [list(shape) for _ in range(replicas)]
    if free_axis is not None and -rank <= free_axis < rank and rng.random() < 0.7:
        for each in shapes:
            each[free_axis] = rng.choice((0, 1, 2, 3, 7))
    if rank and rng.random() < 0.1:
        shapes[-1][rng.randrange(rank)] += 1
    return shapes


class Oracle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Its own choice, collective operations, fail for good after a first failure.
        cls.strategies = {count: (tf.distribute.MirroredStrategy(
            CPUS[:count], tf.distribute.ReductionToOneDevice()),
                                  distribute.Strategy(local_replicas=count)) for count in REPLICAS}

    @classmethod
    def tearDownClass(cls):
        cls.strategies.clear()
        gc.collect()

    def cases(self, name, count):
        """(number of the case, its random numbers), within a subtest of that number."""
        refused = 0
        for number in range(count):
            with self.subTest(name, number=number):
                refused += self.case(name, random.Random(f"{name} {number}"))
        self.assertLess(refused, 0.5 * count, "most cases test nothing but refusals")

    def case(self, name, rng):
        theirs, ours, exact = getattr(self, name)(rng)
        theirs, ours = outcome(theirs), outcome(ours, OURS)
        if theirs is REFUSED or ours is REFUSED:
            self.assertIs(ours, theirs)
            return 1
        for one, other in zip(tf.nest.flatten(theirs), tf.nest.flatten(ours), strict=True):
            one, other = np.asarray(one), np.asarray(other)
            self.assertEqual(one.shape, other.shape)
            if one.dtype.kind == "f" and not exact:
                np.testing.assert_allclose(other, one, rtol=4 * np.finfo(one.dtype).eps)
            else:
                np.testing.assert_array_equal(other, one)
        return 0

    def values(self, rng, free_axis=None, dtypes=("f4", "f8", "i4", "i8")):
        """Both strategies, and the same values of their replicas."""
        theirs, ours = self.strategies[rng.choice(REPLICAS)]
        dtype = rng.choice(dtypes)
        arrays = [array_of(rng, shape, dtype)
                  for shape in shapes_of(rng, ours.num_replicas_in_sync, free_axis)]
        value = theirs.experimental_distribute_values_from_function(
            lambda context: tf.constant(arrays[context.replica_id_in_sync_group]))
        return theirs, ours, value, distribute.PerReplica(arrays)

    def reduction(self, rng):
        op, axis = rng.choice(("SUM", "MEAN")), rng.choice((None, None, 0, 0, 1, 2, -1))
        dtypes = ("f4", "f8") if op == "MEAN" else ("f4", "f8", "i4", "i8")
        theirs, ours, value, own = self.values(rng, axis, dtypes)
        return (lambda: theirs.reduce(op, value, axis), lambda: ours.reduce(op, own, axis),
                op == "SUM")

    def gathering(self, rng):
        axis = rng.choice((0, 0, 0, 1, 1, 2))
        theirs, ours, value, own = self.values(rng, axis)
        return lambda: theirs.gather(value, axis), lambda: ours.gather(own, axis), True

    def all_reduction(self, rng):
        op = rng.choice(("SUM", "MEAN"))
        theirs, ours, value, own = self.values(rng, dtypes=("f4", "f8"))

        def step(library, strategy, x):
            def replica(x):
                context = library.get_replica_context()
                return context.all_reduce(op, {"x": x, "y": [x + x]})

            results = strategy.run(replica, args=(x,))
            return [strategy.experimental_local_results(result)
                    for result in (results["x"], results["y"][0])]

        return (lambda: step(tf.distribute, theirs, value), lambda: step(distribute, ours, own),
                op == "SUM")

    def assignment(self, rng):
        mesh = [rng.choice((1, 2, 2, 3, 4)), rng.choice((1, 1, 2, 4)), rng.choice((1, 1, 2)),
                rng.choice((1, 2, 2))]
        points = [list(point) for point in itertools.product(*map(range, mesh))]
        tasks = rng.choice([count for count in (1, 2, 3, 4) if len(points) % count == 0])
        if rng.random() < 0.1 and len(points) > tasks:
            del points[-tasks:]  # Missing devices.
        by_task = [points[task::tasks] for task in range(tasks)]
        shape = None if rng.random() < 0.2 else [
            rng.choice((1, 1, 1, size)) for size in mesh[:3]] + [rng.choice((1, mesh[3]))]
        stride = None if rng.random() < 0.7 else [rng.choice((1, 1, 1, 2)) for _ in mesh]
        fitting = len(points) // int(np.prod(shape or 1))
        replicas = rng.choice((1, fitting, fitting, rng.randint(1, fitting + 1)))
        mode = rng.choice(("AUTO", "AUTO", "RING", "MESH"))

        def theirs():
            made = topology.Topology(mesh_shape=mesh, device_coordinates=np.array(by_task))
            return device_assignment.device_assignment(
                made, shape, stride, replicas,
                getattr(device_assignment.DeviceOrderMode, mode)).core_assignment

        def ours():
            return distribute.DeviceAssignment.build(
                distribute.Topology(mesh, by_task), shape, stride, replicas,
                distribute.DeviceOrderMode[mode]).core_assignment

        return theirs, ours, True

    def tf_config(self, rng):
        jobs = rng.sample(("chief", "worker", "ps", "evaluator"), rng.randint(0, 3))
        cluster = {job: [f"{job}{i}:{rng.randint(1, 9)}" for i in range(rng.randint(1, 3))]
                   for job in jobs}
        config = {"cluster": cluster} if rng.random() < 0.9 else {}
        if jobs and rng.random() < 0.9:
            job = rng.choice(jobs)
            config["task"] = {"type": job, "index": rng.randrange(len(cluster[job]))}
        config |= {"rpc_layer": "grpc"} if rng.random() < 0.3 else {}
        config |= {"session_master": "m:1"} if rng.random() < 0.1 else {}
        named = (rng.choice(("worker", "ps")), rng.randrange(3)) if rng.random() < 0.3 else ()
        new = rng.choice((None, None, ("worker", 0, "http"), ("chief", 0, None)))

        def told_by(library, errors):
            with mock.patch.dict("os.environ", {"TF_CONFIG": json.dumps(config)}):
                resolver = library.TFConfigClusterResolver()
                if new is not None:
                    resolver.task_type, resolver.task_id, resolver.rpc_layer = new
                spec = resolver.cluster_spec()
                return json.dumps([spec.as_dict(), resolver.task_type, resolver.task_id,
                                   resolver.rpc_layer or None,
                                   outcome(lambda: resolver.master(*named), errors)],
                                  sort_keys=True)

        return lambda: told_by(THEIRS, Exception), lambda: told_by(resolvers, OURS), True

    def simple(self, rng):
        cluster = {"worker": [f"w{i}:1" for i in range(rng.randint(1, 3))], "ps": ["p:1"]}
        options = {"master": rng.choice(("", "m:1")), "task_type": rng.choice((None, "worker")),
                   "task_id": rng.choice((None, 0, 1)), "rpc_layer": rng.choice((None, "grpc"))}
        named = rng.choice(((), ("worker", 0), ("ps", 1), ("worker", 1, "http")))
        united = rng.random() < 0.3
        new = rng.choice((None, ("ps", 2, "http")))  # With 0, theirs takes that of a union's part.

        def told_by(library, errors, spec, union):
            resolver = library.SimpleClusterResolver(spec(cluster), **options)
            resolver = union(resolver, resolver) if united else resolver
            if new is not None:
                resolver.task_type, resolver.task_id, resolver.rpc_layer = new
            return json.dumps([resolver.cluster_spec().as_dict(), resolver.task_type,
                               resolver.task_id, resolver.rpc_layer,
                               outcome(lambda: resolver.master(*named), errors)], sort_keys=True)

        return (lambda: told_by(THEIRS, Exception, tf.train.ClusterSpec, THEIRS.UnionResolver),
                lambda: told_by(resolvers, OURS, resolvers.ClusterSpec,
                                resolvers.UnionResolver), True)

    def cluster_spec(self, rng):
        def tasks(job):
            addresses = [f"{job}{i}:1" for i in range(rng.randint(1, 4))]
            if rng.random() < 0.4:
                return dict(zip(rng.sample(range(6), len(addresses)), addresses))
            return addresses if rng.random() < 0.95 else rng.choice((3, [3], None))

        cluster = {job: tasks(job) for job in rng.sample(("worker", "ps", "x"), rng.randint(0, 3))}
        job, index = rng.choice(("worker", "ps", "x")), rng.randrange(5)

        def told_by(kind, errors):
            spec = kind(cluster)
            calls = (spec.num_tasks, spec.task_indices, spec.job_tasks)
            return repr([spec.as_dict(), sorted(spec.jobs), bool(spec), spec == kind(spec),
                         *(outcome(lambda call=call: call(job), errors) for call in calls),
                         outcome(lambda: spec.task_address(job, index), errors)])

        return (lambda: told_by(tf.train.ClusterSpec, Exception),
                lambda: told_by(resolvers.ClusterSpec, OURS), True)

    def test_reductions(self):
        self.cases("reduction", 250)

    def test_gathers(self):
        self.cases("gathering", 150)

    def test_reductions_within_replicas(self):
        self.cases("all_reduction", 80)

    def test_assignments(self):
        self.cases("assignment", 300)

    def test_resolvers(self):
        self.cases("tf_config", 150)
        self.cases("simple", 100)

    def test_cluster_specs(self):
        self.cases("cluster_spec", 200)

    def test_specs_of_theirs_are_taken(self):
        theirs = tf.train.ClusterSpec({"worker": {1: "a:1"}})
        self.assertEqual(resolvers.ClusterSpec(theirs).as_dict(), {"worker": {1: "a:1"}})


class ForeignVariables(unittest.TestCase):
    def warnings_of(self, strategy):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with strategy.scope():
                tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        return [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]

    def test_models_in_a_scope_are_warned_of(self):
        several = distribute.Strategy(local_replicas=2)
        with mock.patch.dict("sys.modules"):
            sys.modules.pop("tutti.tensorflow", None)
            self.assertEqual(self.warnings_of(distribute.Strategy()), [])
            told = self.warnings_of(several)
            self.assertIn("tutti.tensorflow.DistributedOptimizer", told[0])
            sys.modules["tutti.tensorflow"] = None
            self.assertEqual(self.warnings_of(several), [])


if __name__ == "__main__":
    unittest.main()
