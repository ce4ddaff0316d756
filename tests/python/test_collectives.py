"""Results of the collectives, for every kind of array."""

import gc
import select
import threading
import unittest

import numpy as np
from ranks import Dlpack, RanksTest

import tutti


class Collectives(RanksTest):
    def test_group_attributes(self):
        def body(group):
            self.assertEqual(group.world_size, 2)
            self.assertEqual(group.epoch, 1)
            self.assertEqual(group.hosts, ["a", "b"])
            return group.rank

        self.assertEqual(self.on_ranks(body), [0, 1])

    def test_all_reduce_in_place_and_out_of_place(self):
        def body(group):
            x = np.arange(6, dtype=np.float32).reshape(2, 3) + group.rank
            y = group.all_reduce(x, op="mean", strategy="tree:2")
            self.assertIs(y, x)
            np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3) + 0.5)
            out = np.zeros((2, 3), np.float32)
            self.assertIs(group.all_reduce(x, op="max", out=out, strategy=("ring", "auto")), out)
            np.testing.assert_array_equal(out, x)
            np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3) + 0.5)

        self.on_ranks(body)

    def test_premul_sum_multiplies_inputs(self):
        def body(group):
            half_or_double = {"op": "premul_sum", "factor": 2 if group.rank == 1 else 0.5}
            x = np.array([2, 4], np.float32)
            out = group.all_reduce(x, out=np.zeros(2, np.float32), **half_or_double)
            self.assertEqual((x.tolist(), out.tolist()), ([2, 4], [5, 10]))
            self.assertEqual(group.reduce_scatter(x, **half_or_double).tolist(),
                             [[5], [10]][group.rank])
            shared = group.empty(3, "float64")
            shared[...] = 1
            group.reduce(shared, root=1, **half_or_double)
            self.assertEqual(shared.tolist(), [[1] * 3, [2.5] * 3][group.rank])
            ys = group.all_reduce_many([out, np.ones(2)], blocking=False, **half_or_double).wait()
            self.assertEqual([y.tolist() for y in ys], [[12.5, 25], [2.5, 2.5]])
            self.assertEqual(group.all_reduce(x, op="premul_sum").tolist(), [4, 8])
            self.assert_invalid('factor= is for op="premul_sum"', group.all_reduce, x, factor=2)
            self.assert_invalid("no real number", group.all_reduce, x, op="premul_sum", factor="2")
            self.assert_invalid("PREMUL_SUM needs a floating-point dtype", group.all_reduce,
                                np.zeros(2, np.int32), op="premul_sum", factor=2)

        self.on_ranks(body)

    def test_bf16_by_name(self):
        def body(group):
            x = np.array([1, 2, 3], np.uint16)  # Subnormals add as integers do.
            group.all_reduce(x, dtype="bf16")
            np.testing.assert_array_equal(x, [2, 4, 6])
            self.assert_invalid("use SUM and divide", group.all_reduce, x, op="mean")  # Integers.
            self.assert_invalid("does not hold", group.all_reduce, np.zeros(2, np.float32),
                                dtype="i32")

        self.on_ranks(body)

    def test_strided_arrays_are_read_and_written_in_place(self):
        def body(group):
            base = np.arange(12, dtype=np.float64).reshape(3, 4)
            expected = base.copy()
            view = base.T[1:3]
            expected.T[1:3] *= 2
            self.assertIs(group.all_reduce(view), view)
            np.testing.assert_array_equal(base, expected)
            reverse = np.arange(4, dtype=np.int32)[::-1]
            group.all_reduce(reverse)
            np.testing.assert_array_equal(reverse, [6, 4, 2, 0])
            out = np.zeros((2, 4))[:, ::2]
            group.all_reduce(np.ones((2, 2)), out=out)
            np.testing.assert_array_equal(out, np.full((2, 2), 2.0))
            np.testing.assert_array_equal(out.base, [[2, 0, 2, 0]] * 2)

        self.on_ranks(body)

    def test_reduce(self):
        def body(group):
            x = np.array([1.0, 2.0]) + group.rank
            result = group.reduce(x, root=1)
            if group.rank == 1:
                self.assertIs(result, x)
                np.testing.assert_array_equal(x, [3, 5])
            else:
                self.assertIsNone(result)
                np.testing.assert_array_equal(x, [1, 2])
                x.flags.writeable = False  # An input only: it need not be writable.
            return group.reduce(x, root=1, op="max") is None

        self.assertEqual(self.on_ranks(body), [True, False])

    def test_broadcast(self):
        def body(group):
            x = np.array([7, 8] if group.rank == 1 else [0, 0], np.int64)
            x.flags.writeable = group.rank != 1
            np.testing.assert_array_equal(group.broadcast(x, root=1), [7, 8])
            strided = np.zeros((2, 2), np.float32)
            group.broadcast(np.ones(2, np.float32) if group.rank == 0 else strided[:, 0])
            return strided.tolist()

        self.assertEqual(self.on_ranks(body)[1], [[1, 0], [1, 0]])

    def test_all_gather(self):
        def body(group):
            x = np.full((2, 3), group.rank, np.float32)
            y = group.all_gather(x)
            self.assertEqual((y.shape, y.dtype), ((4, 3), np.float32))
            np.testing.assert_array_equal(y[:2], 0 * x)
            np.testing.assert_array_equal(y[2:], 0 * x + 1)
            self.assertEqual(group.all_gather(np.float32(group.rank)).tolist(), [0, 1])
            self.assertEqual(group.all_gather(5 + group.rank).tolist(), [5, 6])
            out = np.zeros((2, 1), np.int64)
            self.assertIs(group.all_gather([group.rank], out=out.reshape(2)).base, out)
            self.assertEqual(out.tolist(), [[0], [1]])
            self.assertEqual(group.all_gather(np.zeros((0, 5))).shape, (0, 5))

        self.on_ranks(body)

    def test_reduce_scatter(self):
        def body(group):
            x = np.arange(8, dtype=np.int32).reshape(4, 2)
            y = group.reduce_scatter(x)
            np.testing.assert_array_equal(y, 2 * x[2 * group.rank:2 * group.rank + 2])
            self.assert_invalid("cut shape [3]", group.reduce_scatter, np.zeros(3))
            self.assert_invalid("cut shape []", group.reduce_scatter, np.float32(1))

        self.on_ranks(body)

    def test_gather_and_scatter(self):
        def body(group):
            x = np.full((2, 3), group.rank, np.float32)
            y = group.gather(x, root=1)
            if group.rank == 0:
                self.assertIsNone(y)
                out = np.zeros((2, 3), np.float32)
                self.assertIs(group.scatter(None, root=1, out=out), out)
                np.testing.assert_array_equal(out, 0 * x)
                self.assert_invalid("out on every rank but the root", group.scatter, None, root=1)
            else:
                self.assertEqual(y.shape, (4, 3))
                np.testing.assert_array_equal(y[:2], 0 * x)
                np.testing.assert_array_equal(y[2:], x)
                np.testing.assert_array_equal(group.scatter(y, root=1), x)
                self.assert_invalid("cut shape [3]", group.scatter, np.zeros(3), root=1)

        self.on_ranks(body)

    def test_all_gather_v(self):
        def body(group):
            x = np.full((1 + group.rank, 3), group.rank, np.float32)
            y = group.all_gather_v(x, [1, 2])
            self.assertEqual((y[:, 0].tolist(), y.shape), ([0, 1, 1], (3, 3)))
            mine = [7] if group.rank == 0 else np.zeros(0, np.int64)
            self.assertEqual(group.all_gather_v(mine, [1, 0]).tolist(), [7])
            self.assert_invalid("give one for each of the 2 ranks", group.all_gather_v, x, [1])
            self.assert_invalid("does not begin with sizes[rank], 5", group.all_gather_v, x, [5, 5])
            self.assert_invalid("out of range", group.all_gather_v, x, [1, -2])

        self.on_ranks(body)

    def test_reduce_scatter_v(self):
        def body(group):
            x = np.arange(6, dtype=np.int32).reshape(3, 2)
            y = group.reduce_scatter_v(x, [2, 1], op="max")
            np.testing.assert_array_equal(y, [x[:2], x[2:]][group.rank])
            self.assert_invalid("sum(sizes), 4", group.reduce_scatter_v, x, [2, 2])

        self.on_ranks(body)

    def test_all_to_all_v(self):
        def body(group):
            x = np.arange(4, dtype=np.float64) + 10 * group.rank
            sent, received = [([1, 3], [1, 0]), ([0, 4], [3, 4])][group.rank]
            work = group.all_to_all_v(x, sent, received, blocking=False)
            self.assertEqual(work.wait().tolist(), [[0], [1, 2, 3, 10, 11, 12, 13]][group.rank])
            with self.assertRaisesRegex(tutti.Error, "rank 0 sends 3 elements to rank 1, which "
                                                     "expects 2"):
                group.all_to_all_v(x, sent, [1, 0] if group.rank == 0 else [2, 4])
            self.assert_invalid("sum(in_sizes), 5", group.all_to_all_v, x, [1, 4], received)

        self.on_ranks(body)

    def test_messages(self):
        def body(group):
            other = 1 - group.rank
            x = np.arange(6, dtype=np.float64).reshape(2, 3)[:, ::2]
            if group.rank == 0:
                group.send(x, 1, tag=7)
                self.assertIsNone(group.send(x + 1, 1, blocking=False).wait())
            else:
                into = np.zeros((2, 4))[:, ::2]
                self.assertEqual(group.recv(into), 0)
                np.testing.assert_array_equal(into, x + 1)
                self.assertEqual(group.recv(into, source=0, tag=7), 0)
                np.testing.assert_array_equal(into, x)
            work = group.recv(got := np.zeros(4, np.int32), source=other, blocking=False)
            group.send(np.full(4, group.rank, np.int32), other)
            self.assertEqual((work.wait(), got.tolist()), (other, [other] * 4))
            with self.assertRaisesRegex(tutti.Error, "rank 1 .*no such message within 50 ms"
                                        if group.rank == 0 else "rank 0"):
                group.recv(np.zeros(1), source=other, tag=3, timeout=0.05)
            group.barrier()  # A send with a wrong tag fails the other rank's next receive.
            self.assert_invalid("is this rank itself", group.send, x, group.rank)
            self.assert_invalid("destination 2 is no rank", group.send, x, 2)
            self.assert_invalid("out of range", group.send, x, other, tag=-1)
            group.barrier()

        self.on_ranks(body)

    def test_all_to_all(self):
        def body(group):
            x = np.arange(8, dtype=np.int64).reshape(4, 2) + 100 * group.rank
            y = group.all_to_all(x)
            mine = slice(2 * group.rank, 2 * group.rank + 2)
            own = np.arange(8).reshape(4, 2)
            np.testing.assert_array_equal(y[:2], own[mine])
            np.testing.assert_array_equal(y[2:], own[mine] + 100)
            np.testing.assert_array_equal(x, own + 100 * group.rank)
            self.assertIs(group.all_to_all(x, out=x), x)  # Copied, as it is no shared memory.
            np.testing.assert_array_equal(x, y)
            self.assert_invalid("cut shape [3]", group.all_to_all, np.zeros(3))

        self.on_ranks(body)

    def test_a_work_can_be_selected(self):
        def body(group):
            x = np.full(3, group.rank + 1.0)
            work = group.all_reduce(x, blocking=False)
            readable, _, _ = select.select([work], [], [], 20)
            self.assertEqual(readable, [work])
            self.assertTrue(work.done())
            np.testing.assert_array_equal(work.wait(), [3, 3, 3])
            self.assertEqual(work.fileno(), work.fileno())

        self.on_ranks(body)

    def test_barrier_and_subgroup(self):
        def body(group):
            group.barrier()
            both = group.subgroup([1, 0])
            self.assertEqual(both.rank, 1 - group.rank)
            self.assertEqual(both.hosts, ["b", "a"])
            self.assertEqual(both.all_gather(np.int64(group.rank)).tolist(), [1, 0])
            self.assert_invalid("not of the sub-group", group.subgroup, [1 - group.rank])
            self.assert_invalid("5 is no list of ranks", group.subgroup, 5)

        self.on_ranks(body)


