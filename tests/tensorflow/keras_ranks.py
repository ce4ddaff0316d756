"""What each rank of test_ranks trains: the ranks' models end alike, and like one of one process
with the whole batch."""

import copy
import pickle
import tempfile

import numpy as np
import tensorflow as tf

import tutti
import tutti.tensorflow as tft

BATCH, RATE = 8, 0.01


def model_of(seed):
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(16, "tanh"),
                                tf.keras.layers.Dense(1)])


def weights_of(model):
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


def fit(model, x, y, batch, callbacks=()):
    return model.fit(x, y, epochs=3, batch_size=batch, shuffle=False, verbose=0,
                     callbacks=list(callbacks)).history


def check_like_one_process(x, y):
    group = tft.init()
    own = slice(tft.rank(), None, tft.size())
    for optimizer in (tf.keras.optimizers.SGD(RATE, momentum=0.9), tf.keras.optimizers.Adam(RATE)):
        alone, apart = model_of(1), model_of(1 + tft.rank())
        tft.broadcast_variables(apart.variables)  # Rank 0 has made the same as `alone`.
        copy = type(optimizer).from_config(optimizer.get_config())
        apart.compile(tft.DistributedOptimizer(optimizer), "mse")
        alone.compile(copy, "mse")
        histories = (fit(apart, x[own], y[own], BATCH, [tft.callbacks.MetricAverageCallback()]),
                     fit(alone, x, y, BATCH * tft.size()))
        mine = weights_of(apart)
        every = group.all_gather(mine).reshape(tft.size(), -1)
        assert (every == every[0]).all(), "the ranks' weights differ"
        assert np.allclose(mine, weights_of(alone), rtol=1e-3, atol=1e-4), "not as one process"
        assert np.allclose(*(history["loss"] for history in histories), rtol=1e-3)


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error: {text}")


