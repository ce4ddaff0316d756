"""Every dtype, refusals of others with advice, and wrong arguments."""

import unittest

import numpy as np
from ranks import Dlpack, RanksTest

import tutti


class FakeTensor(Dlpack):
    """A tensor with lazy operations that its memory does not show, like those of torch."""

    def __init__(self, array, conj=False, neg=False, dtype=None):
        super().__init__(array)
        self.conj, self.neg = conj, neg
        self.dtype = dtype or array.dtype

    def is_conj(self):
        return self.conj

    def is_neg(self):
        return self.neg


class Dtypes(RanksTest):
    def test_every_op_on_numbers_of_every_size(self):
        def body(group):
            for name in ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32",
                         "uint32", "int64", "uint64"):
                for op, expected in (("sum", 5), ("min", 2), ("max", 3), ("prod", 6)):
                    x = np.full(7, 2 + group.rank, name)
                    group.all_reduce(x, op=op)
                    np.testing.assert_array_equal(x, np.full(7, expected, name))
            for name in ("int8", "uint16", "int32", "uint64"):
                for op, expected in (("band", 4), ("bor", 7), ("bxor", 3)):
                    x = np.full(7, 5 + group.rank, name)
                    group.all_reduce(x, op=op)
                    np.testing.assert_array_equal(x, np.full(7, expected, name))
            for op in ("band", "bor", "bxor"):
                self.assert_invalid(op.upper() + " needs integers or bools", group.all_reduce,
                                    np.zeros(3), op=op)
            large = np.array([2**63 + group.rank, 2**64 - 1], np.uint64)
            group.all_reduce(large, op="max")
            self.assertEqual(large.tolist(), [2**63 + 1, 2**64 - 1])
            shared = group.empty(3, "uint16")
            shared[...] = 40000
            group.all_reduce(shared)
            self.assertEqual(shared.tolist(), [80000 % 65536] * 3)

        self.on_ranks(body)

    def test_bools_are_any_or_all(self):
        def body(group):
            for op, expected in (("sum", [False, True, True]), ("max", [False, True, True]),
                                 ("prod", [False, False, True]), ("min", [False, False, True]),
                                 ("band", [False, False, True]), ("bor", [False, True, True]),
                                 ("bxor", [False, True, False])):
                x = np.array([False, group.rank == 1, True])
                self.assertIs(group.all_reduce(x, op=op), x)
                self.assertEqual((x.dtype, x.tolist()), (np.dtype(bool), expected))
            self.assertEqual(group.all_gather(group.rank == 1).tolist(), [False, True])
            self.assertEqual(group.empty(2, bool).dtype, np.dtype(bool))
            tensor = FakeTensor(np.array([group.rank == 0, False]))
            group.all_reduce(tensor)
            self.assertEqual(tensor.array.tolist(), [True, False])
            self.assert_invalid("use SUM and divide", group.all_reduce, x, op="mean")

        self.on_ranks(body)

    def test_dlpack_of_every_dtype(self):
        def body(group):
            for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                         "uint64", "float16", "float32", "float64"):
                x = FakeTensor(np.array([0, 1, 1], name))
                self.assertEqual(group.broadcast(x).array.tolist(), [0, 1, 1])
                self.assertEqual(group.empty(3, name).dtype, np.dtype(name))

        self.on_ranks(body)

    def test_empty_remembers_bf16(self):
        def body(group):
            x = group.empty((2, 2), "bf16")
            x[...] = 4
            group.all_reduce(x, op="mean")  # Integers would have no mean.
            np.testing.assert_array_equal(x, np.full((2, 2), 4))
            group.all_reduce(x[1], op="mean")
            gathered = group.all_gather(x)
            self.assertEqual(gathered.shape, (4, 2))
            group.all_reduce(gathered, op="mean")
            again = group.empty(3, x.dtype)
            again[...] = 2
            group.all_reduce(again, op="mean")
            self.assert_invalid("use SUM and divide", group.all_reduce, np.zeros(2, np.uint16),
                                op="mean")

        self.on_ranks(body)

    def test_unknown_dtypes_are_refused_with_advice(self):
        def body(group):
            complex_ = np.zeros(3, np.complex64)
            self.assert_invalid("torch.view_as_real(x)", group.all_reduce, complex_)
            self.assert_invalid("x.view('float32')", group.all_reduce, Dlpack(complex_))
            self.assert_invalid("view_as_real", group.empty, 3, np.complex128)
            fp8 = FakeTensor(np.zeros(3, np.uint8), dtype="torch.float8_e4m3fn")
            self.assert_invalid("'float8_e4m3fn' is none of", group.all_reduce, fp8)
            self.assert_invalid("convert it to bf16", group.all_reduce, fp8)
            self.assert_invalid("convert it to bf16", group.empty, 3, "float8_e5m2")
            self.assert_invalid("convert it to f64", group.all_reduce, np.zeros(3, np.longdouble))
            self.assert_invalid("astype", group.all_reduce, np.array([None, 1]))
            self.assert_invalid("is none of", group.empty, 3, np.dtype([("a", "f4"), ("b", "i4")]))
            self.assert_invalid("is none of", group.empty, 3, object)
            group.barrier()

        self.on_ranks(body)

    def test_lazy_views_are_refused(self):
        def body(group):
            for option, remedy in (("neg", "x.resolve_neg()"), ("conj", "x.resolve_conj()")):
                x = FakeTensor(np.ones(3), **{option: True})
                for call in (group.all_reduce, group.broadcast, group.reduce, group.all_gather):
                    self.assert_invalid(remedy, call, x)
                self.assert_invalid(remedy, group.all_reduce, np.ones(3), out=x)
                self.assert_invalid(remedy, group.all_reduce_many, [np.ones(3), x])
            plain = FakeTensor(np.ones(3))
            self.assertEqual(group.all_reduce(plain).array.tolist(), [2, 2, 2])

        self.on_ranks(body)