class Arrays(RanksTest):
    def test_dlpack_is_read_and_written(self):
        def body(group):
            x = Dlpack(np.ones((2, 2), np.float32))
            self.assertIs(group.all_reduce(x), x)
            self.assertEqual(x.array.tolist(), [[2, 2], [2, 2]])
            columns = Dlpack(np.arange(6, dtype=np.int64).reshape(2, 3)[:, 1])
            group.all_reduce(columns)
            self.assertEqual(columns.array.tolist(), [2, 8])
            self.assertEqual(group.all_gather(columns).tolist(), [2, 8, 2, 8])
            self.assert_invalid("none of", group.all_reduce, Dlpack(np.zeros(2, np.complex64)))
            with self.assertRaises(tutti.Error) as caught:
                group.all_reduce(Dlpack(np.zeros(2), device=8))  # kDLMetal
            self.assertEqual(caught.exception.code, "UNIMPLEMENTED")

        self.on_ranks(body)

    def test_torch_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")

        def body(group):
            x = torch.ones(4, dtype=torch.bfloat16)
            self.assertIs(group.broadcast(x), x)
            y = group.all_gather(torch.full((2,), float(group.rank)))
            self.assertEqual(y.tolist(), [0, 0, 1, 1])

        self.on_ranks(body)

    def test_wrong_arrays_are_refused(self):
        def body(group):
            frozen = np.zeros(3)
            frozen.flags.writeable = False
            self.assert_invalid("read-only", group.all_reduce, frozen)
            self.assert_invalid("read-only", group.all_reduce, np.zeros(3), out=frozen)
            self.assert_invalid("is no tensor", group.all_reduce, "text")
            self.assert_invalid("dtype 'complex64'", group.all_reduce, np.zeros(3, np.complex64))
            self.assert_invalid("byte order", group.all_reduce, np.zeros(3, ">f4"))
            self.assert_invalid("out has shape [2]", group.all_reduce, np.zeros(3), out=np.zeros(2))
            self.assert_invalid("of f32", group.all_reduce, np.zeros(3), out=np.zeros(3, "f4"))

        self.on_ranks(body)

    def test_empty_is_shared_and_outlives_the_group(self):
        def body(group):
            x = group.empty((4, 2), "float32")
            self.assertEqual((x.shape, x.dtype), ((4, 2), np.float32))
            self.assertEqual(x.ctypes.data % 64, 0)
            x[...] = group.rank + 1
            group.all_reduce(x)
            self.assertEqual(group.empty(0).shape, (0,))
            self.assertEqual(group.empty(3, "bf16").dtype, np.uint16)
            first = group.empty(10).ctypes.data
            self.assertEqual(group.empty(10).ctypes.data, first)  # Freed with its array, so reused.
            row = x[1]
            del x
            group.leave()
            return row

        rows = self.on_ranks(body)
        gc.collect()
        for row in rows:
            self.assertEqual(row.tolist(), [3, 3])

    def test_memory_of_a_dropped_work_is_not_reused_early(self):
        looked = threading.Event()

        def body(group):
            if group.rank == 0:
                x = group.empty(100)
                address = x.ctypes.data
                group.all_reduce(x, blocking=False)
                del x
                gc.collect()
                other = group.empty(100).ctypes.data
                looked.set()
                self.assertNotEqual(other, address)
            else:
                looked.wait(20)
                group.all_reduce(np.zeros(100, np.float32))
            group.barrier()

        self.on_ranks(body)


if __name__ == "__main__":
    unittest.main()
