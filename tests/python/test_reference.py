"""tutti.reference() and reproducible= with what they refuse; mesh_reproducible compares values."""

import unittest

import numpy as np
from ranks import RanksTest

import tutti


class Shown:
    """What an array shows by DLPack alone, as torch's do."""

    def __init__(self, x):
        self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__


class Reference(RanksTest):
    def refused(self, words, call):
        with self.assertRaises(tutti.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        self.assertIn(words, str(caught.exception))

    def test_ops_that_collectives_refuse(self):
        whole, real = np.ones(2, "int32"), np.ones(2, "float32")
        for op, x in (("mean", whole), ("premul_sum", whole), ("mean", whole != 0), ("band", real),
                      ("bxor", real)):
            self.refused(f"op '{op}' is not for arrays of", lambda: tutti.reference([x, x], op))

    def test_arrays_that_do_not_fit(self):
        x = np.ones(2, "float32")
        self.refused("one dtype and shape", lambda: tutti.reference([x, x[:1]]))
        self.refused("one dtype and shape", lambda: tutti.reference([x, x.astype("float64")]))
        self.refused("at least one rank", lambda: tutti.reference([]))
        self.refused("a factor for each",
                     lambda: tutti.reference([x], "premul_sum", factors=[1, 2]))

    def test_arrays_with_dlpack(self):
        for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8"):
            for op in ("sum", "min", "max"):
                xs = [np.array(x).astype(dtype) for x in ([1.5, 2, -3], [-2.5, 2, 7], [1, 3, 1])]
                result = tutti.reference([Shown(x) for x in xs], op)
                self.assertEqual(result.tobytes(), tutti.reference(xs, op).tobytes(), (dtype, op))

    def test_by_hand(self):
        xs = [np.array([x, -0.0], "float32") for x in (1e8, 1, -1e8)]
        self.assertEqual(tutti.reference(xs).tolist(), [0, 0])  # 1e8 + 1 is 1e8.
        self.assertEqual(tutti.reference(xs[::2] + xs[1:2]).tolist(), [1, 0])
        zeros = [np.array([0.0]), np.array([-0.0])]
        self.assertTrue(np.signbit(tutti.reference(zeros, "max"))[0])
        halves = [np.array([x], "float16") for x in (2048, 1, 1)]
        self.assertEqual(tutti.reference(halves).tolist(), [2050])

    def test_one_rank(self):
        nan = np.array([0x7f800001], "uint32").view("float32")
        self.assertEqual(tutti.reference([nan], "mean").tobytes(), nan.tobytes())
        bools = np.array([0, 1, 2, 255], "uint8").view("bool")
        self.assertEqual(tutti.reference([bools]).tobytes(), b"\0\1\1\1")

    def test_what_is_no_choice(self):
        def body(group):
            for choice in ("False", 1, []):
                self.refused("is none of True, False and None",
                             lambda: group.all_reduce(np.ones(1), reproducible=choice))
            self.assertEqual(group.all_reduce(np.ones(1), reproducible=np.True_)[0], 2)

        self.on_ranks(body)


if __name__ == "__main__":
    unittest.main()
