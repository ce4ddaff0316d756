"""tutti.cross_device: values, results, options and errors, in one process and in a group.

The order of sums, packs and failures in a group are tested in tests/cross_device.
"""

import gc
import unittest

import numpy

import tutti
from ranks import Dlpack, RanksTest
from tutti import cross_device as tfd
from tutti.cross_device import (CommunicationImplementation, CommunicationOptions, IndexedSlices,
                                Mirrored, PerReplica, ReduceOp)

SUM, MEAN = ReduceOp.SUM, ReduceOp.MEAN
CLASSES = (tfd.HierarchicalCopyAllReduce, tfd.ReductionToOneDevice)


def powers(count, dtype="float32"):
    return PerReplica([numpy.asarray(2**i, dtype) for i in range(count)])


def value_error(case, function, *parts):
    """Calls `function`, which must raise an Error that is a ValueError and says the parts."""
    with case.assertRaises(ValueError) as caught:
        function()
    for part in parts:
        case.assertIn(part, str(caught.exception))
    return caught.exception


class OneProcess(unittest.TestCase):
    def expect(self, result, expected, components):
        self.assertIsInstance(result, Mirrored)
        self.assertEqual(len(result.values), components)
        for value in result.values:
            numpy.testing.assert_array_equal(value, expected, strict=False)

    def test_sum_and_mean_on_every_device(self):
        for make in CLASSES:
            value = PerReplica([0.0, 1.0])
            self.expect(make().reduce(SUM, value, value), 1, 2)
            self.expect(make().reduce(MEAN, value, value), 0.5, 2)
            self.expect(make().reduce("mean", value, ["GPU:0", "GPU:1", "GPU:2"]), 0.5, 3)
            alone = make().reduce("Sum", value, "/device:CPU:0")
            self.assertIsInstance(alone, numpy.ndarray)
            self.assertEqual(alone, 1)

    def test_odd_numbers_of_replicas(self):
        for count in (3, 5, 7):
            value = powers(count)
            ops = tfd.HierarchicalCopyAllReduce(num_packs=2)
            self.expect(ops.reduce(SUM, value, value), 2**count - 1, count)
        self.assertEqual(tfd.HierarchicalCopyAllReduce().reduce(MEAN, 7, "CPU:0"), 7)

    def test_a_batch_keeps_shapes_and_dtypes(self):
        arrays = [numpy.ones(shape, dtype) for shape in ((2, 3), (4,), (), (0, 5))
                  for dtype in ("float16", "float32", "float64", "int8", "uint16", "int64")]
        pairs = [(PerReplica([array, array]), "CPU:0") for array in arrays]
        results = tfd.HierarchicalCopyAllReduce(3).batch_reduce(SUM, pairs)
        for array, result in zip(arrays, results):
            self.assertEqual((result.shape, result.dtype), (array.shape, array.dtype))
            numpy.testing.assert_array_equal(result, array + array)

    def test_results_outlive_the_call_and_share_nothing(self):
        value = PerReplica([numpy.arange(1000.0), numpy.arange(1000.0)])
        result = tfd.ReductionToOneDevice().reduce(SUM, value, value)
        first, second = result.values
        del result
        gc.collect()
        first[:] = 0
        numpy.testing.assert_array_equal(second, 2 * numpy.arange(1000.0))
        numpy.testing.assert_array_equal(value.values[0], numpy.arange(1000.0))

    def test_broadcast_makes_copies(self):
        tensor = numpy.asarray(3.0)
        result = tfd.HierarchicalCopyAllReduce().broadcast(tensor, [f"CPU:{i}" for i in range(4)])
        self.expect(result, 3, 4)
        result.values[0][...] = 4
        self.assertEqual((result.values[1], tensor), (3, 3))
        self.assertEqual(result.devices[3], "/device:CPU:3")

    def test_strides_and_dlpack(self):
        grid = numpy.arange(12, dtype="float32").reshape(3, 4)
        value = PerReplica([Dlpack(grid.copy()), numpy.ascontiguousarray(grid.T).T])
        numpy.testing.assert_array_equal(
            tfd.ReductionToOneDevice().reduce(SUM, value, "CPU:0"), 2 * grid)

    def test_bf16(self):
        ones = tutti._dtype.numpy_dtype("bf16")
        value = PerReplica([numpy.full(3, 0x3f80, "uint16").view(ones)] * 2)
        result = tfd.ReductionToOneDevice().reduce(SUM, value, "CPU:0")
        numpy.testing.assert_array_equal(result, numpy.full(3, 0x4000, "uint16"))
        self.assertEqual(tutti._dtype.dtype_name(result.dtype), "bf16")

    def test_half_floats_are_summed_in_singles(self):
        value = PerReplica([numpy.float16(60000)] * 2)
        self.assertEqual(tfd.ReductionToOneDevice().reduce(MEAN, value, "CPU:0"), 60000)

    def test_integers(self):
        ops = tfd.HierarchicalCopyAllReduce()
        value = PerReplica([numpy.asarray([2**31 - 1], "int32"), numpy.asarray([1], "int32")])
        self.assertEqual(ops.reduce(SUM, value, "CPU:0"), -2**31)
        value_error(self, lambda: ops.reduce(MEAN, value, value), "MEAN needs a floating dtype")


