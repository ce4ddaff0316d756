"""Tensors of TensorFlow and JAX themselves: values and dtypes of results, and what is refused by
name. Run by tests/tensorflow/run, with the Python that has them."""

import collections
import os
import subprocess
import sys
import unittest
from unittest import mock

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # Read by jax.devices().

import jax
import jax.experimental.sparse
import jax.numpy as jnp
import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

import tutti
from tutti import burn, cross_device, distribute
from tutti.average_gradients import average_gradients

_State = collections.namedtuple("_State", "count mean")


def _numpy(x):
    """An array of NumPy. TensorFlow's own __array__ fails for a single bfloat16."""
    return np.asarray(x.numpy() if isinstance(x, tf.Tensor) else x)


@jax.tree_util.register_pytree_node_class
class _Box:
    """A class of a program, with a value and what is no value."""

    def __init__(self, value, name):
        self.value, self.name = value, name

    def tree_flatten(self):
        return (self.value,), self.name

    @classmethod
    def tree_unflatten(cls, name, values):
        return cls(*values, name)


@jax.tree_util.register_static
class _Static:
    """A class of a program without values."""

    def __repr__(self):
        return ""


class Libraries(unittest.TestCase):
    def calls(self, x):
        """{name: a call of each face with x}, whose result is x, or twice x."""
        strategy = distribute.Strategy(local_replicas=2)
        ops = cross_device.ReductionToOneDevice()
        collective = burn.Collective()
        collective.register(0, "cpu", burn.CollectiveConfig())
        value = cross_device.PerReplica([x, x])

        def variable():
            with strategy.scope():
                return distribute.Variable(x).value()

        def replica():
            context = distribute.get_replica_context()
            return context.all_reduce("SUM", {"x": x})["x"]

        return {"reduce": lambda: strategy.reduce("SUM", value),
                "all_reduce": lambda: strategy.run(replica).values[1],
                "cross_device": lambda: ops.reduce("SUM", value, "/device:CPU:0"),
                "batch_reduce": lambda: ops.batch_reduce("SUM", [(value, value)])[0].values[1],
                "broadcast": lambda: ops.broadcast(x, ["/device:CPU:0", "/device:CPU:1"]).primary,
                "average_gradients": lambda: average_gradients([[x], [x]])[0],
                "burn": lambda: collective.all_reduce(0, x), "Variable": variable}

    def assert_equal(self, tensor, values):
        self.assertEqual(np.asarray(tensor).tolist(), values)

    def assert_refused(self, code, words, call):
        """As an Error, or as what tf.function makes of one."""
        with self.assertRaises(Exception) as caught:
            call()
        self.assertRegex(str(caught.exception), words)
        self.assertRegex(str(caught.exception), code)

    def test_results_are_of_the_library_of_the_value(self):
        kinds = {tf.Tensor: (tf.constant, tf.Variable, lambda *a: keras.Variable(*a)),
                 jax.Array: (jnp.array,), np.ndarray: (np.array,)}
        for kind, makers in kinds.items():
            for make in makers:
                for values in ([1.0, 3.0], [[1.0], [3.0]], 2.0, np.ones((0, 2), "float32")):
                    for dtype in ("float32", "float16", "bfloat16"):
                        self.expect_kind(kind, make(np.array(values, dtype)), dtype)

    def expect_kind(self, kind, x, dtype):
        value = tf.convert_to_tensor(x) if hasattr(x, "assign") else x
        expected = np.asarray(_numpy(value), "float32")
        for name, call in self.calls(x).items():
            with self.subTest(name, of=type(x), dtype=dtype):
                result = call()
                self.assertIsInstance(result, kind)
                once = name in ("broadcast", "average_gradients", "burn", "Variable")
                self.assertEqual(_numpy(result).dtype, np.dtype(dtype))
                np.testing.assert_array_equal(_numpy(result).astype("float32"),
                                              expected if once else 2 * expected, strict=True)

    def test_no_library_is_imported_that_the_program_has_not(self):
        program = """if True:
            import sys
            import numpy
            from tutti import burn, cross_device, distribute
            from tutti.average_gradients import average_gradients
            cross_device.ReductionToOneDevice().reduce("SUM", numpy.ones(2), "/device:CPU:0")
            average_gradients([[1.0]])
            distribute.Strategy().reduce("SUM", {"a": numpy.ones(2)})
            assert not {"tensorflow", "jax", "torch", "keras"} & set(sys.modules)
            """
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_wide_elements_of_jax_are_not_cut(self):
        with jax.enable_x64(True):
            x = jnp.array([1 + 2**-40])
        for call in self.calls(x).values():
            self.assertEqual(call().dtype, "float64")
        self.assertIn(float(self.calls(x)["cross_device"]()[0]), [2 + 2**-39])

    def test_slices_of_tensorflow(self):
        ops = cross_device.HierarchicalCopyAllReduce()
        for shape in ([5, 2], None):
            x = tf.IndexedSlices(tf.constant([[1., 2.], [3., 4.]]), tf.constant([4, 1]),
                                 None if shape is None else tf.constant(shape))
            value = cross_device.PerReplica([x, x])
            for result, rows, indices in (
                    (ops.reduce("SUM", value, value).values[1], [[1, 2], [3, 4]] * 2, [4, 1] * 2),
                    (ops.batch_reduce("MEAN", [(value, x)])[0], [[.5, 1], [1.5, 2]] * 2,
                     [4, 1] * 2),
                    (ops.broadcast(x, "/device:CPU:0"), [[1, 2], [3, 4]], [4, 1]),
                    (average_gradients([[x], [x]])[0], [[3, 4], [1, 2]], [1, 4])):
                self.assertIsInstance(result, tf.IndexedSlices)
                self.assertEqual(result.values.numpy().tolist(), rows)
                self.assertEqual(result.indices.numpy().tolist(), indices)
                self.assertEqual((result.values.dtype, result.indices.dtype),
                                 (tf.float32, tf.int32))
                self.assertEqual(shape, shape and result.dense_shape.numpy().tolist())
        x = tf.IndexedSlices(x.values, x.indices, [5, 2])
        mixed = ops.reduce("SUM", cross_device.PerReplica([x, tf.ones((5, 2))]), "/device:CPU:0")
        self.assertEqual(mixed.numpy().tolist(), [[1, 1], [4, 5], [1, 1], [1, 1], [2, 3]])
        self.assertIsInstance(mixed, tf.Tensor)
        for face in ("reduce", "burn", "Variable"):
            self.assert_refused("INVALID_ARGUMENT", "IndexedSlices is no tensor; pass tf.convert_",
                                self.calls(x)[face])

    def test_what_is_no_array_is_refused_with_the_remedy(self):
        mesh = jax.sharding.Mesh(jax.devices()[:2], "a")
        spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
        for words, x in (
                (r"spread over 2 devices; pass jax.device_get\(x\)",
                 jax.device_put(jnp.ones(2), spread)),
                (r"BCOO is no tensor; pass x.todense\(\)",
                 jax.experimental.sparse.BCOO.fromdense(jnp.ones(2))),
                (r"jax.random.key_data\(", jax.random.key(0)),
                (r"SparseTensor is no tensor; pass tf.sparse.to_dense\(x\)",
                 tf.sparse.from_dense([1., 0.])),
                (r"RaggedTensor is no tensor; pass x.to_tensor\(\)",
                 tf.ragged.constant([[1.], [1., 2.]])),
                ("'string' is none of .*; pass numbers", tf.constant("text"))):
            for face, call in self.calls(x).items():
                with self.subTest(face, of=type(x)):
                    self.assertRaisesRegex(ValueError, words, call)
                    self.assertRaisesRegex(tutti.Error, words, call)

    def test_pytrees(self):
        tree = {"state": _State(jnp.int32(1), [None, jnp.ones(2)]), "none": None,
                "box": _Box(jnp.ones(1), "static")}
        result = distribute.Strategy(local_replicas=2).reduce(
            "SUM", jax.tree.map(lambda x: cross_device.PerReplica([x, x + 1]), tree))
        self.assertEqual(jax.tree.structure(result), jax.tree.structure(tree))
        jax.tree.map(lambda x, y: self.assert_equal(x, (2 * y + 1).tolist()), result, tree)
        self.assertEqual(result["box"].name, "static")
        strategy = distribute.Strategy(local_replicas=2)
        own = strategy.run(lambda tree: distribute.get_replica_context().all_reduce("SUM", tree),
                           args=(tree,))
        self.assertEqual([float(x[0]) for x in own["box"].value.values], [2, 2])
        self.assertEqual(distribute._nest.describe([_Box(1, "static"), _Static()]),
                         "[_Box(<'static'>*),_Static()]")

    def test_enumerations_and_options_of_tensorflow_stand_for_ours(self):
        strategy, value = distribute.Strategy(local_replicas=2), cross_device.PerReplica([1., 2.])
        theirs = tf.distribute.ReduceOp
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=5, timeout_seconds=3.0,
            implementation=tf.distribute.experimental.CommunicationImplementation.RING)
        ops = cross_device.ReductionToOneDevice()
        for op, expected in ((theirs.SUM, 3), (theirs.MEAN, 1.5)):
            self.assertEqual(strategy.reduce(op, value), expected)
            self.assertEqual(ops.reduce(op, value, "/device:CPU:0", options), expected)
        with strategy.scope():
            variable = distribute.Variable(
                1.0, synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM)
        variable.assign(value)
        self.assertEqual(variable.numpy(), 1.5)  # Each copy gets a part of what is assigned.
        with self.assertRaises(TypeError):
            strategy.reduce(tf.VariableAggregation.SUM, value)
        with self.assertRaises(ValueError):
            ops.reduce(tf.VariableAggregation.SUM, value, "/device:CPU:0")

    def test_narrower_dtypes_are_refused_by_name(self):
        for name in ("float8_e4m3fn", "float8_e5m2", "int4"):
            for x in (np.zeros(2, getattr(ml_dtypes, name)), jnp.zeros(2, name)):
                for face, call in self.calls(x).items():
                    with self.subTest(name, of=type(x), face=face):
                        self.assert_refused("INVALID_ARGUMENT", f"'{name}' is none of", call)

    def test_tf_function(self):
        ran = []
        strategy = distribute.Strategy(local_replicas=2)
        for call in (lambda x: strategy.run(lambda: ran.append(1)),
                     *(lambda x, name=name: self.calls(x)[name]() for name in self.calls(1.0)),
                     lambda x: average_gradients([[np.ones(2)]])):
            self.assert_refused("UNIMPLEMENTED", "outside of tf.function",
                                lambda call=call: tf.function(call)(tf.ones(2)))
        self.assertEqual(ran, [])
        doubled = tf.function(lambda x: tf.numpy_function(
            lambda x: strategy.reduce("SUM", distribute.PerReplica([x, x])), [x], tf.float32))
        for number in (1, 2):
            self.assertEqual(doubled(tf.fill(2, float(number))).numpy().tolist(), [2 * number] * 2)

    def test_symbols_of_keras(self):
        for call in self.calls(tf.keras.Input((2,))).values():
            self.assert_refused("UNIMPLEMENTED", "KerasTensor has no data yet", call)

    def test_jax_transformations(self):
        ran = []
        strategy = distribute.Strategy()

        def constant(x):
            strategy.run(lambda: ran.append(1))
            return x.sum()

        for transform in (jax.jit, lambda f: jax.jit(jax.grad(f)), lambda f: jax.jit(jax.vmap(f))):
            x = jnp.ones((2, 2))
            self.assert_refused("UNIMPLEMENTED", "outside of jax.jit",
                                lambda: transform(constant)(x))
        self.assertEqual(ran, [])
        for name in self.calls(1.0):
            for transform in (jax.jit, jax.vmap, jax.grad):
                self.assert_refused("UNIMPLEMENTED", "outside of jax.jit", lambda: transform(
                    lambda x: self.calls(x)[name]())(jnp.float32(1)[None] if transform is jax.vmap
                                                     else jnp.float32(1)))
        doubled = jax.jit(lambda x: jax.experimental.io_callback(
            lambda x: strategy.reduce("SUM", x) * 2, jax.ShapeDtypeStruct((2,), "float32"), x))
        self.assertEqual(doubled(jnp.ones(2)).tolist(), [2, 2])

    def test_gradient_tape(self):
        w = tf.Variable([1.0, 2.0])
        strategy = distribute.Strategy()
        with tf.GradientTape(persistent=True) as tape:
            y = w * w
            for name, call in self.calls(y).items():
                if name == "all_reduce":
                    continue  # On threads of the replicas, which the tape does not watch.
                self.assert_refused("INVALID_ARGUMENT", "gradient of .* would be lost", call)
            self.assert_equal(strategy.reduce("SUM", tf.stop_gradient(y)), [1, 4])
            self.assert_equal(strategy.reduce("SUM", tf.ones(2)), [1, 1])
            inner = tf.stop_gradient(tape.gradient(y, w))
            self.assert_equal(average_gradients([[(inner, w)]])[0][0], [2, 4])
        self.assert_equal(average_gradients([[(tape.gradient(y, w), w)]])[0][0], [2, 4])
        self.assert_equal(strategy.reduce("SUM", y), [1, 4])
        x = tf.ones(2)
        with tf.autodiff.ForwardAccumulator(x, x):
            self.assert_refused("INVALID_ARGUMENT", "gradient of .* would be lost",
                                lambda: strategy.reduce("SUM", x * 2))

    def test_tensors_of_versions_without_dlpack(self):
        names = ("__dlpack__", "__dlpack_device__")
        kind = next(base for base in type(tf.ones(2)).__mro__ if names[0] in vars(base))
        with mock.patch.multiple(kind, **dict.fromkeys(names)):
            for name in names:
                delattr(kind, name)
            for x in (tf.ones(2), tf.ones((), tf.bfloat16), tf.zeros((0, 2), tf.bfloat16)):
                self.expect_kind(tf.Tensor, x, x.dtype.name)
            self.test_gradient_tape()
        self.assertTrue(hasattr(tf.ones(2), "__dlpack__"))

    def test_immutable_arrays_are_not_written(self):
        strategy = distribute.Strategy()
        for x in (jnp.ones(2), tf.ones(2), tf.constant(3.0)):
            with self.assertRaisesRegex(tutti.Error, "read-only"):
                strategy.broadcast_parameters({"w": x})
            for call in self.calls(x).values():
                before = np.array(x)
                call()
                self.assertEqual(np.asarray(x).tolist(), before.tolist())
        for x in (tf.Variable([1.0]), keras.Variable([1.0])):
            with self.assertRaisesRegex(tutti.Error, "assign the result to it"):
                strategy.broadcast_parameters([x])


if __name__ == "__main__":
    unittest.main()
