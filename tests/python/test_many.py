"""all_reduce_many()."""

import threading
import unittest

import numpy as np
from ranks import FAILING_COUNT, Dlpack, RanksTest

import tutti


class Many(RanksTest):
    def test_in_place_of_every_size(self):
        def body(group):
            xs = [np.full(size, group.rank + size, np.float32) for size in (3, 0, 1, 100_000, 70)]
            self.assertTrue(all(a is b for a, b in zip(group.all_reduce_many(xs), xs)))
            for x in xs:
                np.testing.assert_array_equal(x, np.full(x.size, 2 * x.size + 1, np.float32))

        self.on_ranks(body)

    def test_mixed_dtypes_memories_and_shapes_keep_their_order(self):
        def body(group):
            shared = group.empty((2, 2), "float64")
            shared[...] = 1.5
            base = np.ones((4, 6), np.float32)
            xs = [np.full(3, 2, np.int64), shared, base[:, ::2], np.float32(group.rank)]
            outs = [np.zeros(3, np.int64), np.zeros((2, 2)), base[:, ::2],
                    np.zeros((), np.float32)]
            results = group.all_reduce_many(xs, outs=outs)
            self.assertEqual([r is o for r, o in zip(results, outs)], [True] * 4)
            self.assertEqual(outs[0].tolist(), [4, 4, 4])
            self.assertEqual(outs[1].tolist(), [[3, 3], [3, 3]])
            self.assertEqual(base.tolist(), [[2, 1] * 3] * 4)
            self.assertEqual(float(outs[3]), 1)
            self.assertEqual(xs[0].tolist(), [2, 2, 2])

        self.on_ranks(body)

    def test_empty_lists(self):
        def body(group):
            self.assertEqual(group.all_reduce_many([]), [])
            self.assertEqual(group.all_reduce_many([np.zeros(0)])[0].size, 0)

        self.on_ranks(body)

    def test_thousands_with_op_and_strategy(self):
        def body(group):
            xs = [np.full(i % 50, 2.0 * group.rank) for i in range(2000)]
            work = group.all_reduce_many(iter(xs), op="mean", strategy="ring", blocking=False)
            results = work.wait(timeout=20)
            self.assertTrue(work.done())
            self.assertEqual(len(results), 2000)
            self.assertTrue(all((x == 1).all() for x in results))
            self.assertIs(work.wait(), results)

        self.on_ranks(body)

    def test_bf16_by_name(self):
        def body(group):
            xs = [np.array([1, 2], np.uint16), np.array([3], np.uint16)]
            group.all_reduce_many(xs, dtype="bf16")  # Subnormals add as integers do.
            self.assertEqual([x.tolist() for x in xs], [[2, 4], [6]])

        self.on_ranks(body)

    def test_the_first_error_is_raised_after_all_have_ended(self):
        def body(group):
            xs = [np.zeros(FAILING_COUNT, np.float32), np.ones(3, np.int32)]
            with self.assertRaises(tutti.Error) as caught:
                group.all_reduce_many(xs)
            self.assertEqual(caught.exception.code, "FAILED_PRECONDITION")
            self.assertEqual(xs[1].tolist(), [2, 2, 2])
            group.barrier()

        self.on_ranks(body)

    def test_a_work_may_be_waited_for_again_after_a_timeout(self):
        waited = threading.Event()

        def body(group):
            xs = [np.ones(3), np.ones(2, np.float32)]
            if group.rank == 1:
                waited.wait(20)
            work = group.all_reduce_many(xs, blocking=False)
            if group.rank == 0:
                self.assertFalse(work.done())
                with self.assertRaises(tutti.Error) as caught:
                    work.wait(timeout=0.01)
                waited.set()
                self.assertEqual(caught.exception.code, "DEADLINE_EXCEEDED")
            self.assertEqual([x.sum() for x in work.wait()], [6, 4])

        self.on_ranks(body)

    def test_arguments_by_position(self):
        def body(group):
            xs = [np.array([1, 2], np.uint16), np.array([3], np.uint16)]
            outs = [np.zeros_like(x) for x in xs]
            got = group.all_reduce_many(xs, "sum", "ring", outs, 20, True, "bf16")
            self.assertIs(got[0], outs[0])
            self.assertEqual([x.tolist() for x in outs], [[2, 4], [6]])
            self.assertEqual([x.tolist() for x in xs], [[1, 2], [3]])
            work = group.all_reduce_many([np.ones(2)], "premul_sum", None, None, 20, False, None,
                                         0.5)
            self.assertEqual(work.wait()[0].tolist(), [1, 1])

        self.on_ranks(body)

    def test_refused_arguments_by_position(self):
        """Rank 1's call is as many operations as that of rank 0: by its outs, and by its dtype."""
        def body(group):
            new = [np.ones(2, np.float32), np.ones(3)]
            outs = [np.ones(2, np.float32), np.ones(3)]
            with self.assertRaises(tutti.Error):
                group.all_reduce_many(["text", new[1]] if group.rank else new, "sum", None, outs)
            self.assertEqual(group.all_reduce(np.full(2, 3.0))[0], 6)
            as_bf16 = [np.ones(2, np.uint16),
                       Dlpack(np.ones(2, np.uint16).view("V2"), read_only=group.rank == 1)]
            with self.assertRaises(tutti.Error):
                group.all_reduce_many(as_bf16, "sum", None, None, 20, True, "bf16")
            self.assertEqual(group.all_reduce(np.full(2, 4.0))[0], 8)

        self.on_ranks(body)

    def test_wrong_arguments_are_named(self):
        def body(group):
            x = np.zeros(3)
            self.assert_invalid("1 arrays but 2 outputs", group.all_reduce_many, [x], outs=[x, x])
            self.assert_invalid("out has shape", group.all_reduce_many, [x], outs=[np.zeros(2)])
            self.assert_invalid("read-only", group.all_reduce_many, [x, 3.0])
            self.assert_invalid("op 'avg'", group.all_reduce_many, [x], op="avg")

        self.on_ranks(body)

    def test_torch_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")

        def body(group):
            xs = [torch.ones(3), torch.ones(2, 2, dtype=torch.bfloat16)]
            self.assertIs(group.all_reduce_many(xs[:1])[0], xs[0])
            self.assertEqual(xs[0].tolist(), [2, 2, 2])

        self.on_ranks(body)


if __name__ == "__main__":
    unittest.main()
