"""What each rank of test_ranks does with operations of TensorFlow: eagerly and in tf.function."""

import os
import sys
import threading

import numpy as np
import tensorflow as tf

import tutti
import tutti.tensorflow as tft
from tutti.tensorflow._operations import run

DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8)
OPS = {"sum": np.sum, "min": np.min, "max": np.max, "prod": np.prod}


def both(function):
    """The function as it is, and as a graph."""
    return function, tf.function(function)


def parts(dtype, shape, seed):
    """Small whole numbers of every rank: exact in each dtype."""
    values = np.random.default_rng(seed).integers(0, 3, (tft.size(), *shape))
    return values.astype(dtype.as_numpy_dtype)


def check_reductions():
    for seed, dtype in enumerate(DTYPES):
        for shape in ((), (0,), (1,), (10, 100)):
            every = parts(dtype, shape, seed)
            x = tf.constant(every[tft.rank()], dtype)
            for op, expected in OPS.items():
                for call in both(lambda x, op=op: tft.all_reduce(x, op)):
                    result = call(x)
                    assert result.dtype == dtype and result.shape == x.shape
                    assert (result.numpy() == expected(every.astype("f8"), 0)).all(), (dtype, op)
            assert (x.numpy() == every[tft.rank()]).all(), "the input has changed"


def check_structures():
    x = float(tft.rank() + 1)
    total = sum(range(1, tft.size() + 1))
    for call in both(lambda x: tft.all_reduce({"a": x, "b": [x * 2, tf.constant(1)]},
                                              tf.distribute.ReduceOp.SUM)):
        result = call(tf.constant([x]))
        assert result["a"].numpy() == [total] and result["b"][0].numpy() == [2 * total]
        assert result["b"][1].numpy() == tft.size()
    assert tft.all_reduce([]) == []
    for call in both(lambda x: tft.broadcast((x, x + 1), root=1)):
        first, second = call(tf.constant(x))
        assert (first.numpy(), second.numpy()) == (2, 3)


def check_gather():
    rows = tft.rank() + 1
    expected = np.repeat(np.arange(tft.size()), np.arange(1, tft.size() + 1))
    for call in both(tft.all_gather):
        result = call(tf.fill([rows, 2], float(tft.rank())))
        assert (result.numpy() == expected[:, None]).all() and result.shape == (len(expected), 2)
    assert (tft.all_gather(tf.constant(tft.rank())).numpy() == np.arange(tft.size())).all()


def gradient_of(function, at):
    with tf.GradientTape() as tape:
        tape.watch(at)
        loss = function(at)
    return tape.gradient(loss, at)


def check_gradients():
    own, size = tft.rank() + 1.0, tft.size()
    total = sum(range(1, size + 1))
    at = tf.constant([1.0, 2.0])
    weights = tf.range(2.0 * size)
    for function, expected in (
            (lambda v: tf.reduce_sum(tft.all_reduce(v) * own), [total, total]),
            (lambda v: tf.reduce_sum(tft.all_reduce(v, "mean") * own), [total / size] * 2),
            (lambda v: tf.reduce_sum(tft.broadcast(v, root=1) * own),
             [total * (tft.rank() == 1)] * 2),
            (lambda v: tf.reduce_sum(tft.all_gather(v) * weights),
             [size * 2.0 * tft.rank(), size * (2.0 * tft.rank() + 1)])):
        for call in both(lambda v, function=function: gradient_of(function, v)):
            assert np.allclose(call(at).numpy(), expected), (call(at).numpy(), expected)
    try:
        gradient_of(lambda v: tf.reduce_sum(tft.all_reduce(v, "max")), at)
    except NotImplementedError:
        return
    raise AssertionError("max has no gradient")


def check_second_derivatives():
    """The loss is the sum over all ranks of own * y ** 2; y is what the operation makes of v."""
    own, size = tft.rank() + 1.0, tft.size()
    total = sum(range(1, size + 1))
    for function, expected in (
            (tft.all_reduce, [2 * total * total] * 2),
            (lambda v: tft.broadcast(v, root=1), [2 * total * own * (tft.rank() == 1)] * 2),
            (tft.all_gather, [2 * total * own] * 2)):
        def first(v, function=function):
            return gradient_of(lambda v: own * tf.reduce_sum(function(v) ** 2), v)

        for call in both(lambda v, first=first: gradient_of(
                lambda v: own * tf.reduce_sum(first(v)), v)):
            result = call(tf.constant([1.0, 2.0]))
            assert np.allclose(tf.convert_to_tensor(result), expected), (result, expected)