class Torch(RanksTest):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        self.torch = torch

    def test_lazy_views_are_refused(self):
        torch = self.torch

        def body(group):
            x = torch.tensor([1 + 2j, 3 - 4j])
            negated = x.conj().imag
            self.assertTrue(negated.is_neg())
            self.assert_invalid("x.resolve_neg()", group.all_reduce, negated)
            self.assert_invalid("x.resolve_conj()", group.all_reduce, x.conj())
            resolved = group.all_reduce(negated.resolve_neg())
            self.assertEqual(resolved.tolist(), [-4, 8])

        self.on_ranks(body)

    def test_dtypes(self):
        torch = self.torch

        def body(group):
            for name in ("bool", "int16", "uint16", "uint32", "uint64", "int8", "float16"):
                x = torch.tensor([0, 1]).to(getattr(torch, name))
                y = group.all_gather(x)
                self.assertEqual((y.dtype, y.tolist()), (x.dtype, [0, 1, 0, 1]))
            truth = torch.tensor([False, group.rank == 1])
            self.assertEqual(group.all_reduce(truth).tolist(), [False, True])
            self.assert_invalid("view_as_real", group.all_reduce,
                                torch.zeros(2, dtype=torch.cfloat))
            self.assert_invalid("convert it to bf16", group.all_reduce,
                                torch.zeros(2).to(torch.float8_e4m3fn))
            self.assertEqual(group.empty(2, torch.int16).dtype, np.int16)

        self.on_ranks(body)


class Arguments(RanksTest):
    def test_shapes_of_empty(self):
        def body(group):
            self.assertEqual(group.empty(np.int64(4)).shape, (4,))
            self.assertEqual(group.empty((np.int32(2), 3)).shape, (2, 3))
            self.assertEqual(group.empty([2, 0]).shape, (2, 0))
            for shape in (-1, (2, -3), np.int64(-1)):
                self.assert_invalid("has a side below 0", group.empty, shape)
            for shape in (2.5, "12", ("1", 2), None):
                self.assert_invalid("is no whole number", group.empty, shape)
            for shape in (2**62, (2**40, 2**40)):
                with self.assertRaises(tutti.Error) as caught:
                    group.empty(shape)
                self.assertEqual(caught.exception.code, "RESOURCE_EXHAUSTED")

        self.on_ranks(body)

    def test_wrong_numbers_are_refused(self):
        def body(group):
            x = np.ones(2)
            for root in ("0", 1.5, None):
                self.assert_invalid("convert it with int()", group.reduce, x, root=root)
                self.assert_invalid("convert it with int()", group.broadcast, x, root=root)
            for root in (-1, 2**32):
                self.assert_invalid("out of range", group.broadcast, x, root=root)
            self.assert_invalid("convert it with int()", group.subgroup, ["0", "1"])
            self.assertEqual(group.broadcast(x, root=np.int64(1)).tolist(), [1, 1])
            self.assert_invalid("timeout", group.barrier, timeout="5")
            group.barrier(timeout=float("inf"))
            self.assert_invalid("op ['sum']", group.all_reduce, x, op=["sum"])

        self.on_ranks(body)

    def test_masked_arrays_are_refused(self):
        def body(group):
            x = np.ma.masked_array([1.0, 2.0], mask=[False, True])
            self.assert_invalid("x.filled(value)", group.all_reduce, x)
            self.assert_invalid("x.filled(value)", group.all_reduce, np.zeros(2), out=x)
            self.assertEqual(group.all_reduce(x.filled(5)).tolist(), [2, 10])

        self.on_ranks(body)


if __name__ == "__main__":
    unittest.main()