class Rates(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def check_callbacks(x, y):
    """Models that begin apart are equal from the first batch on; the rate goes up to its end."""
    group = tft.init()
    own = slice(tft.rank(), None, tft.size())
    model, rates = model_of(tft.rank()), Rates()
    model.compile(tft.DistributedOptimizer(tf.keras.optimizers.Adam(RATE)), "mse")
    fit(model, x[own], y[own], BATCH, [tft.callbacks.BroadcastGlobalVariablesCallback(1),
                                       tft.callbacks.LearningRateWarmupCallback(RATE, 2), rates])
    every = group.all_gather(weights_of(model)).reshape(tft.size(), -1)
    assert (every == every[0]).all(), "the ranks' weights differ"
    steps = len(rates.rates) // 3
    expected = RATE * (1 + np.minimum(1, np.arange(3 * steps) / steps / 2) * (tft.size() - 1))
    assert np.allclose(rates.rates, expected / tft.size(), rtol=1e-5), rates.rates


def check_later_epochs(x, y):
    """After the warm-up the rate is set once, and by others; a schedule is refused."""
    model, rates = model_of(1), Rates()
    model.compile(tf.keras.optimizers.SGD(RATE), "mse")

    class Halving(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                self.model.optimizer.learning_rate.assign(RATE / 2)

    warm_up = tft.callbacks.LearningRateWarmupCallback(RATE, 1)
    callbacks = [warm_up, Halving(), rates]
    history = fit(model, x, y, len(x) // 4, callbacks)
    assert len(history["loss"]) == 3 and np.allclose(rates.rates[4:], [RATE] * 4 + [RATE / 2] * 4)
    model.fit(x, y, initial_epoch=3, epochs=4, verbose=0, callbacks=callbacks)
    assert np.isclose(float(model.optimizer.learning_rate), RATE / 2), "resumed, but set again"
    model.fit(x[:16], y[:16], batch_size=8, verbose=0, callbacks=[warm_up])
    assert np.isclose(float(model.optimizer.learning_rate), RATE), "the steps of an earlier fit()"
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(RATE, 10, 0.9)
    model.compile(tf.keras.optimizers.SGD(schedule), "mse")
    refused(ValueError, "has a schedule", lambda: fit(model, x, y, 8, [warm_up]))
    model.compile("sgd", "mse", jit_compile=True)
    refused(tutti.Error, "jit_compile=False", lambda: fit(
        model, x, y, 8, [tft.callbacks.BroadcastGlobalVariablesCallback()]))


def check_metrics():
    """Arrays are averaged, too; what is no number stays; other names are an error on all ranks."""
    average = tft.callbacks.MetricAverageCallback()
    logs = {"name": "run", "loss": float(tft.rank()), "parts": np.arange(2) + tft.rank()}
    average.on_epoch_end(0, logs)
    mean = (tft.size() - 1) / 2
    assert logs["name"] == "run" and logs["loss"] == mean
    assert logs["parts"].tolist() == [mean, mean + 1]
    wrong = {"loss": 1.0, "val_loss" if tft.rank() else "accuracy": 1.0}
    refused(tutti.Error, "different metrics", lambda: average.on_epoch_end(0, wrong))


def check_missing_gradients():
    """Two variables of one shape: ranks that have gradients for different ones raise; ranks that
    all lack the same one do not."""
    first, second = tf.Variable([1.0]), tf.Variable([1.0])
    optimizer = tft.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    for apply in (optimizer.apply_gradients, tf.function(optimizer.apply_gradients)):
        apply([(tf.constant([tft.rank() + 1.0]), first), (None, second)])
        gradients = [tf.constant([1.0]), None]
        pairs = list(zip(gradients[::-1 if tft.rank() else 1], (first, second)))
        refused(Exception, "gradients for different variables", lambda: apply(pairs))
    assert np.allclose(first.numpy(), 1 - (tft.size() + 1)) and second.numpy() == [1]
    four, wide = tf.Variable(tf.ones(4)), tf.Variable(tf.ones(1, tf.float64))
    for shapes in ((tf.Variable(tf.ones(2)),), (tf.Variable(tf.ones(3)), wide)):
        with tft.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = sum(tf.cast(tf.reduce_sum(one), tf.float32) for one in shapes)
            loss += 0.0 if tft.rank() == 1 else tf.reduce_sum(four)
        refused(tutti.Error, "gradients for different variables" if tft.rank() == 1 else "rank 1",
                lambda: tape.gradient(loss, [four, *shapes]))
    tft.shutdown()  # Ranks that list other dtypes are out of step.
    tft.init(timeout=60)


def check_mixed_precision(x, y):
    """Infinite gradients of one rank skip the step on all."""
    tf.keras.config.set_dtype_policy("mixed_float16")
    try:
        model = model_of(1)
        model.compile(tft.DistributedOptimizer(tf.keras.optimizers.SGD(RATE)), "mse")
        before = weights_of(model)
        scale = np.inf if tft.rank() == 1 else 1
        model.fit(x[:8], y[:8] * scale, epochs=1, batch_size=8, verbose=0)
        assert (weights_of(model) == before).all(), "a rank has not skipped the step"
        model.fit(x[:8], y[:8], epochs=30, batch_size=8, verbose=0)  # Until the scale fits.
        every = tft.init().all_gather(weights_of(model)).reshape(tft.size(), -1)
        assert (every == every[0]).all() and (every[0] != before).any()
        late = model_of(1)
    finally:
        tf.keras.config.set_dtype_policy("float32")
    late.compile(tft.DistributedOptimizer(tf.keras.optimizers.SGD(RATE)), "mse")
    refused(RuntimeError, "DistributedOptimizer(LossScaleOptimizer",
            lambda: late.fit(x[:8], y[:8], verbose=0))  # Keras makes it a RuntimeError.


@tf.keras.utils.register_keras_serializable("tests")
class OwnSgd(tf.keras.optimizers.SGD):
    """A user's optimizer."""


def check_saved(model_path):
    """A saved model and a copy have the optimizer as it was; an optimizer reduces once."""
    for kind in (tf.keras.optimizers.SGD, OwnSgd):
        model = model_of(1)
        model.compile(tft.DistributedOptimizer(kind(RATE)), "mse")
        model.save(model_path)
        assert type(tf.keras.models.load_model(model_path).optimizer) is kind
        copies = (copy.deepcopy(model.optimizer), pickle.loads(pickle.dumps(model.optimizer)))
        assert all(type(one) is kind for one in copies)
        tft.DistributedOptimizer(copies[0])
        for again in (model.optimizer, tf.keras.optimizers.LossScaleOptimizer(model.optimizer)):
            refused(ValueError, "already", lambda: tft.DistributedOptimizer(again))
    refused(TypeError, "Keras 3", lambda: tft.DistributedOptimizer("sgd"))
    refused(ValueError, "combine", lambda: tft.DistributedOptimizer(kind(RATE), op="max"))


def main():
    tft.init(timeout=60)
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH * tft.size() * 4, 8)).astype("f4")
    y = (x @ np.arange(8)).astype("f4")
    check_like_one_process(x, y)
    check_callbacks(x, y)
    check_later_epochs(x, y)
    check_metrics()
    check_missing_gradients()
    check_mixed_precision(x, y)
    if tft.rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            check_saved(folder + "/model.keras")
    tft.shutdown()


main()
