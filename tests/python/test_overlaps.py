"""Arrays that are not contiguous, and share elements with others of a call, or of one under way."""

import gc
import os
import time
import unittest

import numpy as np
from numpy.lib.stride_tricks import as_strided
from ranks import FAILING_COUNT, Dlpack, RanksTest

import tutti
from tutti import _overlap

# By verb: the shapes of input and output at 2 ranks of rows of 3, and the arguments between.
_VERBS = {"all_reduce": (4, 4, ()), "reduce": (4, 4, (0,)), "all_gather": (2, 4, ()),
          "reduce_scatter": (4, 2, ()), "gather": (2, 4, (0,)), "scatter": (4, 2, (0,)),
          "all_to_all": (4, 4, ()), "all_gather_v": (2, 4, ([2, 2],)),
          "reduce_scatter_v": (4, 2, ([2, 2],)), "all_to_all_v": (4, 4, ([2, 2], [2, 2]))}
# Places of an array of rows of 3 in one of 20 x 8.
_PLACES = {"rows": lambda base, rows: base[1:1 + rows, 1:4],
           "every second": lambda base, rows: base[0:2 * rows:2, 0:6:2],
           "backwards": lambda base, rows: base[rows - 1::-1, 2:5],
           "the rows before": lambda base, rows: base[:rows, 0:3],
           "contiguous": lambda base, rows: base.reshape(-1)[:3 * rows].reshape(rows, 3)}
# Two arrays in one of 10 x 4 that share elements, at least one of which is not contiguous.
_SHARING = {"rows and a column": lambda base: (base[2:3], base[:, 1]),
            "a column twice, cut": lambda base: (base[:6, 0], base[4:, 0]),
            "one within another": lambda base: (base[::2], base[2:5, 1:3]),
            "backwards": lambda base: (base[5::-1, 0], base[3:, 0]),
            "transposed": lambda base: (base[1:4], base.T[1:3])}
_APART = {"interleaved": lambda base: (base[::2], base[1::2]),
          "columns": lambda base: (base[:, :2], base[:, 2:]),
          "a column and rest": lambda base: (base[:, :3], base[:, 3]),
          "both whole": lambda base: (base[:3], base[3:])}


def _base(group, shape=(10, 4)):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) * (group.rank + 1)


class OneOperation(RanksTest):
    """The input is read before the output is written: the result is that of separate arrays."""

    def check(self, group, verb, from_, to):
        rows_in, rows_out, arguments = _VERBS[verb]
        base = _base(group, (20, 8))
        x, out = _PLACES[from_](base, rows_in), _PLACES[to](base, rows_out)
        has_result = verb not in ("reduce", "gather") or group.rank == 0
        right = np.zeros((rows_out, 3), np.float32)
        getattr(group, verb)(x.copy(), *arguments, out=right)
        for blocking in (True, False):
            base[...] = _base(group, (20, 8))
            given = np.ascontiguousarray(x)
            result = getattr(group, verb)(x, *arguments, out=out, blocking=blocking)
            if not blocking:
                result.wait()
            same = out if has_result else x
            self.assertEqual(same.tolist(), (right if has_result else given).tolist())

    def test_every_verb(self):
        def body(group):
            for verb in _VERBS:
                for from_ in _PLACES:
                    for to in _PLACES:
                        if "contiguous" not in (from_, to) or from_ != to:
                            with self.subTest(verb=verb, input=from_, output=to):
                                self.check(group, verb, from_, to)

        self.on_ranks(body)


