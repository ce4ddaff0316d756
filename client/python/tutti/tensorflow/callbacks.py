"""Callbacks for model.fit() of Keras 3, under Horovod's names."""

from typing import Any

import numpy
import tensorflow as tf

from tutti._error import Error, invalid
from tutti._group import Group
from tutti.tensorflow._job import group_of
from tutti.tensorflow._training import broadcast_variables

__all__ = ["BroadcastGlobalVariablesCallback", "LearningRateWarmupCallback",
           "MetricAverageCallback"]


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Gives all ranks the model's weights and the optimizer's variables of rank `root_rank`, once,
    after the first batch, when all of them exist. States of random generators stay as they are:
    ranks draw different dropout masks if their seeds differ. Refuses models that XLA compiles."""

    def __init__(self, root_rank: int = 0, group: Group | None = None) -> None:
        super().__init__()
        self._root_rank, self._group = root_rank, group
        self._done = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises UNIMPLEMENTED for a model that XLA compiles: its steps would fail."""
        if self.model.jit_compile:
            raise Error("UNIMPLEMENTED", "XLA cannot compile Tutti's operations; pass "
                        "jit_compile=False to compile()")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts, the first time."""
        if self._done:
            return
        self._done = True
        broadcast_variables([*self.model.weights, *self.model.optimizer.variables],
                            self._root_rank, self._group)


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Averages the metrics of an epoch over all ranks. List it before callbacks that use them."""

    def __init__(self, group: Group | None = None) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replaces the numbers in `logs`, in an array each element; other values stay. Raises
        FAILED_PRECONDITION on all ranks unless all have numbers of the same names and shapes."""
        group = group_of(self._group)
        numbers = {name: array for name, array in ((name, numpy.asarray(value)) for name, value in
                                                   sorted((logs or {}).items()))
                   if array.dtype.kind in "fiub"}
        _compare({name: array.shape for name, array in numbers.items()}, group)
        means = [array.astype("f8") for array in numbers.values()]
        group.all_reduce_many(means, op="mean")
        for name, mean in zip(numbers, means):
            logs[name] = mean if mean.shape else float(mean)


def _compare(shapes, group):
    """Raises on all ranks unless all have the same."""
    own = repr(shapes).encode()
    sizes = group.all_gather(numpy.array([len(own)])).tolist()
    every = group.all_gather_v(numpy.frombuffer(own, numpy.uint8), sizes).tobytes()
    if every != own * len(sizes):
        raise Error("FAILED_PRECONDITION", "the ranks have different metrics; compile the same on "
                    f"all, with validation data on all or on none. This rank: {shapes}")


class LearningRateWarmupCallback(tf.keras.callbacks.Callback):
    """Raises the learning rate from initial_lr / size() to initial_lr over the first warmup_epochs
    epochs, batch by batch where steps_per_epoch is known, as in Goyal et al., "Accurate, Large
    Minibatch SGD" (2017). Later epochs, and training that is resumed there, keep the rate that they
    find. Raises ValueError where the optimizer has a schedule, which sets the rate itself."""

    def __init__(self, initial_lr: float, warmup_epochs: float = 5,
                 steps_per_epoch: int | None = None, verbose: int = 0,
                 group: Group | None = None) -> None:
        super().__init__()
        self._initial_lr, self._warmup_epochs = initial_lr, warmup_epochs
        self._steps_per_epoch, self._verbose, self._group = steps_per_epoch, verbose, group
        self._epoch, self._steps, self._is_warming = 0, None, False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets the rate of the epoch's begin; once after the warm-up the final one."""
        was_warming, self._is_warming = self._is_warming, epoch < self._warmup_epochs
        self._epoch = epoch
        self._steps = self._steps_per_epoch or (self.params or {}).get("steps")
        if self._is_warming or was_warming:
            self._set(epoch)
        if was_warming and not self._is_warming and self._verbose:
            print(f"epoch {epoch}: learning rate warmed up to {self._initial_lr}")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate of the batch."""
        if self._is_warming and self._steps:
            self._set(self._epoch + batch / self._steps)

    def on_train_end(self, logs: Any = None) -> None:
        """Sets the final rate where the warm-up has ended with the training."""
        if self._is_warming and self._epoch + 1 >= self._warmup_epochs:
            self._is_warming = False
            self._set(self._warmup_epochs)

    def _set(self, epochs):
        size = group_of(self._group).world_size
        part = min(1.0, epochs / self._warmup_epochs)
        rate = self.model.optimizer.learning_rate
        if not hasattr(rate, "assign"):
            raise invalid("LearningRateWarmupCallback cannot set the rate of an optimizer that has "
                          "a schedule; give the schedule the warm-up, or the optimizer a number")
        rate.assign(self._initial_lr * (1 + part * (size - 1)) / size)
