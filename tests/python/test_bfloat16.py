"""bfloat16 of NumPy (ml_dtypes), JAX and TensorFlow keeps its dtype, and so its values, through
every face; uint16 stays uint16; dtypes that Tutti lacks are refused by name.

The arrays of JAX and TensorFlow are those of stand-ins, which need neither.
"""

import sys
import types
import unittest
from unittest import mock

import numpy as np
from ranks import Dlpack, RanksTest

from tutti import burn, cross_device, distribute
from tutti._dtype import numpy_dtype
from tutti.average_gradients import average_gradients

try:
    import ml_dtypes
except ImportError:
    # "bfloat" and the 16 bits, which NumPy appends.
    ml_dtypes = types.SimpleNamespace(bfloat16=np.dtype((type("bfloat", (np.void,), {}), 2)))

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def bf16(*values):
    """These numbers as an array of bfloat16, cut to it."""
    bits = np.array(values, "float32").view("uint32") >> 16
    return bits.astype("uint16").view(_BFLOAT16)


def numbers(array):
    """The numbers of an array of a dtype that is named bfloat16."""
    assert array.dtype.name == "bfloat16", array.dtype
    return (array.view("uint16").astype("uint32") << 16).view("float32").tolist()


class FakeJax(Dlpack):
    """An array of bfloat16 that is no NumPy array, whose dtype is NumPy's."""

    def __init__(self, array):
        super().__init__(array, versioned=False)


class FakeTensorFlow(FakeJax):
    """Its dtype is a class of its own."""

    def __init__(self, array):
        super().__init__(array)
        self.dtype = types.SimpleNamespace(name="bfloat16", as_numpy_dtype=_BFLOAT16.type)


class FakeOther(FakeJax):
    """Its dtype is unknown to NumPy."""

    def __init__(self, array):
        super().__init__(array)
        self.dtype = "bfloat16"


# NumPy makes no dtype of a class of our own: then only real ml_dtypes can be asked by it.
_KINDS = [lambda x: x, FakeJax, FakeOther]
if np.dtype(_BFLOAT16.type) == _BFLOAT16:
    _KINDS.append(FakeTensorFlow)


