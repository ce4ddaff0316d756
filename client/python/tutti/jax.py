"""Collectives for JAX, eagerly and inside jax.jit, on arrays and pytrees, with gradients.

    import jax, tutti, tutti.jax as tj

    group = tutti.join()

    @jax.jit
    def step(params, batch):
        gradients = tj.pmean(jax.grad(loss)(params, batch), group)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

Inside jax.jit a call is one ordered io_callback: JAX runs these in the order of the program, which
is the same on all ranks. Arrays that are spread over several devices are refused. docs/jax.md.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy
from jax.experimental import io_callback

from tutti import _adjoint, _foreign
from tutti._error import Error, invalid
from tutti._group import Group
from tutti._many import Works, start_all
from tutti._refusal import reporting

__all__ = ["all_gather", "all_reduce", "broadcast", "pmean", "psum"]

_Arrays = list[Any]


def _call(function, leaves, shapes):
    """What function(arrays) returns, as arrays of these jax.ShapeDtypeStruct, like the leaves;
    while JAX traces, when that runs. Else at once, after what functions that were compiled have
    begun: the ranks must make their operations in one order."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        _refuse_shards()
        return io_callback(lambda *arrays: function([numpy.asarray(a) for a in arrays]), shapes,
                           *leaves, ordered=True)
    jax.effects_barrier()
    results = function([numpy.asarray(leaf) for leaf in leaves])
    return [_foreign.like(result, leaf) for result, leaf in zip(results, leaves)]


def _refuse_shards():
    """Raises within jax.shard_map, where each device would call, in an order of its own."""
    mesh_of = getattr(jax.sharding, "get_abstract_mesh", None)
    if mesh_of is not None and getattr(mesh_of(), "manual_axes", ()):
        raise Error("UNIMPLEMENTED", "collectives of Tutti within jax.shard_map or jax.pmap; call "
                    "them in the jax.jit around it")


def _same(shape):
    return shape


def _operation(function: Callable[[_Arrays], _Arrays], adjoint: Callable[[_Arrays], _Arrays],
               leaves: _Arrays, shape_of: Callable[[tuple[int, ...]], tuple[int, ...]] = _same
               ) -> _Arrays:
    """function(leaves), whose results have the shapes shape_of(shape), and whose gradient is
    adjoint(gradients of the floats); others have none."""
    @jax.custom_vjp
    def call(leaves):
        leaves = [_array_of(leaf) for leaf in leaves]  # JAX's own numbers have no shape.
        shapes = [jax.ShapeDtypeStruct(shape_of(leaf.shape), leaf.dtype) for leaf in leaves]
        return _call(function, leaves, shapes)

    def backward(_, gradients):
        results = [None] * len(gradients)
        floats = [i for i, one in enumerate(gradients) if one.dtype != jax.dtypes.float0]
        for i, result in zip(floats, adjoint([gradients[i] for i in floats])):
            results[i] = result
        return (results,)

    call.defvjp(lambda leaves: (call(leaves), None), backward)
    return call(leaves) if leaves else []


def _array_of(leaf):
    return leaf if isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf)


def _leaves_of(tree, group, verb):
    """(the arrays of a tree, its structure). What is wrong with one fails the call on all ranks."""
    with reporting(group, verb):
        leaves, structure = jax.tree.flatten(tree)
        try:
            leaves = [_array_of(leaf) for leaf in leaves]
        except (TypeError, ValueError) as error:
            raise invalid(f"a leaf is no array: {error}") from error
        for leaf in leaves:
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                raise invalid("a typed key is no array; pass jax.random.key_data(key), and "
                              "jax.random.wrap_key_data() of the result")
            if not isinstance(leaf, jax.core.Tracer):
                _foreign.held(leaf)  # Refuses arrays that are spread over devices.
    return leaves, structure


