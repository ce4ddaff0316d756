"""tutti.average_gradients: lists, variables, policies and errors, in one process and in a group.

Values, clipping and what ranks disagree about are tested in tests/average_gradients.
"""

import types
import unittest

import numpy

import tutti
from ranks import Dlpack, RanksTest
from tutti.average_gradients import IndexedSlices, _text_of, average_gradients


def floats(*numbers):
    return numpy.asarray(numbers, "float32")


def value_error(case, function, *parts):
    """Calls `function`, which must raise an Error that is a ValueError and says the parts."""
    with case.assertRaises(ValueError) as caught:
        function()
    case.assertIsInstance(caught.exception, tutti.Error)
    for part in parts:
        case.assertIn(part, str(caught.exception))


class OneProcess(unittest.TestCase):
    def test_four_towers_of_three_variables(self):
        towers = [[(float(10 * i + t), f"var{i}_gpu{t}") for i in range(3)] for t in range(4)]
        self.assertEqual(average_gradients(towers),
                         [(1.5, "var0_gpu0"), (11.5, "var1_gpu0"), (21.5, "var2_gpu0")])

    def test_one_tower_and_none(self):
        self.assertEqual(average_gradients([[(floats(7), "w")]]), [(floats(7), "w")])
        self.assertEqual(average_gradients([]), [])
        self.assertEqual(average_gradients([[], []]), [])

    def test_variables_are_those_of_tower_0(self):
        variables = [[object(), types.SimpleNamespace(name="w:0")] for _ in range(2)]
        towers = [list(zip([floats(t), floats(t)], variables[t])) for t in range(2)]
        for (mean, variable), own in zip(average_gradients(towers), variables[0]):
            self.assertIs(variable, own)
            self.assertEqual(mean, 0.5)

    def test_paths_of_variables_come_before_their_names(self):
        kernel = types.SimpleNamespace(path="dense_1/kernel", name="kernel")
        self.assertEqual(_text_of(kernel), "dense_1/kernel")
        self.assertEqual(_text_of(types.SimpleNamespace(path=None, name="w:0")), "w:0")
        self.assertEqual(_text_of(3), "")

    def test_gradients_without_variables(self):
        mean, = average_gradients([[floats(1, 2)], [floats(3, 4)]])
        numpy.testing.assert_array_equal(mean, [2, 3])

    def test_towers_may_be_zips(self):
        towers = [zip([floats(t)], ["w"]) for t in range(2)]
        self.assertEqual(average_gradients(towers), [(0.5, "w")])

    def test_shapes_and_dtypes_are_kept(self):
        for dtype in ("float16", "float32", "float64"):
            tower = [numpy.full(shape, 3, dtype) for shape in ((), (0,), (2, 3))]
            for mean, gradient in zip(average_gradients([tower, tower]), tower):
                self.assertEqual((mean.shape, mean.dtype), (gradient.shape, gradient.dtype))
                numpy.testing.assert_array_equal(mean, gradient)

    def test_dlpack_and_strides(self):
        grid = numpy.arange(6, dtype="float32").reshape(2, 3)
        mean, = average_gradients([[Dlpack(grid.copy())], [numpy.asfortranarray(grid)]])
        numpy.testing.assert_array_equal(mean, grid)

    def test_inputs_are_not_modified_nor_shared(self):
        gradient = floats(6, 8)
        mean, = average_gradients([[gradient]], clip_norm=5)
        numpy.testing.assert_array_equal(mean, [3, 4])
        mean, = average_gradients([[gradient]])
        mean[:] = 0
        numpy.testing.assert_array_equal(gradient, [6, 8])

    def test_lengths(self):
        towers = [[floats(1), floats(2), floats(3)], [floats(3), floats(4)]]
        value_error(self, lambda: average_gradients(towers), "tower 0 has 3", "tower 1 has 2")
        self.assertEqual(average_gradients(towers, strict=False), [2, 3])

    def test_none(self):
        towers = [[(2.0, "w")], [(None, "w")], [(4.0, "w")]]
        value_error(self, lambda: average_gradients(towers), "variable 'w' is None in tower 1")
        self.assertEqual(average_gradients(towers, none="skip"), [(3.0, "w")])
        self.assertEqual(average_gradients(towers, none="zeros"), [(2.0, "w")])
        nothing = [[(None, "w")], [(None, "w")]]
        self.assertEqual(average_gradients(nothing, none="skip"), [(None, "w")])

    def test_clipping(self):
        towers = [[floats(2, 4)], [floats(4, 4)]]
        mean, = average_gradients(towers, clip_global_norm=1)
        numpy.testing.assert_array_equal(mean, floats(0.6, 0.8))
        mean, = average_gradients([[floats(6, 8)], [floats(0, 0)]], clip_norm=5)
        numpy.testing.assert_array_equal(mean, [1.5, 2])

    def test_slices(self):
        towers = [[IndexedSlices(numpy.asarray([[1., 2.]]), [1])],
                  [IndexedSlices(numpy.asarray([[3., 4.], [5., 6.]]), [1, 3])]]
        mean, = average_gradients(towers)
        self.assertEqual(mean.indices.tolist(), [1, 3])
        self.assertEqual(mean.values.tolist(), [[2, 3], [2.5, 3]])
        rows, = average_gradients(towers, sum_duplicates=False)
        self.assertEqual(rows.indices.tolist(), [1, 1, 3])

    def test_a_tower_is_a_list(self):
        pairs = [(floats(1), floats(9)), (floats(3), floats(9))]
        value_error(self, lambda: average_gradients(pairs), "not a tuple", "group=", "lists")
        value_error(self, lambda: average_gradients([tuple(pairs)] * 2), "not a tuple")
        self.assertEqual(average_gradients([pairs]), pairs)

    def test_wrong_arguments(self):
        whole = [[numpy.asarray([1], "int32")]] * 4
        value_error(self, lambda: average_gradients(whole), "i32")
        value_error(self, lambda: average_gradients([[floats(1)], [floats(1, 2)]]), "[1]", "[2]")
        value_error(self, lambda: average_gradients([[floats(1)]], none="drop"), "drop")
        value_error(self, lambda: average_gradients([[floats(1)]], none=None), "none None")
        value_error(self, lambda: average_gradients([[floats(1)]], clip_norm=0), "clip_norm")
        value_error(self, lambda: average_gradients([[floats(1)]], clip_norm="x"), "clip_norm 'x'")
        value_error(self, lambda: average_gradients([[(1.0, "a", "b")]]), "two items, not 3")
        value_error(self, lambda: average_gradients([floats(1)]), "a tower must be a list")
        value_error(self, lambda: average_gradients(5), "must be a list")
        value_error(self, lambda: average_gradients([[floats(1)]], group=5), "no tutti.Group")


