"""What every door of the Python faces takes as a value, in which structures, and how it refuses
what it cannot convert."""

import collections
import dataclasses
import enum
import functools
import itertools
import time
import types
import unittest
from unittest import mock

import numpy as np
from ranks import Dlpack, RanksTest

import tutti
from tutti import burn, cross_device, distribute
from tutti.average_gradients import average_gradients
from tutti.cross_device import IndexedSlices, PerReplica


def doors(x):
    """{name of the argument: calls that take x there, with one replica, peer or tower}."""
    strategy, ops = distribute.Strategy(), cross_device.HierarchicalCopyAllReduce()
    collective = burn.Collective()
    collective.register(0, "cpu", burn.CollectiveConfig())

    def replica(call):
        return lambda: strategy.run(lambda: call(distribute.get_replica_context()))

    def variable():
        with strategy.scope():
            return distribute.Variable(x)

    return {
        "per_replica_value": [lambda: ops.reduce("SUM", PerReplica([x]), "CPU:0"),
                              lambda: ops.reduce("SUM", x, "CPU:0")],
        r"value_destination_pairs\[1\]": [
            lambda: ops.batch_reduce("SUM", [(1.0, "CPU:0"), (PerReplica([x]), "CPU:0")])[1]],
        "tensor": [lambda: ops.broadcast(x, "CPU:0"), lambda: collective.all_reduce(0, x),
                   lambda: collective.reduce(0, x, "sum", 0)],
        "tower 0, gradient 1": [lambda: average_gradients([[1.0, x]])[1]],
        "value": [lambda: strategy.reduce("SUM", PerReplica([x])),
                  replica(lambda context: context.all_reduce("SUM", x))],
        "initial_value": [lambda: variable().value()]}


@dataclasses.dataclass
class _Run:
    """A program's own state, with a structure in it."""
    values: dict
    steps: int = 0


