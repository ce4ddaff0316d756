"""A rank of test_ranks.py: values of TensorFlow and JAX in collectives and in the faces, whose
results are of their kind on every rank."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # Read by jax.devices().

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import tutti
from tutti import cross_device, distribute
from tutti.average_gradients import average_gradients


def expect(result, kind, values):
    assert isinstance(result, kind), type(result)
    assert np.asarray(result).tolist() == values, result


def check_collectives(group):
    ranks = range(group.world_size)
    for kind, make in ((tf.Tensor, tf.constant), (tf.Tensor, tf.Variable), (jax.Array, jnp.array)):
        own = make([float(group.rank)])
        expect(group.all_gather(own), kind, [float(rank) for rank in ranks])
        total = float(sum(ranks))
        parts = make([float(rank) for rank in ranks])
        expect(group.reduce_scatter(parts), kind, [float(group.rank * group.world_size)])
        expect(group.all_gather(own, blocking=False).wait(), kind, [float(rank) for rank in ranks])
        out = np.zeros(1, "float32")
        expect(group.all_reduce(own, out=out), np.ndarray, [total])
        try:
            group.all_reduce(own)
        except ValueError as error:
            assert "read-only" in str(error) or "assign" in str(error), error
        else:
            raise AssertionError("an array that must not change was written to")


def check_faces(group):
    ops = cross_device.HierarchicalCopyAllReduce(group=group)
    slices = tf.IndexedSlices(tf.ones((group.rank, 2)), tf.range(group.rank), [5, 2])
    rows = [row for rank in range(group.world_size) for row in range(rank)]
    result = ops.reduce("SUM", slices, "CPU:0")
    assert isinstance(result, tf.IndexedSlices) and result.indices.numpy().tolist() == rows
    mean, = average_gradients([slices], group)
    expected = tf.math.bincount(tf.constant(rows), dtype=tf.float32) / group.world_size
    expect(mean.values[:, 0], tf.Tensor, expected.numpy().tolist())

    strategy = distribute.Strategy(group=group)
    tree = {"b": [jnp.ones(2), None], 1: tf.Variable(2.0)}
    result = strategy.reduce("SUM", tree if group.rank else dict(reversed(tree.items())))
    expect(result["b"][0], jax.Array, [float(group.world_size)] * 2)
    expect(result[1], tf.Tensor, 2.0 * group.world_size)


def check_missing_gradients(group):
    """Means of a rank that has None are of the kind of the variable, or of its other gradients."""
    def mean(gradient, variable=None, others=()):
        own = gradient if group.rank else None
        given = [own if variable is None else (own, variable), *others]
        result = average_gradients(given, group, none="skip")[0]
        return result if variable is None else result[0]

    for none_of, values in ((tf.Variable([0.0]), [2.0]), (tf.ones(1), [2.0])):
        expect(mean(tf.constant([2.0]), none_of), tf.Tensor, values)
    expect(mean(jnp.array([2.0]), jnp.ones(1)), jax.Array, [2.0])
    expect(mean(jnp.array([2.0]), others=[jnp.ones(3)]), jax.Array, [2.0])
    expect(mean(np.array([2.0]), "text"), np.ndarray, [2.0])
    slices = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([3]), tf.constant([4, 1]))
    for result in (mean(slices, tf.Variable(tf.ones((4, 1)))), mean(slices, others=[slices])):
        assert isinstance(result, tf.IndexedSlices), result
        assert result.dense_shape.numpy().tolist() == [4, 1] and result.indices.dtype == tf.int32
        expect(result.values, tf.Tensor, [[2.0]])


def check_refusal(group):
    """A refusal of one rank is an error of all, after which they are in step."""
    mesh = jax.sharding.Mesh(jax.devices()[:2], "a")
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    x = jax.device_put(jnp.ones(2), spread) if group.rank == 1 else jnp.ones(2)
    ops = cross_device.ReductionToOneDevice(group=group)
    try:
        ops.reduce("SUM", x, "CPU:0")
    except ValueError as error:
        assert "spread over 2 devices" in str(error), error
    else:
        raise AssertionError("an array of two devices was reduced")
    expect(ops.reduce("SUM", jnp.ones(2), "CPU:0"), jax.Array, [float(group.world_size)] * 2)


with tutti.join() as joined:
    check_collectives(joined)
    check_faces(joined)
    check_missing_gradients(joined)
    check_refusal(joined)
