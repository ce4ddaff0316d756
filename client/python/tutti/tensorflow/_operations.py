"""Collectives on tensors, eagerly and in graphs.

In a graph each is one stateful operation that calls Python: TensorFlow runs these in the order of
the program, which is the same on all ranks. A structure of tensors is one operation. The group is
looked up when an operation runs, so that a graph works for the next job, too.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import tensorflow as tf

from tutti import _adjoint
from tutti._error import invalid
from tutti._group import Group
from tutti._refusal import reporting
from tutti.tensorflow._job import group_of

Arrays = list[numpy.ndarray]
Tensors = list[Any]


def run(function: Callable[[Arrays], Arrays], tensors: Sequence[Any], shapes: Sequence[Any],
        dtypes: Sequence[Any] | None = None) -> Tensors:
    """What function(arrays) returns, as tensors of these shapes, and of the dtypes of `tensors`
    unless given; in a graph when that runs, after all of the program that were before it."""
    dtypes = [tensor.dtype for tensor in tensors] if dtypes is None else dtypes
    if all(hasattr(tensor, "numpy") for tensor in tensors) and tf.executing_eagerly():
        arrays = function([numpy.asarray(tensor.numpy()) for tensor in tensors])
        return [tf.convert_to_tensor(array, dtype) for array, dtype in zip(arrays, dtypes)]
    order = _order()
    count, *results = tf.numpy_function(
        lambda count, *arrays: [count + 1, *function([numpy.asarray(a) for a in arrays])],
        [order.read_value(), *tensors], [tf.int64, *dtypes])
    count.set_shape(())
    order.assign(count)
    for result, shape in zip(results, shapes):
        result.set_shape(shape)
    return results


@functools.cache
def _order():
    """The number of operations that graphs have run. Each reads and sets it, because TensorFlow
    orders what uses a variable also between functions, loops and branches; operations without one
    may overtake those that are within."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(0, trainable=False, dtype=tf.int64, name="tutti_operations")


def _linear(function: Callable[[Arrays], Arrays], adjoint: Callable[[Tensors], Tensors],
            tensors: Tensors) -> Tensors:
    """run(function, tensors), where results have the shapes of the tensors, and the gradient
    adjoint(upstream)."""
    @tf.custom_gradient
    def operation(*inputs):
        def gradient(*upstream):
            return adjoint([tf.convert_to_tensor(one) for one in upstream])

        return run(function, inputs, [one.shape for one in inputs]), gradient

    return tf.nest.flatten(operation(*tensors)) if tensors else []


def op_name(op: Any) -> str:
    """The name of an operation: also of TensorFlow's own enumerations."""
    name = getattr(op, "name", op)
    if not isinstance(name, str):
        raise invalid(f"op {op!r} must be a name, such as \"sum\"")
    return name.lower()


def all_reduce(x: Any, op: Any = "sum", group: Group | None = None, *, strategy: str | None = None,
               timeout: float | None = None, reproducible: bool | None = None,
               verify: bool | None = None) -> Any:
    """x, a tensor or a structure of tensors, reduced over all ranks by Tutti's op. The gradient of
    a sum is the sum of the gradients, of a mean their mean; other ops have none. IndexedSlices
    become those of all ranks, one behind the other, which is their sum; a mean divides them. In a
    structure the dense tensors are one operation. The options are those of Group.all_reduce(), and
    hold for the gradient, too."""
    moving = {"strategy": strategy, "timeout": timeout, "verify": verify}
    with reporting(group_of(group), "all_reduce"):
        op, leaves = op_name(op), [_tensor_of(leaf) for leaf in tf.nest.flatten(x)]
        dense = [i for i, leaf in enumerate(leaves) if not isinstance(leaf, tf.IndexedSlices)]
        if op not in _adjoint.LINEAR and len(dense) < len(leaves):
            raise invalid(f"IndexedSlices have no op {op!r}; pass tf.convert_to_tensor(x)")
    reduced = _reduced([leaves[i] for i in dense], op, group,
                       {**moving, "reproducible": reproducible})
    for i, result in zip(dense, reduced):
        leaves[i] = result
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, tf.IndexedSlices):
            leaves[i] = _gathered_slices(leaf, op, group, moving)
    return tf.nest.pack_sequence_as(x, leaves)