class Bfloat16(RanksTest):
    def setUp(self):
        patch = mock.patch.dict(sys.modules, {"ml_dtypes": ml_dtypes})
        patch.start()
        self.addCleanup(patch.stop)

    def each_kind(self):
        for kind in _KINDS:
            with self.subTest(getattr(kind, "__name__", "NumPy")):
                yield kind

    def test_cross_device(self):
        for kind in self.each_kind():
            ones = cross_device.PerReplica([kind(bf16(1, 3)), kind(bf16(1, 1))])
            for ops in (cross_device.ReductionToOneDevice(),
                        cross_device.HierarchicalCopyAllReduce()):
                self.assertEqual(numbers(ops.reduce("SUM", ones, "/device:CPU:0")), [2, 4])
                self.assertEqual(numbers(ops.batch_reduce("MEAN", [(ones, ones)])[0].primary),
                                 [1, 2])
                self.assertEqual(numbers(ops.broadcast(kind(bf16(1, 3)), "/device:CPU:0")), [1, 3])
                slices = cross_device.IndexedSlices(kind(bf16(1, 3).reshape(1, 2)), np.array([1]))
                result = ops.reduce("SUM", cross_device.PerReplica([slices] * 2), "/device:CPU:0")
                self.assertEqual(numbers(result.values.reshape(-1)), [1, 3, 1, 3])
                self.assertEqual(result.indices.dtype, np.int64)

    def test_average_gradients(self):
        for kind in self.each_kind():
            slices = cross_device.IndexedSlices(kind(bf16(1, 3).reshape(1, 2)), np.array([1]))
            towers = [[(kind(bf16(1, 3)), "w"), (slices, "e")],
                      [(kind(bf16(3, 5)), "w"), (slices, "e")]]
            (dense, _), (sparse, _) = average_gradients(towers)
            self.assertEqual(numbers(dense), [2, 4])
            self.assertEqual(numbers(sparse.values.reshape(-1)), [1, 3])

    def test_distribute(self):
        strategy = distribute.Strategy(local_replicas=2)
        for kind in self.each_kind():
            value = distribute.PerReplica([kind(bf16(1, 3)), kind(bf16(1, 1))])
            self.assertEqual(numbers(strategy.reduce("SUM", value)), [2, 4])
            self.assertEqual(numbers(strategy.gather(value, axis=0)), [1, 3, 1, 1])

            def replica(x):
                context = distribute.get_replica_context()
                return (context.all_reduce("SUM", x), context.all_gather(x, axis=0))

            total, gathered = strategy.run(replica, (value,))
            self.assertEqual(numbers(total.values[1]), [2, 4])
            self.assertEqual(numbers(gathered.values[0]), [1, 3, 1, 1])

    def test_variables(self):
        strategy = distribute.Strategy(local_replicas=2)
        for kind in self.each_kind():
            with strategy.scope():
                variable = distribute.Variable(kind(bf16(1, 3)), aggregation="SUM")
            self.assertEqual(numbers(variable.value()), [1, 3])
            self.assertEqual(numbers(variable.numpy()), [1, 3])
            variable.assign_add(kind(bf16(1, 1)))
            self.assertEqual([numbers(copy) for copy in variable.values], [[2, 4]] * 2)
            strategy.run(variable.assign, (kind(bf16(1, 1)),))
            self.assertEqual(numbers(variable.value()), [2, 2])

    def test_burn(self):
        for kind in self.each_kind():
            collective = burn.Collective()
            collective.register(0, "cpu", burn.CollectiveConfig())
            self.assertEqual(numbers(collective.all_reduce(0, kind(bf16(1, 3)))), [1, 3])
            self.assertEqual(numbers(collective.reduce(0, kind(bf16(1, 3)), "Sum", 0)), [1, 3])
            self.assertEqual(numbers(collective.broadcast(0, kind(bf16(1, 3)))), [1, 3])
            collective.finish_collective(0)

    def test_new_arrays_of_a_group(self):
        def body(group):
            for kind in _KINDS:
                x = kind(bf16(group.rank, 3))
                self.assertEqual(numbers(group.all_gather(x)), [0, 3, 1, 3])
                self.assertEqual(numbers(group.all_to_all(x)), [[0, 1], [3, 3]][group.rank])
                self.assertEqual(numbers(group.all_gather_v(x, [2, 2])), [0, 3, 1, 3])
                gathered = group.gather(x, root=1)
                if group.rank == 1:
                    self.assertEqual(numbers(gathered), [0, 3, 1, 3])
                part = group.scatter(x if group.rank == 0 else None, out=bf16(7))
                self.assertEqual(numbers(part), [[0], [3]][group.rank])
                out = bf16(7, 7)
                self.assertIs(group.all_reduce_many([x], outs=[out])[0], out)

        self.on_ranks(body)

    def test_uint16_and_what_is_declared_stay(self):
        marked = numpy_dtype("bf16")
        strategy = distribute.Strategy(local_replicas=2)
        ops = cross_device.ReductionToOneDevice()
        for dtype, one in ((np.dtype("uint16"), 1), (marked, 0x3f80)):
            value = cross_device.PerReplica([np.full(2, one, "uint16").view(dtype)] * 2)
            two = 2 if one == 1 else 0x4000
            for result in (ops.reduce("SUM", value, "/device:CPU:0"),
                           strategy.reduce("SUM", value)):
                self.assertEqual((result.dtype, result.dtype.metadata, result.tolist()),
                                 (dtype, dtype.metadata, [two] * 2))

        def body(group):
            x = np.full(1, group.rank, "uint16")
            for array in (x, Dlpack(x)):
                gathered = group.all_gather(array)
                self.assertEqual((gathered.dtype, gathered.tolist()), (np.uint16, [0, 1]))
                self.assertEqual(group.all_gather(array, dtype="bf16").dtype, np.uint16)

        self.on_ranks(body)

    def test_without_ml_dtypes_it_is_refused_by_name(self):
        strategy = distribute.Strategy()
        x = FakeOther(bf16(1, 3))
        with mock.patch.dict(sys.modules, {"ml_dtypes": None}):
            for call in (lambda: strategy.reduce("SUM", x), lambda: average_gradients([[x]]),
                         lambda: cross_device.ReductionToOneDevice().reduce("SUM", x, "CPU:0")):
                with self.assertRaisesRegex(RuntimeError, "bfloat16.*install ml_dtypes"):
                    call()

    def test_what_tutti_lacks_is_refused_by_name(self):
        strategy = distribute.Strategy()
        for name, bits in (("float8_e4m3fn", "uint8"), ("float8_e5m2", "uint8"), ("int4", "int8"),
                           ("float4_e2m1fn", "uint8")):
            x = Dlpack(np.zeros(2, bits))
            x.dtype = types.SimpleNamespace(name=name)
            for call in (lambda: strategy.reduce("SUM", x), lambda: average_gradients([[x]]),
                         lambda: cross_device.ReductionToOneDevice().reduce("SUM", x, "CPU:0"),
                         lambda: burn.all_reduce(0, x)):
                with self.subTest(name), self.assertRaisesRegex(
                        RuntimeError, f"'{name}' is none of .*convert it to"):
                    call()


if __name__ == "__main__":
    unittest.main()