class Array:
    """An object that shows its values by __array__ alone."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        if self.values is None:
            raise OSError("no values")
        return np.asarray(self.values, dtype)


class Standard(Dlpack):
    """An array of a library of the array API."""

    def __array_namespace__(self, api_version=None):
        return types.SimpleNamespace(asarray=Standard)


class Masked(Array):
    def __array__(self, dtype=None, copy=None):
        return np.ma.masked_array([1.0], [True])


_Sparse = type("_spbase", (), {"__module__": "scipy.sparse._base"})
_TAKEN = (1.5, 3, True, np.float32(2), np.arange(6.0).reshape(2, 3).T, np.ones((0, 3), "f4"),
          Array([1.0, 2.0]), Array(np.ones((2, 0), "i2")), Dlpack(np.arange(3, dtype="i4")),
          Standard(np.arange(4.0)))
_REFUSED = {  # By what the message says: the kind of mistake, and the remedy.
    "dtype 'object' .* convert it": [np.array([None, 1.0]), np.array([2**70]), 2**70,
                                     Array(np.array([None]))],
    "no tensor; give a number": ["text", b"text", object(), {1}, range(3), unittest],
    r"no tensor; pass x.toarray\(\)": [_Sparse()],
    "dtype 'complex128' .* real view": [1j, np.ones(2, complex), np.complex128(1j)],
    "dtype 'str32' .* pass numbers": [np.array(["a"])],
    "dtype 'bytes8' .* pass numbers": [np.array([b"a"])],
    "dtype 'datetime64'|dtype 'datetime64": [np.array(["2024-01-01"], "M8[D]")],
    "dtype 'longdouble'|dtype 'float128'": [np.ones(2, np.longdouble)],
    "foreign byte order": [np.ones(2, ">f4")],
    "without its mask": [np.ma.masked_array([1.0], [True]), Masked(None)],
    "__array__ of this Array failed": [Array(None)]}


class Values(RanksTest):
    def assert_refused(self, words, call):
        """By an error that is a tutti.Error and a ValueError."""
        with self.assertRaisesRegex(ValueError, words) as caught:
            call()
        self.assertIsInstance(caught.exception, tutti.Error)
        self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")

    def test_what_is_taken_keeps_its_values_and_shape(self):
        for x in _TAKEN:
            expected = x.array if isinstance(x, Dlpack) else np.asarray(x)
            for name, calls in doors(x).items():
                if expected.dtype.kind in "iub":  # MEAN and SUM of them are refused: test_dtypes.
                    calls = [call for call in calls if name == "initial_value"]
                for call in calls:
                    with self.subTest(name, x=x):
                        result = call()
                        if isinstance(x, Standard):
                            self.assertIs(type(result), Standard)
                            result = result.array
                        np.testing.assert_array_equal(result, expected, strict=True)

    def test_what_is_refused_is_named_with_the_remedy(self):
        for words, values in _REFUSED.items():
            for x in values:
                for name, calls in doors(x).items():
                    for call in calls:
                        with self.subTest(name, x=x):
                            self.assert_refused(f"{name}.*{words}", call)

    def test_none_and_ragged_lists(self):
        for name, calls in doors(None).items():
            for call in calls if name != "tower 0, gradient 1" else ():
                self.assert_refused("None", call)
        self.assert_refused("None in tower 0", doors(None)["tower 0, gradient 1"][0])
        for name in ("tensor", "tower 0, gradient 1", "initial_value"):
            for call in doors([[1.0], [1.0, 2.0]])[name]:
                self.assert_refused(f"{name}.*rows of one length", call)
        slices = IndexedSlices(np.ones((1, 2)), [0], (3, 2))
        for name in ("value", "initial_value"):
            for call in doors(slices)[name]:
                self.assert_refused(f"{name}: IndexedSlices is no tensor; pass an array", call)
        self.assert_refused("per_replica_value, value 1", lambda: cross_device.ReductionToOneDevice(
            ).reduce("SUM", PerReplica([1.0, "a"]), "CPU:0"))

    def test_foreign_byte_order_behind_an_object_or_in_a_list(self):
        for dtype in (">f4", ">i4"):
            array = np.array([1, 2], dtype)
            for name, calls in doors(Array(array)).items():
                if dtype == ">f4" or name == "initial_value":
                    for call in calls:
                        result = call()
                        self.assertEqual((result.dtype, result.tolist()), (dtype[1:], [1, 2]))
        for name in ("tensor", "tower 0, gradient 1", "initial_value"):
            for call in doors([np.array([1, 2], ">f4")])[name]:
                self.assertEqual(call().tolist(), [[1, 2]])
            for call in doors([np.ma.masked_array([1.0], [True])])[name]:
                self.assert_refused(f"{name}.*without its mask", call)

    def test_initial_values_of_a_dtype(self):
        with distribute.Strategy().scope():
            self.assertEqual(distribute.Variable(Array([1, 2]), dtype="f4").value().dtype, "f4")
            for wrong in ("text", None, [[1.0], [1.0, 2.0]], object(), 1j):
                self.assert_refused("initial_value", lambda: distribute.Variable(wrong, dtype="f4"))
            self.assert_refused("'c8' is none|'complex64' is none",
                                lambda: distribute.Variable(1.0, dtype="c8"))

    def test_what_holds_an_array_is_not_written_to(self):
        strategy = distribute.Strategy()
        with strategy.scope():
            variable = distribute.Variable(np.ones(2))
        self.assert_refused("assign the result", lambda: strategy.broadcast_parameters([variable]))
        for x in (Array([1.0]), 1.0, np.float32(1)):
            self.assert_refused("read-only", lambda: strategy.broadcast_parameters({"w": x}))

    def test_variables_stand_for_their_values(self):
        strategy = distribute.Strategy(local_replicas=2)
        with strategy.scope():
            variable = distribute.Variable(np.arange(2.0))
            own = distribute.Variable(1.0, synchronization="ON_READ", aggregation="SUM")
        own.assign(PerReplica([4.0, 8.0]))  # Each copy gets half of it.

        def step():
            context = distribute.get_replica_context()
            return context.all_reduce("SUM", {"a": variable, "b": own})

        for result in strategy.run(step)["a"].values:
            self.assertEqual(result.tolist(), [0, 2])
        self.assertEqual([float(x) for x in strategy.run(step)["b"].values], [6, 6])
        ops = cross_device.ReductionToOneDevice()
        self.assertEqual(ops.reduce("SUM", variable, "CPU:0").tolist(), [0, 1])
        self.assertEqual(ops.reduce("SUM", PerReplica([variable] * 2), variable).tolist(), [0, 2])

    def test_in_a_group(self):
        def body(group):
            with self.assertRaises(ValueError):
                group.all_reduce("text")
            with self.assertRaises(ValueError):
                group.all_gather(Array(None))
            self.assert_invalid("read-only", group.all_reduce, Array([1.0]))
            gathered = group.all_gather(Standard(np.array([float(group.rank)])))
            self.assertIs(type(gathered), Standard)
            out = np.zeros(2)
            self.assertIs(group.all_gather(Array([float(group.rank)]), out=out), out)
            return gathered.array.tolist(), out.tolist()

        self.assertEqual(self.on_ranks(body), [([0, 1], [0, 1])] * 2)


@dataclasses.dataclass(frozen=True)
class Parameters:
    weights: object
    bias: object = None


class Color(enum.Enum):
    RED = 2
    BLUE = 1


Pair = collections.namedtuple("Pair", "left right")


def _nested(x):
    """Structures around a value."""
    numbers = collections.defaultdict(list, {"k": x})
    yield {"b": x, "a": [x, (x,)]}
    yield Pair({2: x, "2": x, None: x, 1.5: x}, None)
    yield Parameters(weights=[x, None], bias=Pair(x, x))
    yield collections.OrderedDict([("z", x), ("a", Parameters(x))])
    yield {"of": numbers, Color.RED: {Color.BLUE: x, Color.RED: x}, (1, "a"): x, b"b": x, True: x}
    yield [[], {}, None, ()]


class _Towers(PerReplica):
    """A subclass with a constructor of its own."""

    def __init__(self, first, second):
        super().__init__([first, second])


class _Box:
    """A class that a program registers."""

    def __init__(self, x):
        self.x = x


class Structures(RanksTest):
    def test_results_have_the_structure_of_the_value(self):
        strategy = distribute.Strategy()
        for value in _nested(np.arange(2.0)):
            def step():
                context = distribute.get_replica_context()
                return [context.all_reduce("SUM", value), context.all_gather(value, 0)]

            for result in (*strategy.run(step), strategy.reduce("SUM", value),
                           strategy.gather(value, 0), strategy.broadcast_parameters(value)):
                with self.subTest(value):
                    self.assert_alike(result, value)

    def assert_alike(self, result, expected):
        """Equal, with the same classes and order of keys."""
        self.assertIs(type(result), type(expected))
        if isinstance(expected, dict):
            self.assertEqual(list(result), list(expected))
            self.assertEqual(getattr(result, "default_factory", 0),
                             getattr(expected, "default_factory", 0))
            expected, result = list(expected.values()), list(result.values())
        elif dataclasses.is_dataclass(expected):
            expected, result = list(vars(expected).values()), list(vars(result).values())
        if isinstance(expected, (list, tuple)):
            self.assertEqual(len(result), len(expected))
            for part, other in zip(result, expected):
                self.assert_alike(part, other)
        elif expected is not None:
            np.testing.assert_array_equal(result, expected)

    def test_replicas_see_their_values(self):
        strategy = distribute.Strategy(local_replicas=2)
        for value, *each in zip(_nested(PerReplica([1.0, 2.0])), _nested(1.0), _nested(2.0)):
            with self.subTest(value):
                seen = strategy.run(lambda tree: [tree], args=(value,))
                for replica, expected in enumerate(each):
                    own = distribute._nest.map_leaves(
                        lambda leaf, i=replica: leaf.values[i], seen[0])
                    self.assert_alike(own, expected)

    def test_an_object_without_values_of_replicas_is_passed_as_it_is(self):
        own = Parameters("name", object())
        strategy = distribute.Strategy(local_replicas=2)
        self.assertIs(strategy.run(lambda x: x, args=(own,)), own)

    def test_ranks_agree_on_the_order_of_keys(self):
        def body(group):
            strategy = distribute.Strategy(group=group)
            keys = ["b", 2, None, "a", Color.RED, 1, Color.BLUE, (1, "x"), b"c"]
            keys = keys[::-1] if group.rank else keys
            names = sorted(map(str, keys))
            value = {key: float(names.index(str(key)) + 10 * group.rank) for key in keys}
            result = strategy.reduce("SUM", value)
            self.assertEqual(list(result), keys)
            return [float(result[key]) for key in sorted(keys, key=str)]

        self.assertEqual(self.on_ranks(body), [[2.0 * i + 10 for i in range(9)]] * 2)

    def test_keys_without_an_order_are_refused(self):
        strategy = distribute.Strategy()
        for key in (object(), frozenset([1]), print, (1, frozenset())):
            with self.assertRaisesRegex(ValueError, "a dict has the key .*use texts") as caught:
                strategy.reduce("SUM", {key: 1.0})
            self.assertIsInstance(caught.exception, tutti.Error)
            self.assertEqual(strategy.run(lambda x: x, args=({key: 1.0},)), {key: 1.0})

    def test_none_of_one_rank_is_another_structure(self):
        def body(group):
            strategy = distribute.Strategy(group=group)
            with self.assertRaisesRegex(ValueError, "structure"):
                strategy.reduce("SUM", [1.0, None if group.rank else 1.0])
            return float(strategy.reduce("SUM", [None, 1.0])[1])

        self.assertEqual(self.on_ranks(body), [2, 2])

    def pytrees_of_torch(self):
        """A context with what torch.utils._pytree is taken to answer, as torch has it in
        tests/torch."""
        pytree = types.SimpleNamespace(
            tree_flatten=lambda tree, is_leaf: (
                (list(tree.x.values()), types.SimpleNamespace(context=list(tree.x)))
                if isinstance(tree, _Box) else ([tree], None)),
            tree_unflatten=lambda parts, spec: _Box(dict(zip(spec.context, parts))))
        return mock.patch.dict("sys.modules", {"torch.utils._pytree": pytree})

    def test_registered_classes_of_torch(self):
        with self.pytrees_of_torch():
            result = distribute.Strategy().reduce("SUM", [_Box({"a": 1.0}), _Box({})])
            self.assertEqual([box.x for box in result], [{"a": 1.0}, {}])
            static = distribute._nest.describe(_Box({_Box: 1, "x" * 99: 1}))
            self.assertRegex(static, "^_Box\\(<[0-9a-f]{16}>[*],[*]\\)$")
            self.assertEqual(static, distribute._nest.describe(_Box({_Box: 2, "x" * 99: 2})))
            mixed = distribute._nest.describe(_Box({object.__new__(_Box): 1, 3: 1, ("b", "a"): 1}))
            self.assertEqual(mixed, "_Box(<3,'b','a'>*,*,*)")
            sets = [distribute._nest.describe(_Box({frozenset(names): 1}))
                    for names in itertools.permutations(["a", "b", "c"])]
            self.assertEqual(set(sets), {"_Box(<'a','b','c'>*)"})

    def test_what_does_not_change_stays_the_same_object(self):
        """A replica's function changes its own arguments, and returns its own objects."""
        strategy, state = distribute.Strategy(), _Run({"a": [1.0, (2.0, None)]})

        def count(run, shape):
            run.steps += 1
            return run, shape

        shape = time.gmtime(0)  # Of C, as torch.Size, and with a constructor of its own.
        for _ in range(2):
            result, own = strategy.run(count, args=(state, shape))
            self.assertIs(result, state)
            self.assertIs(own, shape)
        self.assertEqual(state.steps, 2)
        many = distribute.Strategy(local_replicas=2)
        self.assertIs(many.run(lambda: state), state)
        changed = distribute._nest.map_leaves(lambda leaf: leaf + 1, shape)
        self.assertEqual(tuple(changed), tuple(part + 1 for part in shape))

    def test_structures_that_contain_themselves(self):
        parent = _Run({})
        parent.values["child"] = _Run({"parent": parent})
        strategy = distribute.Strategy()
        self.assertIs(strategy.run(lambda run: run, args=(parent,)), parent)
        with self.assertRaisesRegex(ValueError, "contains itself"):
            strategy.reduce("SUM", parent)

    def test_subclasses_of_distributed_values(self):
        with distribute.Strategy().scope():
            variable = distribute.Variable(2.0)
        ops = cross_device.ReductionToOneDevice()
        for second in (2.0, variable):
            self.assertEqual(ops.reduce("SUM", _Towers(1.0, second), "CPU:0"), 3)

    def test_ranks_agree_on_the_keys_of_parts(self):
        """Parts that differ by their places alone."""
        one, other = (collections.namedtuple("Pair", names) for names in ("a b", "b a"))

        def body(group):
            strategy = distribute.Strategy(group=group)
            for values in ([_Box({"a": 1.0, "b": 5.0}), _Box({"b": 5.0, "a": 1.0})],
                           [_Box({"a": 1.0}), _Box({"b": 1.0})], [_Box({}), [_Box({})][:0]],
                           [one(1.0, 5.0), other(5.0, 1.0)], [one(1.0, 5.0), (1.0, 5.0)]):
                with self.assertRaisesRegex(ValueError, "structure"):
                    strategy.reduce("SUM", values[group.rank])
            pair = strategy.reduce("SUM", one(1.0, 5.0))
            self.assertIsInstance(pair, one)
            return list(map(float, pair))

        with self.pytrees_of_torch():
            self.assertEqual(self.on_ranks(body), [[2, 10]] * 2)

    def test_replicas_with_other_keys_are_apart(self):
        strategy = distribute.Strategy(local_replicas=2)
        with self.pytrees_of_torch():
            boxes = strategy.run(lambda: _Box({"ab"[distribute.get_replica_context().index]: 1.0}))
        self.assertEqual([list(box.x) for box in boxes.values], [["a"], ["b"]])

    def test_cached_properties_are_of_the_new_fields(self):
        @dataclasses.dataclass(frozen=True)
        class Counts:
            a: float

            @functools.cached_property
            def twice(self):
                return 2 * self.a

        value = Counts(1.0)
        self.assertEqual(value.twice, 2)
        result = distribute.Strategy(local_replicas=2).reduce("SUM", Counts(PerReplica([1.0, 2.0])))
        self.assertEqual(result.twice, 6)
        self.assertEqual(distribute._nest.map_leaves(lambda leaf: leaf + 1, value).twice, 4)

    def test_tuples_with_constructors_of_their_own(self):
        class Span(tuple):
            def __new__(cls, begin, end):
                return super().__new__(cls, (begin, end))

        for value in (Span(1.0, 2.0), time.gmtime(0)):
            result = distribute.Strategy().reduce("SUM", value)
            self.assertIs(type(result), type(value))
            self.assertEqual(tuple(result), tuple(value))

    def test_fields_that_are_not_set_are_left_out(self):
        @dataclasses.dataclass
        class Lazy:
            a: float
            b: float = dataclasses.field(init=False)

        result = distribute.Strategy().reduce("SUM", Lazy(1.0))
        self.assertEqual(vars(result), {"a": 1.0})


