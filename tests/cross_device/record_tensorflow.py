"""Records what TensorFlow's own cross-device operations make of random values.

    pip install tensorflow-cpu==2.21.0
    python3 tests/cross_device/record_tensorflow.py > tests/cross_device/tensorflow.json

tensorflow_test.cc compares ours with the table. Numbers are recorded as their bits, so that the
order of association is compared, too. Only even numbers of replicas: TensorFlow's hierarchical copy
leaves out the last of an odd number. docs/cross_device.md lists what else differs on purpose.
"""

import json
import os
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops
from tensorflow.python.distribute import cross_device_utils

SEED = 21
RANDOM = random.Random(SEED)
BITS = {"float32": "uint32", "float64": "uint64", "int64": "uint64"}
REPLICAS = (2, 4, 6, 8)
OPS = {"SUM": tf.distribute.ReduceOp.SUM, "MEAN": tf.distribute.ReduceOp.MEAN}


def bits(array):
    array = np.asarray(array)
    return [int(n) for n in array.ravel().view(BITS[array.dtype.name])]


def random_array(dtype, shape):
    if dtype.startswith("int"):
        return np.asarray([RANDOM.randint(-2**63, 2**63 - 1) for _ in range(np.prod(shape))],
                          dtype).reshape(shape)
    numbers = [RANDOM.uniform(-1, 1) * 2.0**RANDOM.randint(-8, 24) for _ in range(np.prod(shape))]
    return np.asarray(numbers, dtype).reshape(shape)


def make_strategy(replicas, ops):
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)], ops)


def all_reduce(strategy, op, batches):
    """The result of each replica's batch, of one replica: all are checked to be equal."""
    def body():
        replica = tf.distribute.get_replica_context()
        own = replica.replica_id_in_sync_group
        tensors = [tf.gather(tf.constant(np.stack(by_replica)), own) for by_replica in batches]
        return replica.all_reduce(op, tensors)

    results = tf.function(lambda: strategy.run(body))()
    copies = [strategy.experimental_local_results(result) for result in results]
    for of_one in copies:
        assert all(bits(copy) == bits(of_one[0]) for copy in of_one)
    return [of_one[0].numpy() for of_one in copies]


def record_hierarchical_copy(replicas, num_packs):
    dtype = RANDOM.choice(["float32", "float32", "float64", "int64"])
    name = "SUM" if dtype == "int64" else RANDOM.choice(["SUM", "MEAN"])
    shapes = [RANDOM.choice([(1,), (7,), (3, 2), (20,)]) for _ in range(RANDOM.randint(1, 3))]
    batches = [[random_array(dtype, shape) for _ in range(replicas)] for shape in shapes]
    strategy = make_strategy(replicas, tf.distribute.HierarchicalCopyAllReduce(num_packs))
    results = all_reduce(strategy, OPS[name], batches)
    return {"replicas": replicas, "num_packs": num_packs, "dtype": dtype, "op": name,
            "shapes": [list(shape) for shape in shapes],
            "values": [[bits(array) for array in by_replica] for by_replica in batches],
            "results": [bits(result) for result in results]}


def per_replica(strategy, values):
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group])


def record_to_one_device(replicas):
    dtype = RANDOM.choice(["float32", "float64", "int64"])
    name = "SUM" if dtype == "int64" else RANDOM.choice(["SUM", "MEAN"])
    arrays = [random_array(dtype, (5,)) for _ in range(replicas)]
    ops = tf.distribute.ReductionToOneDevice()
    value = per_replica(make_strategy(replicas, ops), [tf.constant(array) for array in arrays])
    result = ops.reduce(OPS[name], value, destinations="/cpu:0")
    return {"replicas": replicas, "dtype": dtype, "op": name,
            "values": [bits(array) for array in arrays], "result": bits(result.numpy())}


def record_sparse(replicas):
    name = RANDOM.choice(["SUM", "MEAN"])
    rows = [RANDOM.randint(0, 3) for _ in range(replicas)]
    indices = [[RANDOM.randrange(6) for _ in range(count)] for count in rows]
    values = [random_array("float32", (count, 2)) for count in rows]
    dense_shape = tf.constant([6, 2], tf.int64)
    parts = [tf.IndexedSlices(tf.constant(v), tf.constant(i, tf.int64), dense_shape)
             for v, i in zip(values, indices)]
    ops = tf.distribute.HierarchicalCopyAllReduce()
    value = per_replica(make_strategy(replicas, ops), parts)
    result = ops.reduce(OPS[name], value, value)
    first = result.values[0]
    return {"op": name, "indices": indices, "values": [bits(v) for v in values],
            "result": {"indices": first.indices.numpy().tolist(),
                       "values": bits(first.values.numpy())}}


def record_pack_sizes():
    total, num_packs = RANDOM.randint(1, 40), RANDOM.randint(1, 9)
    packer = cross_device_ops._ConcatAndSplitPacker(num_packs)
    packed = packer.pack([[(tf.zeros([total]), None)]])
    return {"total": total, "num_packs": num_packs,
            "sizes": [int(tensor.shape[0]) for tensor, _ in packed[0]]}


def record_packs_by_bytes():
    sizes = [RANDOM.randint(1, 6) for _ in range(RANDOM.randint(1, 8))]
    limit = RANDOM.randint(0, 40)
    with tf.Graph().as_default():
        packs = cross_device_utils.group_by_size([tf.zeros([size]) for size in sizes], limit)
    return {"sizes": sizes, "bytes_per_pack": limit,
            "packs": [[int(tensor.shape[0]) for tensor in pack] for pack in packs]}


def record_merge():
    def random_options():
        return {"bytes_per_pack": RANDOM.choice([0, 5, 9]),
                "timeout_seconds": RANDOM.choice([None, 1.0, 2.5]),
                "implementation": RANDOM.choice(["AUTO", "RING", "NCCL"])}

    def made(options):
        return tf.distribute.experimental.CommunicationOptions(
            options["bytes_per_pack"], options["timeout_seconds"],
            tf.distribute.experimental.CommunicationImplementation[options["implementation"]])

    own, other = random_options(), random_options()
    merged = made(own).merge(made(other))
    return {"own": own, "other": other,
            "merged": {"bytes_per_pack": merged.bytes_per_pack,
                       "timeout_seconds": merged.timeout_seconds,
                       "implementation": merged.implementation.value}}


def main():
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration() for _ in range(max(REPLICAS))])
    table = {
        "tensorflow": tf.__version__,
        "seed": SEED,
        "hierarchical_copy": [record_hierarchical_copy(replicas, num_packs) for replicas in REPLICAS
                              for num_packs in (1, 1, 2, 3, 8)],
        "to_one_device": [record_to_one_device(n) for n in (1, 2, 3, 4, 5, 8) for _ in range(3)],
        "sparse": [record_sparse(n) for n in (2, 3, 4, 8) for _ in range(2)],
        "pack_sizes": [record_pack_sizes() for _ in range(40)],
        "packs_by_bytes": [record_packs_by_bytes() for _ in range(40)],
        "merge": [record_merge() for _ in range(20)],
    }
    text = json.dumps(table, separators=(",", ":"))
    sys.stdout.write(text.replace("},{", "},\n{").replace("],\"", "],\n\"") + "\n")


if __name__ == "__main__":
    main()
