"""tutti.cross_device with torch tensors: kinds, dtypes and values of the results."""

import unittest

import torch

from tutti import cross_device as tfd


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

    def test_a_tensor_that_needs_a_gradient_is_refused(self):
        tensor = torch.ones(2, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "detach"):
            tfd.ReductionToOneDevice().reduce("sum", tensor, "CPU:0")


if __name__ == "__main__":
    unittest.main()