class Data(RanksTest):
    def test_numbers_of_a_function(self):
        strategy = distribute.Strategy(local_replicas=2)
        for numbers in ([1, 2, 3, 4], [1.5, 2.5], [np.float32(1), np.int64(2)], []):
            batches = strategy.distribute_datasets_from_function(lambda _: numbers)
            self.assertEqual([one for batch in batches for one in batch.values], numbers)
        with self.assertRaisesRegex(ValueError, "rank 0 .*equally many numbers"):
            list(strategy.distribute_datasets_from_function(lambda _: [1, 2, 3]))

    def test_numbers_of_ranks_that_end_apart(self):
        def body(group):
            strategy = distribute.Strategy(group=group)
            equal = strategy.distribute_datasets_from_function(lambda _: [1.0, 2.0])
            self.assertEqual(list(equal), [1, 2])
            apart = strategy.distribute_datasets_from_function(lambda _: [1.0] * (1 + group.rank))
            with self.assertRaisesRegex(ValueError, "rank 0 .*equally many numbers"):
                list(apart)
            self.assertEqual(strategy.reduce("SUM", 1.0), 2)

        self.on_ranks(body)


class Trainable(unittest.TestCase):
    def test_variables_that_are_read_together_are_not_trainable(self):
        with distribute.Strategy().scope():
            for given in (None, True, False):
                self.assertEqual(distribute.Variable(1.0, given).trainable, given is not False)
            for given in (None, False):
                variable = distribute.Variable(1.0, given, synchronization="ON_READ")
                self.assertIs(variable.trainable, False)
            with self.assertRaisesRegex(ValueError, "cannot be trainable"):
                distribute.Variable(1.0, True, synchronization="ON_READ")

    def test_integers_have_no_mean(self):
        with distribute.Strategy().scope():
            for dtype in ("i4", "u1", "bool"):
                with self.assertRaisesRegex(ValueError, "has no MEAN; give it a float"):
                    distribute.Variable(np.zeros(2, dtype), aggregation="MEAN")


if __name__ == "__main__":
    unittest.main()
