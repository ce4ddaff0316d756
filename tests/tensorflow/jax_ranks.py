"""What each rank of test_ranks does with JAX: eagerly and inside jax.jit."""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np

import tutti
import tutti.jax

DTYPES = ("float32", "float16", "bfloat16", "int32", "uint8")
OPS = {"sum": np.sum, "min": np.min, "max": np.max, "prod": np.prod}


def both(function):
    """The function as it is, and compiled."""
    return function, jax.jit(function)


def check_reductions(group):
    for seed, dtype in enumerate(DTYPES):
        for count in (0, 1, 1000):
            values = np.random.default_rng(seed).integers(0, 3, (group.world_size, count))
            x = jnp.array(values[group.rank], dtype)
            for op, expected in OPS.items():
                for call in both(lambda x, op=op: tutti.jax.all_reduce(x, group, op)):
                    result = call(x)
                    assert isinstance(result, jax.Array) and result.dtype == x.dtype
                    assert (np.asarray(result, "f8") == expected(values, 0)).all(), (dtype, op)
            assert (np.asarray(x, "f8") == values[group.rank]).all(), "the input has changed"


def check_trees(group):
    total = sum(range(1, group.world_size + 1))
    own = jnp.float32(group.rank + 1)
    for call in both(lambda x: tutti.jax.psum({"a": x, "b": (None, [x * 2, jnp.int32(1)])}, group)):
        result = call(own)
        assert result["a"] == total and result["b"][0] is None
        assert result["b"][1] == [2 * total, group.world_size]
    assert tutti.jax.pmean([], group) == []
    for call in both(lambda x: tutti.jax.psum((x > 1, x), group)):
        count, _ = call(own)
        assert count == group.world_size - 1 and count.dtype == jnp.int32
    assert tutti.jax.psum(True, group) == group.world_size
    for call in both(lambda x: tutti.jax.broadcast((x, x + 1), group, root=1)):
        assert call(own) == (2, 3)
    for call in both(lambda x: (tutti.jax.all_gather(x, group),
                                tutti.jax.all_gather(x[None], group, tiled=True))):
        for result in call(own):
            assert (result == jnp.arange(1, group.world_size + 1)).all()
    step = jax.jit(lambda x: jax.lax.scan(
        lambda x, _: (tutti.jax.pmean(x, group), None), x, None, length=3)[0])
    assert step(own) == total / group.world_size


def check_gradients(group):
    own, size = group.rank + 1.0, group.world_size
    total = sum(range(1, size + 1))
    weights = jnp.arange(2.0 * size)
    for function, expected in (
            (lambda v: jnp.sum(tutti.jax.psum(v, group) * own), [total, total]),
            (lambda v: jnp.sum(tutti.jax.pmean(v, group) * own), [total / size] * 2),
            (lambda v: jnp.sum(tutti.jax.broadcast(v, group, 1) * own),
             [total * (group.rank == 1)] * 2),
            (lambda v: jnp.sum(tutti.jax.all_gather(v, group, tiled=True) * weights),
             [size * 2.0 * group.rank, size * (2.0 * group.rank + 1)]),
            (lambda v: jnp.sum(tutti.jax.all_gather(v, group) * weights.reshape(size, 2)),
             [size * 2.0 * group.rank, size * (2.0 * group.rank + 1)])):
        for call in both(jax.grad(function)):
            result = call(jnp.array([1.0, 2.0]))
            assert np.allclose(result, expected), (result, expected)


def check_second_derivatives(group):
    """The loss is the sum over all ranks of own * y ** 2; y is what the operation makes of v."""
    own, size = group.rank + 1.0, group.world_size
    total = sum(range(1, size + 1))
    for function, expected in (
            (lambda v: tutti.jax.psum(v, group), [2 * total * total] * 2),
            (lambda v: tutti.jax.broadcast(v, group, 1), [2 * total * own * (own == 2)] * 2),
            (lambda v: tutti.jax.all_gather(v, group), [2 * total * own] * 2),
            (lambda v: tutti.jax.all_gather(v, group, tiled=True), [2 * total * own] * 2)):
        first = jax.grad(lambda v, function=function: own * jnp.sum(function(v) ** 2))
        for call in both(jax.grad(lambda v, first=first: own * jnp.sum(first(v)))):
            result = call(jnp.array([1.0, 2.0]))
            assert np.allclose(result, expected), (result, expected)


def check_odd_gradients(group):
    """Numbers of Python, and integers in the tree."""
    assert jax.grad(lambda x: tutti.jax.psum(x, group))(1.0) == group.world_size
    for call in both(jax.grad(lambda x: tutti.jax.psum((x, jnp.arange(3)), group)[0])):
        assert call(1.0) == group.world_size
    for call in both(jax.grad(lambda x: tutti.jax.broadcast(
            {"mask": jnp.array([True]), "x": x}, group)["x"])):
        assert call(1.0) == group.world_size * (group.rank == 0)
    gathered = tutti.jax.all_gather({"a": jnp.ones((2, 1)), "b": [1.0]}, group)
    assert gathered["a"].shape == (group.world_size, 2, 1)
    assert gathered["b"][0].shape == (group.world_size,)