class Sparse(unittest.TestCase):
    value = PerReplica([
        IndexedSlices(numpy.asarray([[1., 2.]]), numpy.asarray([1]), (5, 2)),
        IndexedSlices(numpy.asarray([[3., 4.], [5., 6.]]), numpy.asarray([1, 3]), (5, 2))])

    def test_sum_and_mean(self):
        ops = tfd.HierarchicalCopyAllReduce()
        total = ops.reduce(SUM, self.value, self.value).primary
        numpy.testing.assert_array_equal(total.indices, [1, 1, 3])
        numpy.testing.assert_array_equal(total.values, [[1, 2], [3, 4], [5, 6]])
        self.assertEqual(total.dense_shape, (5, 2))
        mean = ops.reduce(MEAN, self.value, "CPU:0")
        numpy.testing.assert_array_equal(mean.values, [[.5, 1], [1.5, 2], [2.5, 3]])

    def test_with_a_dense_component(self):
        value = PerReplica([self.value.values[0], numpy.ones((5, 2))])
        result = tfd.ReductionToOneDevice().reduce(SUM, value, "CPU:0")
        numpy.testing.assert_array_equal(result, [[1, 1], [2, 3], [1, 1], [1, 1], [1, 1]])


class Arguments(unittest.TestCase):
    def setUp(self):
        self.ops = tfd.HierarchicalCopyAllReduce()
        self.value = powers(2)

    def test_num_packs(self):
        for wrong in (0, -1):
            value_error(self, lambda: tfd.HierarchicalCopyAllReduce(wrong), "num_packs > 0",
                        str(wrong))
        value_error(self, lambda: tfd.HierarchicalCopyAllReduce("x"), "num_packs 'x'")
        for right in (1, 8, None, numpy.int64(2)):
            tfd.HierarchicalCopyAllReduce(right)

    def test_whole_numbers_do_not_wrap(self):
        def from_root(root):
            return lambda: self.ops.broadcast(numpy.ones(2), "CPU:0", root)

        value_error(self, lambda: tfd.HierarchicalCopyAllReduce(2**64 + 1), "num_packs",
                    str(2**63 - 1))
        value_error(self, from_root(2**32), "root", str(2**31 - 1))
        value_error(self, from_root(0.0), "root 0.0", "int()")
        value_error(self, lambda: CommunicationOptions(2**64 + 1), "bytes_per_pack")
        for wrong in (2**64 + 5, 5.7, "5", -1):
            value_error(self, lambda: IndexedSlices([[1.0, 2.0]], [1], (wrong, 2)), "dense_shape")

    def test_pairs(self):
        batch = self.ops.batch_reduce
        self.assertEqual(batch(SUM, []), [])
        value_error(self, lambda: batch(SUM, 5), "should be a list or tuple")
        value_error(self, lambda: batch(SUM, [self.value]), "should be a tuple")
        value_error(self, lambda: batch(SUM, [(self.value,) * 3]), "tuple of size 2")

    def test_destinations(self):
        for wrong in (5, None, [5], {}):
            value_error(self, lambda: self.ops.reduce(SUM, self.value, wrong), "destinations")
        for empty in ("", [], ()):
            value_error(self, lambda: self.ops.reduce(SUM, self.value, empty), "can not be empty")
        value_error(self, lambda: self.ops.reduce(SUM, self.value, "over there"), "is no device")

    def test_values(self):
        for wrong in ([1, 2], None, {}, ()):
            value_error(self, lambda: self.ops.reduce(SUM, wrong, "CPU:0"), "PerReplica")
        value_error(self, lambda: self.ops.reduce(SUM, PerReplica([]), "CPU:0"), "non-empty")
        value_error(self, lambda: PerReplica([1, 2], ["CPU:0"]), "as many devices")
        text = PerReplica(["one", "two"])
        with self.assertRaises(tutti.Error):
            self.ops.reduce(SUM, text, "CPU:0")

    def test_shapes_that_differ_are_quoted(self):
        wrong = PerReplica([numpy.ones(2), numpy.ones(3)])
        value_error(self, lambda: self.ops.reduce(SUM, wrong, wrong), "f64[2]", "f64[3]")

    def test_reduce_op(self):
        for wrong in ("MAX", 3, None):
            with self.assertRaisesRegex(tutti.Error, "no valid ReduceOp; give one of SUM, MEAN"):
                self.ops.reduce(wrong, self.value, "CPU:0")
        self.assertIs(ReduceOp("sum"), SUM)

    def test_group(self):
        value_error(self, lambda: tfd.ReductionToOneDevice(group=5), "no tutti.Group")

    def test_options(self):
        value_error(self, lambda: CommunicationOptions(-1), "bytes_per_pack")
        value_error(self, lambda: CommunicationOptions("x"), "bytes_per_pack")
        value_error(self, lambda: CommunicationOptions(timeout_seconds=-1), "timeout_seconds")
        value_error(self, lambda: CommunicationOptions(timeout_seconds="x"), "timeout_seconds")
        value_error(self, lambda: CommunicationOptions(implementation="smoke"), "smoke")
        value_error(self, lambda: CommunicationOptions(reproducible="yes"),
                    "'yes' is none of True, False and None")
        value_error(self, lambda: self.ops.reduce(SUM, self.value, "CPU:0", options=5), "options")
        ring = CommunicationOptions(5, 2.0, "ring")
        self.assertIs(ring.implementation, CommunicationImplementation.RING)
        merged = ring.merge(CommunicationOptions(timeout_seconds=1))
        self.assertEqual(repr(merged), "CommunicationOptions(5, 1.0, RING, None)")
        chosen = merged.merge(CommunicationOptions(reproducible=False))
        self.assertIs(chosen.merge(CommunicationOptions()).reproducible, False)
        self.assertIs(ring.merge(None), ring)


