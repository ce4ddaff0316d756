"""Collectives as TensorFlow's operations, and data-parallel training with Keras 3, under Horovod's
names.

    import tutti.tensorflow as tft

    tft.init()
    model.compile(tft.DistributedOptimizer(keras.optimizers.Adam(1e-3 * tft.size())), "mse")
    model.fit(own_part_of_the_data, callbacks=[
        tft.callbacks.BroadcastGlobalVariablesCallback(0), tft.callbacks.MetricAverageCallback()])

The operations run eagerly and in tf.function, in the order of the program, and give gradients. In
the host's memory: tensors of GPUs are copied there and back, and XLA (jit_compile=True) cannot
compile them. docs/tensorflow.md compares with Horovod.
"""

import tensorflow

if not hasattr(tensorflow.keras, "config") or tensorflow.keras.config.backend() != "tensorflow":
    raise ImportError("tutti.tensorflow needs TensorFlow 2.16 or newer with Keras 3 on TensorFlow; "
                      "unset TF_USE_LEGACY_KERAS and KERAS_BACKEND, or use tutti.jax")

from tutti.tensorflow import callbacks  # noqa: E402: needs what has been checked.
from tutti.tensorflow._job import init, local_rank, local_size, rank, shutdown, size
from tutti.tensorflow._operations import all_gather, all_reduce, broadcast
from tutti.tensorflow._training import (DistributedGradientTape, DistributedOptimizer,
                                        broadcast_variables)

__all__ = ["DistributedGradientTape", "DistributedOptimizer", "all_gather", "all_reduce",
           "broadcast", "broadcast_variables", "callbacks", "init", "local_rank", "local_size",
           "rank", "shutdown", "size"]