class Lists(RanksTest):
    def refuse(self, group, xs, **options):
        self.assert_invalid("tensors 0 and 1 of the list overlap, and the operation writes there",
                            group.all_reduce_many, xs, **options)

    def test_outputs_that_overlap(self):
        def body(group):
            for name, views in _SHARING.items():
                for turn in (1, -1):
                    with self.subTest(name, turn=turn):
                        outs = views(base := _base(group))[::turn]
                        self.refuse(group, [out.copy() for out in outs], outs=outs)
                        self.assertEqual(base.tolist(), _base(group).tolist())

        self.on_ranks(body)

    def test_arrays_in_place_that_overlap(self):
        def body(group):
            for name, views in _SHARING.items():
                with self.subTest(name):
                    self.refuse(group, views(_base(group)))
                    shared = group.empty((10, 4))
                    shared[...] = 1
                    self.refuse(group, [Dlpack(x) for x in views(shared)])

        self.on_ranks(body)

    def test_an_output_that_overlaps_another_input(self):
        def body(group):
            for name, views in _SHARING.items():
                with self.subTest(name):
                    one, other = views(_base(group))
                    self.refuse(group, [one.copy(), other], outs=[one, other.copy()])
                    self.refuse(group, [one.view(np.int32), other],
                                outs=[one.view(np.int32), other.copy()])

        self.on_ranks(body)

    def test_inputs_that_overlap(self):
        def body(group):
            for name, views in _SHARING.items():
                with self.subTest(name):
                    xs = views(_base(group))
                    for x, out in zip(xs, group.all_reduce_many(xs, outs=[x.copy() for x in xs])):
                        self.assertEqual(out.tolist(), (x / (group.rank + 1) * 3).tolist())

        self.on_ranks(body)

    def test_arrays_that_share_nothing(self):
        def body(group):
            for name, views in _APART.items():
                with self.subTest(name):
                    base = _base(group)
                    one, other = views(base)
                    group.all_reduce_many([one, other])
                    self.assertEqual(base[:2].tolist(), [[0, 3, 6, 9], [12, 15, 18, 21]])

        self.on_ranks(body)

    def test_arrays_of_several_dtypes(self):
        """Each dtype is an operation, also of an array that is listed as two."""
        def body(group):
            for base in (np.ones((10, 4), np.float32), group.empty((10, 4))):
                for one, other in ((base, base), (base[:, 0], base[:, 0]), (base[2:], base[:3]),
                                   (base[:, :3], base)):
                    self.refuse(group, [one, other.view(np.int32)])
                    new = [np.ones_like(one), np.ones_like(other, np.int32)]
                    self.refuse(group, new, outs=[one, other.view(np.int32)])
            halves = np.ones(4, np.float32), np.ones(4, np.float32)
            group.all_reduce_many([halves[0], halves[1].view(np.int32), halves[0]])
            self.assertEqual(halves[0].tolist(), [2] * 4)

        self.on_ranks(body)

    def test_a_column_each_of_many(self):
        def body(group):
            base = np.full((5, 300), group.rank + 1.0)
            group.all_reduce_many([base[:, i] for i in range(300)])
            self.assertTrue((base == 3).all())

        self.on_ranks(body)

    def test_an_array_that_is_listed_again_is_reduced_once(self):
        """Also where it is contiguous on the other rank, which leaves it out of the list."""
        def body(group):
            base = _base(group)
            whole = base[:, :1].copy() if group.rank else base[:, :1]
            self.assertIs(group.all_reduce_many([whole, np.ones(3), whole[:]])[0], whole)
            self.assertEqual(whole.tolist(), [[12.0 * i] for i in range(10)])
            out = base[:, 1]
            group.all_reduce_many([base[:, 2], base[:, 2]], outs=[out, out])
            self.assertEqual(out[:2].tolist(), [6, 18])

        self.on_ranks(body)

    def test_elements_that_lie_on_each_other(self):
        def body(group):
            base = np.arange(20.0)
            for shape, strides in (((3, 4), (0, 8)), ((3, 4), (16, 8)), ((4, 3), (8, -16))):
                out = as_strided(base[8:], shape, strides)
                for call in (lambda: group.all_reduce(out),
                             lambda: group.all_reduce(np.ones(shape), out=out),
                             lambda: group.broadcast(out, root=1 - group.rank),
                             lambda: group.all_reduce_many([out])):
                    self.assert_invalid("elements of the array to write to have the same memory",
                                        call)
            self.assertEqual(base.tolist(), list(range(20)))
            steps = as_strided(base, (3, 4), (32, 8))
            self.assertEqual(group.all_reduce(steps[:, ::-1])[0].tolist(), [6, 4, 2, 0])

        self.on_ranks(body)


