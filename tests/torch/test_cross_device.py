"""tutti.cross_device with torch tensors: kinds, dtypes and values of the results."""

import unittest

import torch
from torch.utils._pytree import register_pytree_node

import tutti
from tutti import cross_device as tfd
from tutti import distribute
from tutti.average_gradients import average_gradients
from tutti.distribute import _nest


class Torch(unittest.TestCase):
    def test_results_are_tensors_of_the_same_dtype(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32):
            value = tfd.PerReplica([torch.full((2, 3), i + 1, dtype=dtype) for i in range(3)])
            result = tfd.HierarchicalCopyAllReduce().reduce("sum", value, value)
            for tensor in result.values:
                self.assertTrue(torch.equal(tensor, torch.full((2, 3), 6, dtype=dtype)))
            result.values[0].zero_()
            self.assertEqual(result.values[1][0, 0], 6)

    def test_scalars_and_tensors_without_elements(self):
        for shape in ((), (0,), (0, 5)):
            value = tfd.PerReplica([torch.ones(shape), torch.ones(shape)])
            result = tfd.ReductionToOneDevice().reduce("mean", value, "CPU:0")
            self.assertTrue(torch.equal(result, torch.ones(shape)))

    def test_slices(self):
        own = tfd.IndexedSlices(torch.ones(2, 3), torch.tensor([4, 1]), (5, 3))
        result = tfd.ReductionToOneDevice().reduce("sum", tfd.PerReplica([own, own]), "CPU:0")
        self.assertEqual(result.indices.tolist(), [4, 1, 4, 1])
        self.assertEqual(result.values.dtype, torch.float32)

    def test_sparse_tensors_of_rows(self):
        ops = tfd.HierarchicalCopyAllReduce()
        for rows in ([1], [4, 1, 4, 0], []):
            values = torch.arange(3.0 * len(rows)).reshape(-1, 3).to(torch.bfloat16)
            x = torch.sparse_coo_tensor([rows], values, (5, 3), check_invariants=True)
            value = tfd.PerReplica([x, x])
            for op, factor in (("sum", 2), ("mean", 1)):
                for result in (*ops.reduce(op, value, value).values,
                               ops.batch_reduce(op, [(value, x)])[0]):
                    self.assertIs(result.layout, torch.sparse_coo)
                    self.assertTrue(torch.equal(result.to_dense(), factor * x.to_dense()))
            copy = ops.broadcast(x, "CPU:0")
            self.assertEqual(copy._indices().tolist(), [rows])
            mixed = tfd.PerReplica([torch.ones(5, 3, dtype=torch.bfloat16), x])
            self.assertTrue(torch.equal(ops.reduce("sum", mixed, "CPU:0"), 1 + x.to_dense()))

    def test_what_is_no_array_is_refused_with_the_remedy(self):
        strategy = distribute.Strategy()
        dense = torch.eye(2)
        refused = {r"2 sparse axes has no rows; pass x.to_dense\(\)": dense.to_sparse(),
                   r"layout torch.sparse_csr is no array; pass x.to_dense\(\)":
                   dense.to_sparse_csr(),
                   r"pass x.to_padded_tensor": torch.nested.nested_tensor([dense, dense[:1]]),
                   r"pass x.dequantize\(\)": torch.quantize_per_tensor(dense, 1, 0, torch.qint8)}
        for words, x in refused.items():
            for call in (lambda: tfd.ReductionToOneDevice().reduce("sum", x, "CPU:0"),
                         lambda: average_gradients([[x]])):
                self.assertRaisesRegex(ValueError, words, call)
                self.assertRaisesRegex(tutti.Error, words, call)
        for x in (dense.to_sparse(), dense.to_sparse(1), dense.to_sparse_csr()):
            with self.assertRaisesRegex(ValueError, r"value: .* is no array; pass x.to_dense\(\)"):
                strategy.reduce("SUM", x)
        needs = dense.to_sparse(1).requires_grad_()
        with self.assertRaisesRegex(ValueError, "detach"):
            tfd.ReductionToOneDevice().reduce("sum", needs, "CPU:0")

    def test_results_are_on_the_cpu_whatever_the_default_device(self):
        slices = torch.ones(3, 2).to_sparse(1)
        ops = tfd.ReductionToOneDevice()
        with torch.device("meta"):
            sparse = ops.reduce("sum", tfd.PerReplica([slices, slices]), "CPU:0")
            empty = ops.reduce("sum", slices.values()[:0], "CPU:0")
        self.assertTrue(torch.equal(sparse.to_dense(), torch.full((3, 2), 2.0, device="cpu")))
        self.assertEqual((empty.device.type, empty.shape), ("cpu", (0, 2)))

    def test_classes_that_torch_knows_are_structures(self):
        class Box:
            def __init__(self, x):
                self.x = x

        register_pytree_node(Box, lambda box: ([box.x], "k"), lambda parts, _: Box(*parts))
        self.assertEqual(_nest.describe(Box([1, 2])), "Box(<'k'>[*,*])")
        strategy = distribute.Strategy(local_replicas=2)
        value = Box([tfd.PerReplica([torch.ones(2), torch.full((2,), 3.0)]), None])
        result = strategy.reduce("SUM", value)
        self.assertIsInstance(result, Box)
        self.assertTrue(torch.equal(result.x[0], torch.full((2,), 4.0)))
        self.assertIsNone(result.x[1])

    def test_a_tensor_that_needs_a_gradient_is_refused(self):
        tensor = torch.ones(2, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "detach"):
            tfd.ReductionToOneDevice().reduce("sum", tensor, "CPU:0")


if __name__ == "__main__":
    unittest.main()
