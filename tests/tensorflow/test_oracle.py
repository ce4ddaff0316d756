"""Random calls of tutti.cross_device and average_gradients with TensorFlow's own objects, each
beside TensorFlow's answer, bit for bit. Run by tests/tensorflow/run, with the Python that has it.

Hierarchical copies have even numbers of devices: of an odd one TensorFlow leaves out the last.
Numbers have exact sums where TensorFlow's order is another one: on CPUs it copies hierarchically in
batches alone whose values stay on their devices, and sums from left to right elsewhere.
"""

import functools
import random
import unittest

import numpy as np
import tensorflow as tf
from devices import logical_cpus

from tutti import cross_device
from tutti.average_gradients import average_gradients

_DEVICES = len(logical_cpus())
_OPS = {"SUM": tf.distribute.ReduceOp.SUM, "MEAN": tf.distribute.ReduceOp.MEAN}
_SHAPES = ((), (1,), (7,), (3, 2), (20,), (0,), (2, 0, 3))
_ROWS = 6


def _numpy(x):
    """The elements of a tensor or a variable, by their bits."""
    array = np.asarray(tf.convert_to_tensor(x).numpy())
    return array.dtype.name, array.shape, array.tobytes()


def _told(x):
    """What a result or a component is, to be compared."""
    if isinstance(x, tf.IndexedSlices):
        return ("slices", *map(_numpy, (x.values, x.indices, x.dense_shape)))
    return _numpy(x)


def _results(result):
    """(what it is, its device's number) of each component of a result of either side."""
    if hasattr(result, "values") and not isinstance(result, tf.IndexedSlices):
        devices = getattr(result, "devices", None) or result._devices
        return [(_told(value), device.rpartition(":")[2])
                for value, device in zip(result.values, devices)]
    return [(_told(result), None)]


@functools.cache
def _strategy(replicas):
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])


def _mean(grads):
    """TensorFlow's mean of a variable's gradients, with the rows of one index summed."""
    if not isinstance(grads[0], tf.IndexedSlices):
        return tf.add_n([tf.convert_to_tensor(grad) for grad in grads]) / len(grads)
    indices = tf.concat([grad.indices for grad in grads], 0)
    rows = tf.unique(tf.sort(indices)).y
    values = tf.concat([grad.values for grad in grads], 0) / len(grads)
    total = tf.math.unsorted_segment_sum(values, indices, _ROWS)
    return tf.IndexedSlices(tf.gather(total, rows), rows, grads[0].dense_shape)


class Case:
    """A random call."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.is_hierarchical = self.random.random() < 0.5
        counts = (2, 4, 6, 8) if self.is_hierarchical else range(1, _DEVICES + 1)
        self.replicas = self.random.choice(list(counts))
        self.num_packs = self.random.choice([0, 1, 1, 2, 3, 8])
        dtypes = ["float32", "float32", "float64", "float16", "bfloat16", "int32", "int64"]
        self.dtype = tf.dtypes.as_dtype(self.random.choice(dtypes))
        self.index_dtype = self.random.choice([tf.int32, tf.int64])
        self.op = self.random.choice(["SUM", "MEAN"]) if self.dtype.is_floating else "SUM"
        # Whether sums are: Tutti sums 16 bits in f32.
        self.is_exact = self.is_hierarchical or self.dtype.size == 2

    def ops(self):
        """(TensorFlow's, ours)."""
        if self.is_hierarchical:
            return (tf.distribute.HierarchicalCopyAllReduce(self.num_packs),
                    cross_device.HierarchicalCopyAllReduce(self.num_packs or None))
        return tf.distribute.ReductionToOneDevice(), cross_device.ReductionToOneDevice()

    def array(self, shape):
        """Random numbers."""
        count = int(np.prod(shape))
        if self.dtype.is_integer:
            bits = 8 * self.dtype.size - 1
            numbers = [self.random.randint(-2**bits, 2**bits - 1) for _ in range(count)]
        elif self.is_exact:
            numbers = [self.random.randint(-16, 16) / 8 for _ in range(count)]
        else:
            numbers = [self.random.uniform(-1, 1) * 2.0**self.random.randint(-8, 24)
                       for _ in range(count)]
        return np.array(numbers, self.dtype.as_numpy_dtype).reshape(shape)

    def dense(self, shape):
        """A tensor or a variable."""
        kind = self.random.choice([tf.constant, tf.constant, tf.Variable])
        return kind(self.array(shape))

    def slices(self):
        rows = self.random.randint(0, 4)
        indices = [self.random.randrange(_ROWS) for _ in range(rows)]
        return tf.IndexedSlices(tf.constant(self.array((rows, 2))),
                                tf.constant(indices, self.index_dtype),
                                tf.constant([_ROWS, 2], self.index_dtype))

    def value(self):
        """(TensorFlow's PerReplica, ours) of the same components."""
        shape = None if self.random.random() < 0.3 else self.random.choice(_SHAPES)
        parts = []
        for device in range(self.replicas):
            with tf.device(f"/cpu:{device}"):
                parts.append(self.slices() if shape is None else self.dense(shape))
        strategy = _strategy(self.replicas)
        theirs = strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group])
        return theirs, cross_device.PerReplica(parts, strategy.extended.worker_devices)

    def stays(self):
        return self.random.random() < 0.6

    def pair(self, stays):
        """((value, destinations) of TensorFlow, ours). stays: whether on the devices of the value,
        else on any one."""
        theirs, ours = self.value()
        if stays:
            return (theirs, theirs), (ours, ours)
        device = f"/cpu:{self.random.randrange(_DEVICES)}"
        return (theirs, device), (ours, device)