def check_order(group):
    """A call outside of jax.jit waits for those that have begun within, also where their input is
    still being computed; the ranks are late in turn."""
    slow = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, a: a @ a * 0.001, x))
    step = jax.jit(lambda a: tutti.jax.psum(jnp.full(4, 100.0) + 0 * a[0, 0], group))
    ones, start = jnp.ones(4), jnp.eye(300)
    for late in range(12):
        first = step(slow(start, 100 if group.rank == late % group.world_size else 1))
        second = tutti.jax.psum(ones, group)
        assert (first == 100 * group.world_size).all() and (second == group.world_size).all()


def check_places(group):
    """Results are where the inputs are, and 64 bits stay; in shard_map calls are refused."""
    second = jax.device_put(jnp.ones(2), jax.devices()[1])
    assert tutti.jax.psum(second, group).devices() == second.devices()
    with jax.enable_x64(True):
        wide = jnp.full(2, 1 / 3, jnp.float64)
    result = tutti.jax.pmean({"wide": wide}, group)["wide"]
    assert result.dtype == jnp.float64 and (np.asarray(result) == 1 / 3).all()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "x")
    parts = jax.sharding.PartitionSpec("x")
    within = jax.jit(jax.shard_map(lambda x: tutti.jax.psum(x, group), mesh=mesh, in_specs=parts,
                                   out_specs=parts))
    for call in (lambda: within(jnp.ones(4)),
                 lambda: jax.pmap(lambda x: tutti.jax.psum(x, group))(jnp.ones((2, 3)))):
        try:
            call()
        except tutti.Error as error:
            assert "jax.shard_map" in str(error), error
        else:
            raise AssertionError("each device calls on its own")


def check_options(group):
    """Every option is one of the group's, also for the gradient."""
    for call in (lambda v: tutti.jax.pmean(v, group, strategy="ring", timeout=9, reproducible=True,
                                           verify=True),
                 lambda v: tutti.jax.all_gather(v, group, strategy="ring", timeout=9, verify=True),
                 lambda v: tutti.jax.broadcast(v, group, strategy="tree:2", timeout=9,
                                               verify=True)):
        for gradient in both(jax.grad(lambda v, call=call: jnp.sum(call(v)))):
            assert gradient(jnp.ones(2)).shape == (2,)


def check_refusals(group):
    batched = "Cannot `vmap` ordered IO callback"
    calls = (
        ("op 'nonsense' is none of", lambda: tutti.jax.all_reduce(jnp.ones(2), group, "nonsense")),
        ("op 'nonsense' is none of",
         lambda: jax.jit(lambda x: tutti.jax.all_reduce(x, group, "nonsense"))(jnp.ones(2))),
        (batched, lambda: jax.vmap(lambda x: tutti.jax.psum(x, group))(jnp.ones((2, 2)))),
        (batched, lambda: jax.jacrev(lambda x: tutti.jax.psum(x, group))(jnp.ones(2))),
        ("can't apply forward-mode autodiff",
         lambda: jax.hessian(lambda x: jnp.sum(tutti.jax.psum(x, group) ** 2))(jnp.ones(2))),
        ("unexpected keyword argument 'blocking'",
         lambda: tutti.jax.psum(jnp.ones(2), group, blocking=False)),
        ("a scalar has no first axis",
         lambda: tutti.jax.all_gather(jnp.float32(1), group, tiled=True)))
    for text, call in calls:
        try:
            jax.block_until_ready(call())
        except Exception as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")
    try:
        jax.grad(lambda x: tutti.jax.all_reduce(x, group, "max"))(1.0)
    except NotImplementedError:
        pass
    else:
        raise AssertionError("max has no gradient")
    devices = jax.sharding.Mesh(np.array(jax.devices()), "x")
    spread = jax.device_put(jnp.ones(8), jax.sharding.NamedSharding(
        devices, jax.sharding.PartitionSpec("x")))
    try:
        tutti.jax.psum(spread, group)
    except tutti.Error as error:
        assert "is spread over 2 devices" in str(error), error
    else:
        raise AssertionError("no error")
    for wrong in (lambda: tutti.jax.psum(object(), group),
                  lambda: tutti.jax.all_gather(1.0, group, True),
                  lambda: tutti.jax.broadcast(jax.random.key(0), group),
                  lambda: tutti.jax.all_reduce(1.0, group, 3)):
        try:
            wrong() if group.rank == 1 else tutti.jax.psum(jnp.float32(1), group)
        except tutti.Error as error:
            assert error.code == "INVALID_ARGUMENT", error
        else:
            raise AssertionError("another rank's refusal is not told")
    assert tutti.jax.psum(jnp.float32(1), group) == group.world_size, "the ranks are out of step"


def die(group):
    """Rank 1 ends within the others' operation, in a compiled function."""
    total = jax.jit(lambda x: tutti.jax.psum(x, group))
    total(jnp.ones(2))
    if group.rank == 1:
        os._exit(7)
    try:
        while True:
            jax.block_until_ready(total(jnp.ones(2)))
    except Exception as error:
        assert "UNAVAILABLE" in str(error) and "rank 1 (" in str(error), error
        print("rank 0 learns of rank 1", flush=True)


jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
own_group = tutti.join(timeout=60)
if sys.argv[1:] == ["die"]:
    die(own_group)
else:
    check_reductions(own_group)
    check_trees(own_group)
    check_gradients(own_group)
    check_second_derivatives(own_group)
    check_odd_gradients(own_group)
    check_options(own_group)
    check_order(own_group)
    check_places(own_group)
    check_refusals(own_group)
    own_group.leave()