def check_odd_gradients():
    """Rows picked from a result; a structure with integers; a tensor of unknown rank."""
    def picked(v):
        return tf.reduce_sum(tf.gather(tft.all_gather(v), [0, 0]))

    def with_integers(v):
        return tf.reduce_sum(tft.all_reduce((tf.constant([3]), v))[1])

    own = 2.0 * tft.size() * (tft.rank() == 0)
    for function, expected in ((picked, [own, 0]), (with_integers, [tft.size()] * 2)):
        for call in both(lambda v, function=function: gradient_of(function, v)):
            result = call(tf.constant([1.0, 2.0]))
            assert np.allclose(tf.convert_to_tensor(result), expected), (result, expected)
    gathered = tf.function(tft.all_gather, input_signature=[tf.TensorSpec(None)])
    assert gathered(tf.ones([tft.rank(), 2])).shape == (sum(range(tft.size())), 2)
    assert gathered(tf.constant(2.0)).numpy().tolist() == [2.0] * tft.size()


def check_slices():
    table = tf.Variable(tf.ones([8, 2]))
    with tft.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.gather(table, [tft.rank(), 7]))
    result = tape.gradient(loss, {"table": table})["table"]
    assert isinstance(result, tf.IndexedSlices)
    expected = np.zeros((8, 2))
    expected[:tft.size()] = 1 / tft.size()
    expected[7] = 1
    assert np.allclose(tf.convert_to_tensor(result).numpy(), expected)


def check_refusals():
    for call in both(lambda x: tft.all_reduce(x, "nonsense")):
        try:
            call(tf.ones(2))
        except Exception as error:
            assert "op 'nonsense' is none of" in str(error), error
        else:
            raise AssertionError("no error")
    for option in ({"blocking": False}, {"out": None}, {"dtype": "f32"}, {"factor": 2}):
        try:
            tft.all_reduce(tf.ones(2), **option)
        except TypeError:
            continue
        raise AssertionError(option)
    for wrong in (lambda: tft.all_reduce(tf.ones(1), 3), lambda: tft.all_reduce([tf.ones(1), None]),
                  lambda: tft.broadcast(object()), lambda: tft.all_gather(None)):
        try:
            wrong() if tft.rank() == 1 else tft.all_reduce(tf.ones(1))
        except tutti.Error as error:
            assert error.code == "INVALID_ARGUMENT", error
        else:
            raise AssertionError("another rank's refusal is not told")
    assert tft.all_reduce(tf.ones(1)).numpy() == [tft.size()], "the ranks are out of step"
    for wrong in (lambda: tft.init(tft.init(), timeout=3), lambda: tft.init("job")):
        try:
            wrong()
        except TypeError:
            continue
        raise AssertionError("init() ignores what it is given")


def check_options():
    """Every option is one of the group's, also for the gradient."""
    x = tf.constant([1.0, 2.0])
    for call in (lambda v: tft.all_reduce(v, strategy="ring", timeout=9, reproducible=True,
                                          verify=True),
                 lambda v: tft.all_gather(v, strategy="ring", timeout=9, verify=True),
                 lambda v: tft.broadcast(v, strategy="tree:2", timeout=9, verify=True)):
        assert gradient_of(lambda v, call=call: tf.reduce_sum(call(v)), x) is not None


def check_order():
    """An operation does not overtake those within functions, loops and branches before it."""
    seen, counter = [], tf.Variable(0.0)

    def step(name, x):
        def function(arrays):
            if name == "within":
                threading.Event().wait(0.05)  # Others could begin.
            seen.append(name)
            return arrays

        return run(function, [x], [x.shape])[0]

    def within(x):
        counter.assign_add(1.0)
        return step("within", x)

    def loop(x):
        for _ in tf.range(1):
            within(x)

    def branch(x):
        if counter >= 0.0:
            within(x)

    for inner in (tf.function(within), loop, branch):
        @tf.function
        def outer(x, inner=inner):
            inner(x)
            return step("after", x)

        for _ in range(3):
            outer(tf.constant(1.0))
        assert seen == ["within", "after"] * 3, seen
        seen.clear()


def check_joining_again(total):
    """A graph goes on in the next job, also where the group was left by itself."""
    tft.shutdown()
    tft.init(timeout=60).leave()
    tft.shutdown()
    tft.init(timeout=60).leave()
    tft.init(timeout=60)
    assert total(tf.ones(2)).numpy().tolist() == [tft.size()] * 2


def die():
    """Rank 1 ends within the others' operation, in a graph."""
    total = tf.function(tft.all_reduce)
    total(tf.ones(2))
    if tft.rank() == 1:
        os._exit(7)
    try:
        while True:
            total(tf.ones(2))
    except Exception as error:
        assert "UNAVAILABLE" in str(error) and "rank 1 (" in str(error), error
        print("rank 0 learns of rank 1", flush=True)


tft.init(timeout=60)
if sys.argv[1:] == ["die"]:
    die()
else:
    check_reductions()
    check_structures()
    check_gather()
    check_gradients()
    check_second_derivatives()
    check_odd_gradients()
    check_slices()
    check_refusals()
    check_options()
    check_order()
    compiled = tf.function(tft.all_reduce)
    compiled(tf.ones(2))
    check_joining_again(compiled)
    tft.shutdown()
