"""Records what TensorFlow's own strategy does with random values of four replicas.

    pip install tensorflow-cpu==2.21.0
    python3 tests/distribute/record_strategy.py > tests/distribute/strategy.json

strategy_tensorflow_test.cc compares ours with the table. Values are small whole numbers, so that
sums are exact in every order; a name in place of a result is the exception that was raised.
"""

import json
import os
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

REPLICAS = 4
RANDOM = random.Random(21)


def make_strategy():
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])


STRATEGY = make_strategy()


def attempt(function):
    """What `function` returns, or the name of the exception that it raises."""
    try:
        return function()
    except Exception as error:  # pylint: disable=broad-except
        return type(error).__name__


def tensor(array):
    return {"shape": list(array.shape), "values": [float(x) for x in np.ravel(array)]}


def random_arrays(uneven_axis):
    """One of each replica, of equal shapes but perhaps along one axis."""
    shape = [RANDOM.randint(1, 3) for _ in range(RANDOM.randint(0, 3))]
    arrays = []
    for _ in range(REPLICAS):
        if uneven_axis and shape:
            shape[0] = RANDOM.randint(1, 4)
        numbers = [RANDOM.randint(-8, 8) for _ in range(int(np.prod(shape)))]
        arrays.append(np.array(numbers, "float32").reshape(shape))
    return arrays


def distribute(arrays):
    return STRATEGY.experimental_distribute_values_from_function(
        lambda context: tf.constant(arrays[context.replica_id_in_sync_group]))


def record_reduce():
    axis = RANDOM.choice([None, 0, 0, 1, -1, 2, 3, (0, 1)])
    arrays = random_arrays(axis in (0, (0, 1)) and RANDOM.random() < 0.6)
    op = RANDOM.choice(["SUM", "MEAN"])
    result = attempt(lambda: tensor(STRATEGY.reduce(op, distribute(arrays), axis).numpy()))
    axes = [axis] if isinstance(axis, int) else axis
    return {"op": op, "axes": axes, "inputs": [tensor(a) for a in arrays], "result": result}


def record_gather():
    axis = RANDOM.choice([0, 0, 1, 2])
    arrays = random_arrays(axis == 0)
    result = attempt(lambda: tensor(STRATEGY.gather(distribute(arrays), axis).numpy()))
    return {"axis": axis, "inputs": [tensor(a) for a in arrays], "result": result}


def copies_of(variable):
    return [float(copy.numpy()) for copy in STRATEGY.experimental_local_results(variable)]


def update(variable, name, inside):
    """One assignment; its record, with the exception and the copies after it."""
    values = [float(4 * RANDOM.randint(-8, 8)) for _ in range(REPLICAS if inside else 1)]

    def act():
        if not inside:
            getattr(variable, name)(values[0])
            return
        STRATEGY.run(lambda value: getattr(variable, name)(value),
                     args=(distribute([np.float32(value) for value in values]),))

    raised = attempt(act)
    return {"update": name, "values": values, "raised": raised, "copies": copies_of(variable)}


def record_variable():
    synchronization = RANDOM.choice(["ON_WRITE", "ON_READ"])
    aggregation = RANDOM.choice(["NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"])
    initial = float(RANDOM.randint(-8, 8))
    with STRATEGY.scope():
        variable = tf.Variable(
            initial, synchronization=tf.VariableSynchronization[synchronization],
            aggregation=tf.VariableAggregation[aggregation])
    updates = [update(variable, RANDOM.choice(["assign", "assign_add", "assign_sub"]),
                      RANDOM.random() < 0.6) for _ in range(5)]
    return {"synchronization": synchronization, "aggregation": aggregation, "initial": initial,
            "updates": updates, "value": attempt(lambda: float(variable.read_value().numpy()))}


def record_rows():
    rows, batch = RANDOM.randint(1, 20), RANDOM.randint(1, 10)
    batches = STRATEGY.experimental_distribute_dataset(tf.data.Dataset.range(rows).batch(batch))
    return {"rows": rows, "batch": batch,
            "shares": [[part.numpy().tolist() for part in STRATEGY.experimental_local_results(b)]
                       for b in batches]}


SECTIONS = (("reduce", record_reduce, 150), ("gather", record_gather, 80),
            ("variables", record_variable, 80), ("rows", record_rows, 20))


def main():
    sections = []
    for name, record, count in SECTIONS:
        lines = ",\n".join(json.dumps(record(), separators=(",", ":")) for _ in range(count))
        sections.append(f'"{name}": [\n{lines}\n]')
    sys.stdout.write("{\n" + ",\n".join(sections) + "\n}\n")


if __name__ == "__main__":
    main()
