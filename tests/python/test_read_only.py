"""Arrays that must not be written to: those whose producer does not say that they may."""

import importlib
import unittest

import numpy as np
from ranks import Dlpack, RanksTest

import tutti
from tutti.distribute import Strategy


class Torchlike(Dlpack):
    """By its module of a library whose arrays may be written to."""


Torchlike.__module__ = "torch.of_a_test"


class ReadOnly(RanksTest):
    def refuse_to_write(self, group, make, same):
        """Each call that would write to make() is refused and leaves it as it is: same(x)."""
        other = 1 - group.rank
        x = make()
        for call in (lambda: group.all_reduce(x), lambda: group.all_reduce(x, blocking=False),
                     lambda: group.all_reduce(np.ones(4, np.float32), out=x),
                     lambda: group.all_reduce_many([x]), lambda: group.reduce(x, root=group.rank),
                     lambda: group.all_to_all(np.ones(4, np.float32), out=x),
                     lambda: group.broadcast(x, root=other), lambda: group.recv(x, source=other)):
            self.assert_invalid("the array to write to is read-only", call)
            self.assertTrue(same(x))
        with self.assertRaisesRegex(ValueError, "read-only"):
            Strategy(group=group).broadcast_parameters({"weights": x})
        self.assertTrue(same(x))
        self.assertEqual(group.all_gather(x, out=np.zeros(8, np.float32)).tolist(), [1.0] * 8)

    def test_capsules(self):
        def body(group):
            for how in ({"versioned": False}, {"read_only": True}):
                self.refuse_to_write(group, lambda: Dlpack(np.ones(4, np.float32), **how),
                                     lambda x: x.array.tolist() == [1.0] * 4)
            empty = Dlpack(np.ones(0, np.float32), versioned=False)
            self.assert_invalid("read-only", group.all_reduce, empty)

        self.on_ranks(body)

    def test_capsules_that_may_be_written_to(self):
        def body(group):
            for x in (Dlpack(np.ones(4)), Torchlike(np.ones(4), versioned=False)):
                self.assertIs(group.all_reduce(x), x)
                self.assertEqual(x.array.tolist(), [2.0] * 4)
            known = Torchlike(np.ones(4), read_only=True)
            self.assert_invalid("read-only", group.all_reduce, known)

        self.on_ranks(body)

    def load(self, name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            self.skipTest(f"{name} is not there: {error}")

    def test_jax_arrays(self):
        jax = self.load("jax")

        def body(group):
            self.refuse_to_write(group, lambda: jax.numpy.ones(4),
                                 lambda x: np.asarray(x).tolist() == [1.0] * 4)

        self.on_ranks(body)

    def test_tensorflow_tensors(self):
        tf = self.load("tensorflow")

        def body(group):
            self.refuse_to_write(group, lambda: tf.constant([1.0] * 4),
                                 lambda x: x.numpy().tolist() == [1.0] * 4)
            variable = tf.Variable([1.0] * 4)
            with self.assertRaises(tutti.Error) as caught:
                group.all_reduce(variable)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
            self.assertEqual(variable.numpy().tolist(), [1.0] * 4)

        self.on_ranks(body)


if __name__ == "__main__":
    unittest.main()