class InAGroup(RanksTest):
    def test_one_tower_a_rank(self):
        def body(group):
            own = [(floats(group.rank, 1), "w"), (numpy.asarray(2.0 * group.rank), "b")]
            return average_gradients(own, group)

        for (weight, name), bias in self.on_ranks(body, 3):
            self.assertEqual((weight.tolist(), name, bias), ([1, 1], "w", (2, "b")))

    def test_several_towers_a_rank(self):
        def body(group):
            return average_gradients([[floats(t)] for t in range(group.rank + 1)], group)

        self.assertEqual(self.on_ranks(body), [[floats(1) / 3]] * 2)

    def test_none_on_a_rank(self):
        def body(group):
            own = [floats(2, 4) if group.rank else None, None]
            return average_gradients(own, group, none="skip")

        for weight, bias in self.on_ranks(body):
            self.assertEqual((weight.tolist(), bias), ([2, 4], None))

    def test_none_is_an_error_on_every_rank(self):
        def body(group):
            own = [(floats(2) if group.rank else None, "w")]
            value_error(self, lambda: average_gradients(own, group), "variable 'w' is None")
            return average_gradients([floats(1)], group)

        self.assertEqual(self.on_ranks(body), [[1], [1]])

    def test_a_refusal_of_one_rank_leaves_all_in_step(self):
        def wrong_calls(group):
            return (lambda: average_gradients(5, group),
                    lambda: average_gradients([(1.0, "w", "v")], group),
                    lambda: average_gradients([1.0], group, none=None),
                    lambda: average_gradients([1.0], group, clip_norm="x"),
                    lambda: average_gradients([1.0], group, strategy=5),
                    lambda: average_gradients([1.0], group, reproducible="yes"),
                    lambda: average_gradients([object()], group),
                    lambda: average_gradients([((1.0, "w"), (1.0, "w"))], group))

        def body(group):
            means = []
            for number, wrong in enumerate(wrong_calls(group)):
                if group.rank == 1:
                    self.assertRaises(tutti.Error, wrong)
                else:
                    value_error(self, lambda: average_gradients([1.0], group),
                                "rank 1 refused the call: ")
                means += average_gradients([float(number + group.rank)], group)
            return means

        self.assertEqual(self.on_ranks(body, 3), [[number + 1 for number in range(8)]] * 3)

    def test_reproducible(self):
        value_error(self, lambda: average_gradients([[1.0]], reproducible="yes"),
                    "'yes' is none of True, False and None")

    def test_slices(self):
        def body(group):
            rows = 1 + group.rank
            own = IndexedSlices(numpy.ones((rows, 2)), numpy.arange(rows), (4, 2))
            mean, = average_gradients([own], group)
            return mean.indices.tolist(), mean.values.tolist(), mean.dense_shape

        self.assertEqual(self.on_ranks(body), [([0, 1], [[1, 1], [.5, .5]], (4, 2))] * 2)


if __name__ == "__main__":
    unittest.main()