def _tensor_of(leaf):
    """A leaf as a tensor, or as IndexedSlices. Raises InvalidArgument for what is neither."""
    if isinstance(leaf, tf.IndexedSlices):
        return leaf
    try:
        return tf.convert_to_tensor(leaf)
    except (TypeError, ValueError) as error:
        raise invalid(f"this {type(leaf).__name__} is no tensor: {error}") from error


def _reduced(tensors, op, group, options):
    def adjoint(upstream):
        if op not in _adjoint.LINEAR:
            raise NotImplementedError(f"all_reduce has no gradient for op {op!r}")
        return _reduced(upstream, op, group, options)

    return _linear(lambda arrays: _adjoint.reduced(group_of(group), arrays, op, options), adjoint,
                   tensors)


def _gathered_slices(slices, op, group, options):
    values, place = _gathered(slices.values, group, options)
    if op == "mean":
        values = values / tf.cast(place[2], values.dtype)
    indices, _ = _gathered(slices.indices, group, options)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def all_gather(x: Any, group: Group | None = None, *, strategy: str | None = None,
               timeout: float | None = None, verify: bool | None = None) -> Any:
    """The tensors of all ranks, one behind the other along the first axis, whose sizes may differ;
    scalars become a vector. The gradient is this rank's part of the sum of the gradients. The
    options are those of Group.all_gather_v(), and hold for the gradient, too."""
    options = {"strategy": strategy, "timeout": timeout, "verify": verify}
    with reporting(group_of(group), "all_gather"):
        x = tf.convert_to_tensor(_tensor_of(x))
    return _gathered(x, group, options)[0]


def _gathered(x, group, options):
    """(the gathered tensor, [the first row of this rank, its rows, the number of ranks])."""
    def function(arrays):
        ranks, own = group_of(group), numpy.ascontiguousarray(arrays[0])
        own = own.reshape(own.shape or (1,))
        sizes = ranks.all_gather(numpy.array([len(own)], numpy.int64), **options).tolist()
        place = [sum(sizes[:ranks.rank]), len(own), len(sizes)]
        return [ranks.all_gather_v(own, sizes, **options), numpy.array(place, numpy.int64)]

    @tf.custom_gradient
    def gather(x):
        shape = None if x.shape.rank is None else [None, *x.shape[1:]]
        result, place = run(function, [x], [shape, [3]], [x.dtype, tf.int64])

        def gradient(upstream, _):
            total, = _reduced([tf.convert_to_tensor(upstream)], "sum", group, options)
            return tf.reshape(total[place[0]:place[0] + place[1]], tf.shape(x))

        return [result, place], gradient

    return gather(x)


def broadcast(x: Any, root: int = 0, group: Group | None = None, *, strategy: str | None = None,
              timeout: float | None = None, verify: bool | None = None) -> Any:
    """x of rank `root`, a tensor or a structure of tensors of the same shapes on all ranks. The
    root's gradient is the sum of all; the others have zeros. The options are those of
    Group.broadcast(), and hold for the gradient, too."""
    options = {"strategy": strategy, "timeout": timeout, "verify": verify}
    with reporting(group_of(group), "broadcast"):
        tensors = [tf.convert_to_tensor(_tensor_of(leaf)) for leaf in tf.nest.flatten(x)]
    return tf.nest.pack_sequence_as(x, _copied(tensors, root, group, options))


def _copied(tensors, root, group, options):
    """The tensors of rank `root`."""
    return _linear(lambda arrays: _adjoint.copies(group_of(group), arrays, root, options),
                   lambda upstream: _summed_at(upstream, root, group, options), tensors)


def _summed_at(tensors, root, group, options):
    """The sum of all ranks' tensors at rank `root`, zeros at the others."""
    return _linear(lambda arrays: _adjoint.summed_at(group_of(group), arrays, root, options),
                   lambda upstream: _copied(upstream, root, group, options), tensors)