class UnderWay(RanksTest):
    """Arrays that an operation under way uses. Each call is refused on both ranks."""

    WORDS = "an operation under way uses as well; wait for that first"

    def test_what_is_written_later(self):
        def body(group):
            for base in (group.empty((6, 4)), np.empty((6, 4), np.float32)):
                base[...] = group.rank + 1
                work = group.all_reduce(base[:, ::2], blocking=False)
                for call in (lambda: group.all_reduce(base), lambda: group.all_reduce(base[:, ::2]),
                             lambda: group.all_reduce_many([base[1]]),
                             lambda: group.all_gather(base[:, 0]),
                             lambda: group.broadcast(base[1], root=group.rank)):
                    self.assert_invalid(self.WORDS, call)
                group.all_reduce(base[:, 1::2])
                work.wait()
                self.assertTrue((base == 3).all())
                group.all_reduce(base[:, ::2])
                self.assertEqual(base[0].tolist(), [6, 3, 6, 3])

        self.on_ranks(body)

    def test_what_is_copied_while_it_is_written(self):
        """Rank 1 sends only what rank 0 begins to receive, after rank 0 has tried."""
        def body(group):
            if group.rank == 1:
                self.assert_invalid(self.WORDS, group.all_reduce, np.ones(12))
                self.assert_invalid(self.WORDS, group.recv, np.ones(12), source=0)
                return group.send(np.full((6, 4), 2.0), 0)
            base = np.ones((6, 4))
            work = group.recv(base, source=1, blocking=False)
            self.assert_invalid(self.WORDS, group.all_reduce, base[:, ::2])
            self.assert_invalid(self.WORDS, group.send, base[:, ::2], 1)
            work.wait()
            return base.tolist()

        self.assertEqual(self.on_ranks(body)[0], [[2.0] * 4] * 6)

    def test_what_has_ended_but_was_not_waited_for(self):
        """Only the wait copies the result to ordinary memory."""
        def body(group):
            for view in (lambda x: x, lambda x: x[2:5], lambda x: x[::2], lambda x: x[::-1]):
                for under_way in (lambda x: x, lambda x: x[1:], lambda x: x[1::2]):
                    x = np.full(9, group.rank + 1.0)
                    x[::2] = 1  # What only one of the two has in common with itself.
                    work = group.all_reduce(under_way(x), blocking=False)
                    while not work.done():
                        time.sleep(0.001)
                    if np.shares_memory(view(x), under_way(x)):
                        self.assert_invalid(self.WORDS, group.all_reduce, view(x))
                        self.assert_invalid(self.WORDS, group.all_reduce_many,
                                            [np.ones(2), view(x)])
                    else:
                        group.all_reduce(view(x))
                    work.wait()
                    group.all_reduce(view(x))

        self.on_ranks(body)

    def test_what_is_no_longer_used(self):
        """Memory of empty() that an operation had; ordinary memory that one has read."""
        def body(group):
            shared, ordinary = group.empty((6, 4)), np.ones((6, 4), np.float32)
            shared[...] = 1
            work = group.all_reduce(shared, blocking=False)
            while not work.done():
                time.sleep(0.001)
            group.all_reduce(shared)
            self.assert_invalid(self.WORDS, group.all_reduce, shared[:, ::2])
            self.assertEqual(work.wait()[0].tolist(), [4] * 4)
            works = [group.all_gather(x, blocking=False) for x in (ordinary, ordinary[:, ::2])]
            group.all_reduce(ordinary[:, ::2])
            group.all_reduce(ordinary[:, 1::2])
            self.assertEqual([work.wait().max() for work in works], [1, 1])
            work = group.all_gather(shared, blocking=False)
            self.assert_invalid(self.WORDS, group.all_reduce, shared[:, ::2])
            work.wait()

        self.on_ranks(body)

    def test_a_list_beside_a_list(self):
        def body(group):
            base = np.ones((2000, 4), np.float32)
            work = group.all_reduce_many(list(base[:1000, ::2]), blocking=False)
            group.all_reduce_many(list(base[:, 1::2]))
            group.all_reduce_many(list(base[1000:, ::2]))
            self.assert_invalid(self.WORDS, group.all_reduce_many, list(base[999:, ::2]))
            work.wait()
            self.assertTrue((base == 2).all())

        self.on_ranks(body)

    def test_a_child_has_no_operations(self):
        def body(group):
            work = group.all_reduce(np.ones(3), blocking=False)
            child = os.fork()
            if child == 0:
                os._exit(len(_overlap._copying) + len(_overlap._plain))
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            work.wait()

        self.on_ranks(body, 1)

    def test_a_list(self):
        def body(group):
            base = np.ones((6, 4), np.float32)
            other = np.ones(3)
            work = group.all_reduce_many([base[:, 0], other, base[:, 1]], blocking=False)
            self.assert_invalid(self.WORDS, group.all_reduce, base)
            self.assert_invalid(self.WORDS, group.all_reduce, other[::2])
            work.wait()
            self.assertEqual(group.all_reduce(base)[0].tolist(), [4, 4, 2, 2])

        self.on_ranks(body)

    def test_works_that_are_dropped_or_fail(self):
        def body(group):
            base = np.ones((6, 4), np.float32)
            group.all_reduce(base[:, ::2], blocking=False)
            group.all_reduce(base)
            group.recv(base[:1, 0], source=1 - group.rank, blocking=False)
            group.all_reduce(base)
            long = np.ones((FAILING_COUNT, 2), np.float32)
            work = group.all_reduce(long[:, 0], blocking=False)
            with self.assertRaisesRegex(tutti.Error, "FAILED_PRECONDITION"):
                work.wait()
            self.assertEqual(group.all_reduce(long[:5]).sum(), 20)

        gc.collect()  # What others have left.
        before = len(_overlap._copying), len(_overlap._plain)
        self.on_ranks(body)
        gc.collect()
        self.assertEqual((len(_overlap._copying), len(_overlap._plain)), before)


if __name__ == "__main__":
    unittest.main()