class InAGroup(RanksTest):
    def test_every_class_and_packing(self):
        def body(group):
            own = PerReplica([numpy.full(5, 2.0**group.rank)])
            results = []
            for ops in (tfd.HierarchicalCopyAllReduce(2, group),
                        tfd.HierarchicalCopyAllReduce(None, group),
                        tfd.ReductionToOneDevice(group=group)):
                results += [ops.reduce(SUM, own, own)]
                results += ops.batch_reduce(MEAN, [(own, "CPU:0"), (own, own)],
                                            CommunicationOptions(bytes_per_pack=8))
            return results

        for results in self.on_ranks(body, 3):
            for result, expected in zip(results, [7, 7 / 3, 7 / 3] * 3):
                numpy.testing.assert_array_equal(result, numpy.full(5, expected))

    def test_a_result_on_one_rank(self):
        def body(group):
            ops = tfd.HierarchicalCopyAllReduce(group=group)
            return ops.reduce(SUM, group.rank + 1.0, "/job:worker/task:1/device:CPU:0")

        self.assertEqual(self.on_ranks(body), [None, 3])

    def test_broadcast_from_a_root(self):
        def body(group):
            ops = tfd.ReductionToOneDevice(group=group)
            return ops.broadcast(numpy.asarray([group.rank]), "CPU:0", root=1)

        self.assertEqual(self.on_ranks(body), [1, 1])

    def test_disagreement_is_a_value_error_on_every_rank(self):
        def body(group):
            ops = tfd.HierarchicalCopyAllReduce(group=group)
            value = numpy.ones(2 + group.rank, "float32")
            error = value_error(self, lambda: ops.reduce(SUM, value, "CPU:0"), "f32[2]", "f32[3]")
            return error.code, ops.reduce(SUM, 1.0, "CPU:0")

        self.assertEqual(self.on_ranks(body), [("INVALID_ARGUMENT", 2)] * 2)

    def test_a_refusal_of_one_rank_leaves_all_in_step(self):
        def wrong_calls(ops):
            return (lambda: ops.reduce(SUM, 1.0, "over there"),
                    lambda: ops.reduce(SUM, 1.0, 5),
                    lambda: ops.reduce(SUM, [1.0], "CPU:0"),
                    lambda: ops.reduce("MAX", 1.0, "CPU:0"),
                    lambda: ops.reduce(SUM, PerReplica(["text"]), "CPU:0"),
                    lambda: ops.reduce(SUM, 1.0, "CPU:0", options=5),
                    lambda: ops.batch_reduce(SUM, [(1.0,)]),
                    lambda: ops.broadcast(1.0, "CPU:0", root=2**32))

        def body(group):
            ops = tfd.HierarchicalCopyAllReduce(group=group)
            sums = []
            for number, wrong in enumerate(wrong_calls(ops)):
                if group.rank == 1:
                    with self.assertRaises((tutti.Error, ValueError)):
                        wrong()
                else:
                    error = value_error(self, lambda: ops.reduce(SUM, 1.0, "CPU:0"),
                                        "rank 1 refused the call: ")
                    self.assertEqual(error.rank, 1)
                sums.append(float(ops.reduce(SUM, float(number), "CPU:0")))
            return sums

        self.assertEqual(self.on_ranks(body, 3), [[3.0 * number for number in range(8)]] * 3)

    def test_sparse_rows_of_different_lengths(self):
        def body(group):
            ops = tfd.HierarchicalCopyAllReduce(group=group)
            own = Sparse.value.values[group.rank]
            result = ops.reduce(SUM, own, "CPU:0")
            return result.indices.tolist(), result.values.tolist(), result.dense_shape

        self.assertEqual(self.on_ranks(body),
                         [([1, 1, 3], [[1, 2], [3, 4], [5, 6]], (5, 2))] * 2)


if __name__ == "__main__":
    unittest.main()
