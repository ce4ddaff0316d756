#!/usr/bin/env python3
"""Training steps of Keras under Tutti and under TensorFlow's MultiWorkerMirroredStrategy,
interleaved in the same processes.

    tutti run --hosts 1 --per-host 2 -- python tests/bench/keras_steps.py [ROUNDS]

Prints the medians over all rounds of rank 0: milliseconds of a step of a model of 10 M parameters
alone, under both, and their communication: what their steps take longer. Their weights must agree.
Needs TensorFlow.
"""

import json
import os
import socket
import statistics
import sys
import time

import numpy as np

import tutti

_WARM_UP = 3
_WIDTH, _BATCH = 1600, 16


def config(group):
    """TF_CONFIG of the ranks, with free ports of this host."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = np.array([chosen.getsockname()[1]])
    workers = [f"127.0.0.1:{one}" for one in group.all_gather(port)]
    return json.dumps({"cluster": {"worker": workers},
                       "task": {"type": "worker", "index": group.rank}})


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    group = tutti.join(timeout=120)
    os.environ["TF_CONFIG"] = config(group)
    import tensorflow as tf  # Reads TF_CONFIG.

    import tutti.tensorflow as tft

    tft.init(group)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def step_of(optimizer):
        """(a compiled step, the model that it trains)."""
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.layers.Input((_WIDTH,)), *(
            tf.keras.layers.Dense(_WIDTH, "tanh") for _ in range(4))])
        optimizer.build(model.trainable_variables)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss

        return step, model

    def sgd():
        return tf.keras.optimizers.SGD(0.01)

    with strategy.scope():
        their_step, theirs = step_of(sgd())
    my_step, mine = step_of(tft.DistributedOptimizer(sgd(), op="sum"))
    racers = {"alone": tf.function(step_of(sgd())[0]), "tutti": tf.function(my_step),
              "tensorflow": tf.function(lambda *data: strategy.run(their_step, data))}
    seconds = {name: [] for name in racers}
    for round_ in range(rounds + _WARM_UP):
        random = np.random.default_rng(1000 * round_ + group.rank)
        data = [tf.constant(random.standard_normal((_BATCH, _WIDTH)), tf.float32) for _ in range(2)]
        for name, step in racers.items():
            group.barrier()
            begin = time.perf_counter()
            float(step(*data))
            seconds[name].append(time.perf_counter() - begin)
    for a, b in zip(mine.get_weights(), theirs.get_weights()):
        assert np.allclose(a, b, rtol=1e-3, atol=1e-5), "the weights differ"
    if group.rank == 0:
        report({name: 1000 * statistics.median(all_[_WARM_UP:]) for name, all_ in seconds.items()})


def report(medians):
    alone = medians["alone"]
    print(f"a step: alone {alone:.1f} ms, " + ", ".join(
        f"{name} {medians[name]:.1f} ms" for name in ("tensorflow", "tutti")))
    mine, theirs = medians["tutti"] - alone, medians["tensorflow"] - alone
    print(f"communication: tensorflow {theirs:.1f} ms, tutti {mine:.1f} ms, "
          f"ratio {mine / theirs:.2f}")


main()