def all_reduce(tree: Any, group: Group, op: str = "sum", *, strategy: str | None = None,
               timeout: float | None = None, reproducible: bool | None = None,
               verify: bool | None = None) -> Any:
    """The arrays of a pytree, reduced over all ranks, as new arrays: one operation for all. The
    gradient of a sum is the sum of the gradients, of a mean their mean; other ops have none. The
    options are those of Group.all_reduce(), and hold for the gradient, too."""
    leaves, structure = _leaves_of(tree, group, "all_reduce")
    with reporting(group, "all_reduce"):
        if not isinstance(op, str):
            raise invalid(f"op {op!r} must be a name, such as \"sum\"")
    reduced = _reduced(leaves, group, op, {"strategy": strategy, "timeout": timeout,
                                           "reproducible": reproducible, "verify": verify})
    return jax.tree.unflatten(structure, reduced)


def _reduced(leaves, group, op, options):
    def adjoint(gradients):
        if op not in _adjoint.LINEAR:
            raise NotImplementedError(f"all_reduce has no gradient for op {op!r}")
        return _reduced(gradients, group, op, options)

    return _operation(lambda arrays: _adjoint.reduced(group, arrays, op, options), adjoint, leaves)


def psum(tree: Any, group: Group, **options: Any) -> Any:
    """As jax.lax.psum, over the ranks of the group: it counts bools. options: of all_reduce()."""
    def counted(leaf):
        is_bool = getattr(leaf, "dtype", type(leaf)) == bool
        return jax.numpy.asarray(leaf, jax.numpy.int32) if is_bool else leaf

    return all_reduce(jax.tree.map(counted, tree), group, "sum", **options)


def pmean(tree: Any, group: Group, **options: Any) -> Any:
    """As jax.lax.pmean, over the ranks of the group. options: of all_reduce()."""
    return all_reduce(tree, group, "mean", **options)


def broadcast(tree: Any, group: Group, root: int = 0, *, strategy: str | None = None,
              timeout: float | None = None, verify: bool | None = None) -> Any:
    """The arrays of rank `root`'s pytree, as new arrays. The root's gradient is the sum of all; the
    others have zeros. The options are those of Group.broadcast(), and hold for the gradient,
    too."""
    leaves, structure = _leaves_of(tree, group, "broadcast")
    options = {"strategy": strategy, "timeout": timeout, "verify": verify}
    return jax.tree.unflatten(structure, _copied(leaves, group, root, options))


def _copied(leaves, group, root, options):
    """The arrays of rank `root`."""
    return _operation(lambda arrays: _adjoint.copies(group, arrays, root, options),
                      lambda gradients: _summed_at(gradients, group, root, options), leaves)


def _summed_at(leaves, group, root, options):
    """The sum of all ranks' arrays at rank `root`, zeros at the others."""
    return _operation(lambda arrays: _adjoint.summed_at(group, arrays, root, options),
                      lambda gradients: _copied(gradients, group, root, options), leaves)


def all_gather(tree: Any, group: Group, tiled: bool = False, *, strategy: str | None = None,
               timeout: float | None = None, verify: bool | None = None) -> Any:
    """The arrays of all ranks, of one shape, along a new first axis, or one behind the other along
    the first axis if `tiled`, as jax.lax.all_gather; of a pytree each array. The gradient is this
    rank's part of the sum of the gradients. The options are those of Group.all_gather(), and hold
    for the gradient, too."""
    leaves, structure = _leaves_of(tree, group, "all_gather")
    with reporting(group, "all_gather"):
        if tiled and any(leaf.ndim == 0 for leaf in leaves):
            raise invalid("a scalar has no first axis; call all_gather without tiled=True")
    options = {"strategy": strategy, "timeout": timeout, "verify": verify}

    def shape_of(shape):
        return (group.world_size * shape[0], *shape[1:]) if tiled else (group.world_size, *shape)

    def function(arrays):
        outs = [numpy.empty(shape_of(array.shape), array.dtype) for array in arrays]
        works = start_all(lambda array, out: group.all_gather(
            array if tiled else array[None], out=out, blocking=False, **options), zip(arrays, outs))
        return Works(works, outs).wait()

    def adjoint(gradients):
        totals = _reduced(gradients, group, "sum", options)
        return [_own_part(total) for total in totals]

    def _own_part(total):
        rows = total.shape[0] // group.world_size
        own = jax.lax.slice_in_dim(total, group.rank * rows, (group.rank + 1) * rows)
        return own if tiled else own[0]

    return jax.tree.unflatten(structure, _operation(function, adjoint, leaves, shape_of))
