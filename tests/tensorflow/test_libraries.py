"""Tensors of TensorFlow and JAX themselves: values and dtypes of results, and what is refused by
name. Run by tests/tensorflow/run, with the Python that has them."""

import unittest

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import tensorflow as tf

import tutti
from tutti import burn, cross_device, distribute
from tutti.average_gradients import average_gradients

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def _arrays(*values):
    """These numbers as bfloat16 of each library."""
    return (np.array(values, _BFLOAT16), jnp.array(values, jnp.bfloat16),
            tf.constant(values, tf.bfloat16))


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

        return {"reduce": lambda: strategy.reduce("SUM", value),
                "cross_device": lambda: ops.reduce("SUM", value, "/device:CPU:0"),
                "average_gradients": lambda: average_gradients([[x], [x]])[0],
                "burn": lambda: collective.all_reduce(0, x), "Variable": variable}

    def assert_refused(self, code, words, call):
        """As an Error, or as what tf.function makes of one."""
        with self.assertRaises(Exception) as caught:
            call()
        self.assertRegex(str(caught.exception), words)
        self.assertRegex(str(caught.exception), code)

    def test_bfloat16_keeps_dtype_and_values(self):
        for x in _arrays(1, 3):
            for name, call in self.calls(x).items():
                with self.subTest(name, of=type(x)):
                    result = call()
                    self.assertEqual(result.dtype, _BFLOAT16)
                    self.assertIn(result.astype("float32").tolist(), ([1, 3], [2, 6]))

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
                self.assert_refused("INVALID_ARGUMENT", "gradient of .* would be lost", call)
            self.assertEqual(strategy.reduce("SUM", tf.stop_gradient(y)).tolist(), [1, 4])
            self.assertEqual(strategy.reduce("SUM", tf.ones(2)).tolist(), [1, 1])
            inner = tf.stop_gradient(tape.gradient(y, w))
            self.assertEqual(average_gradients([[(inner, w)]])[0][0].tolist(), [2, 4])
        self.assertEqual(average_gradients([[(tape.gradient(y, w), w)]])[0][0].tolist(), [2, 4])
        self.assertEqual(strategy.reduce("SUM", y).tolist(), [1, 4])
        x = tf.ones(2)
        with tf.autodiff.ForwardAccumulator(x, x):
            self.assert_refused("INVALID_ARGUMENT", "gradient of .* would be lost",
                                lambda: strategy.reduce("SUM", x * 2))

    def test_immutable_arrays_are_not_written(self):
        strategy = distribute.Strategy()
        for x in (jnp.ones(2), tf.ones(2), tf.constant(3.0)):
            with self.assertRaisesRegex(tutti.Error, "read-only"):
                strategy.broadcast_parameters({"w": x})
            for call in self.calls(x).values():
                before = np.array(x)
                result = call()
                np.asarray(result)[...] = 7
                self.assertEqual(np.asarray(x).tolist(), before.tolist())


if __name__ == "__main__":
    unittest.main()