class Oracle(unittest.TestCase):
    def compare(self, cases, make):
        """make(case) gives (TensorFlow's results, ours) of a random call."""
        for seed in range(cases):
            case = Case(f"{make.__name__} {seed}")
            with self.subTest(make.__name__, seed=seed, **{
                    name: value for name, value in vars(case).items() if name != "random"}):
                theirs, ours = make(case)
                self.assertEqual(list(map(_results, theirs)), list(map(_results, ours)))
                for result in ours:
                    is_mirrored = isinstance(result, cross_device.Mirrored)
                    for value in result.values if is_mirrored else [result]:
                        self.assertIsInstance(value, (tf.Tensor, tf.IndexedSlices))

    def test_reduce(self):
        def reduce(case):
            (theirs, ours), pairs = case.ops(), case.pair(case.stays())
            return ([theirs.reduce(_OPS[case.op], *pairs[0])],
                    [ours.reduce(_OPS[case.op], *pairs[1])])

        self.compare(500, reduce)

    def test_batch_reduce(self):
        def batch_reduce(case):
            theirs, ours = case.ops()
            count, stay = case.random.randint(1, 4), case.stays()
            case.is_exact = case.dtype.size == 2 or case.is_hierarchical and not stay
            pairs = [case.pair(stay or case.stays()) for _ in range(count)]
            return (theirs.batch_reduce(_OPS[case.op], [pair[0] for pair in pairs]),
                    ours.batch_reduce(_OPS[case.op], [pair[1] for pair in pairs]))

        self.compare(300, batch_reduce)

    def test_broadcast(self):
        def broadcast(case):
            theirs, ours = case.ops()
            tensor = case.slices() if case.random.random() < 0.3 else case.dense(
                case.random.choice(_SHAPES))
            their_value, our_value = case.value()
            return [theirs.broadcast(tensor, their_value)], [ours.broadcast(tensor, our_value)]

        self.compare(200, broadcast)

    def test_average_gradients(self):
        def average(case):
            towers, case.is_exact = 2**case.random.randint(0, 3), True
            case.dtype = tf.dtypes.as_dtype(case.random.choice(["float32", "float64"]))
            made = [functools.partial(case.dense, shape) for shape in _SHAPES] + [case.slices] * 3
            makers = [case.random.choice(made) for _ in range(case.random.randint(1, 5))]
            grads = [[make() for make in makers] for _ in range(towers)]
            variables = [tf.Variable(0.0) for _ in makers]
            pairs = average_gradients([list(zip(tower, variables)) for tower in grads])
            for (_, variable), own in zip(pairs, variables):
                self.assertIs(variable, own)
            return list(map(_mean, zip(*grads))), [mean for mean, _ in pairs]

        self.compare(200, average)


if __name__ == "__main__":
    unittest.main()
