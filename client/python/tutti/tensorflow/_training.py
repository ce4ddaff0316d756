"""Data-parallel training: gradients that are reduced over all ranks before they are applied."""

import inspect
import sys
from typing import Any

import numpy
import tensorflow as tf

from tutti import _adjoint
from tutti._error import Error, error_of, invalid
from tutti._group import Group
from tutti.tensorflow._job import group_of
from tutti.tensorflow._operations import all_reduce, op_name, run

_Scaling = tf.keras.optimizers.LossScaleOptimizer
_SCALING_FILE = inspect.getfile(_Scaling)
_DIFFERENT = ("the ranks have gradients for different variables; compute those of the same on all, "
              "with zeros where a loss does not depend on one")


class _Reduction:
    """How gradients are reduced."""

    def __init__(self, op, sparse_as_dense, group):
        self.op, self._sparse_as_dense, self._group = op_name(op), sparse_as_dense, group
        if self.op not in ("sum", "mean"):
            raise invalid(f"op {op!r} does not combine gradients; give \"mean\" or \"sum\"")

    def __call__(self, gradients):
        """The gradients of all ranks, as one list; None where there is none on any rank. A rank
        that lacks one compares first which ones the ranks have: tensors of one size would be taken
        for each other. Ranks that lack none do not take part, which is an error there, too."""
        present = [gradient is not None for gradient in gradients]
        if not all(present):
            self._compare(present)
        listed = [self._dense(one) for one in gradients if one is not None]
        reduced = iter(all_reduce(listed, self.op, self._group))
        return [next(reduced) if is_here else None for is_here in present]

    def _compare(self, present):
        own = numpy.array([present], numpy.uint8)

        def function(_):
            try:
                every = group_of(self._group).all_gather(own)
            except Error as error:
                raise error_of(error.code, f"{error.message}; perhaps {_DIFFERENT}", error.rank,
                               error.host) from error
            if (every != own).any():
                raise Error("FAILED_PRECONDITION", _DIFFERENT)
            return [own]

        run(function, [], [own.shape], [tf.uint8])

    def _dense(self, gradient):
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        return tf.convert_to_tensor(gradient) if is_sparse and self._sparse_as_dense else gradient


class _Apply:
    """The method apply() of an optimizer that reduces gradients first."""

    def __init__(self, optimizer, reduction):
        self._optimizer, self._reduction = optimizer, reduction

    def __call__(self, grads, trainable_variables=None):
        if _is_within_scaling(self._optimizer):
            raise Error("FAILED_PRECONDITION", "a LossScaleOptimizer is around this optimizer, and "
                        "would skip steps on some ranks alone; pass DistributedOptimizer("
                        "LossScaleOptimizer(optimizer)) to compile()")
        reduced = self._reduction(list(grads))
        return type(self._optimizer).apply(self._optimizer, reduced, trainable_variables)


def _is_within_scaling(optimizer):
    """Whether a method of another optimizer, a LossScaleOptimizer, is under way on this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _SCALING_FILE:
            return frame.f_locals.get("self") is not optimizer
        frame = frame.f_back
    return False


def DistributedOptimizer(optimizer: Any, op: Any = "mean", sparse_as_dense: bool = False,
                         group: Group | None = None) -> Any:
    """The optimizer of Keras 3 itself, which from now on reduces the gradients over all ranks, in
    one operation a step, before it applies them. Under the policy mixed_float16 it is wrapped in
    Keras' LossScaleOptimizer first, as compile() would, so that all ranks skip the same steps.

    All ranks must compute gradients for the same variables. Call this before the first fit(): the
    step that Keras has compiled stays as it is. Models are saved, and optimizers copied and
    pickled, as they were. The state of the optimizer stays local: it is the same where variables
    and gradients are."""
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise TypeError(f"{optimizer!r} must be an optimizer of Keras 3")
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if any(isinstance(vars(one).get("apply"), _Apply) for one in (optimizer, inner)):
        raise invalid("this optimizer reduces gradients already")
    is_scaling = isinstance(optimizer, _Scaling)
    if tf.keras.config.dtype_policy().name == "mixed_float16" and not is_scaling:
        optimizer = _Scaling(optimizer)
    apply = _Apply(optimizer, _Reduction(op, sparse_as_dense, group))
    object.__setattr__(optimizer, "apply", apply)  # Keras would track it.
    return optimizer


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() is reduced over all ranks."""

    def __init__(self, tape: Any, op: Any = "mean", sparse_as_dense: bool = False,
                 group: Group | None = None) -> None:
        self._tape = tape
        self._reduction = _Reduction(op, sparse_as_dense, group)

    def __enter__(self):
        self._tape.__enter__()
        return self

    def __exit__(self, *error):
        return self._tape.__exit__(*error)

    def __getattr__(self, name):
        return getattr(self._tape, name)

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """As that of the tape, reduced: in the structure of `sources`."""
        gradients = self._tape.gradient(target, sources, *args, **kwargs)
        leaves = self._reduction(tf.nest.flatten(gradients))
        return tf.nest.pack_sequence_as(gradients, leaves)


def broadcast_variables(variables: Any, root_rank: int = 0, group: Group | None = None) -> None:
    """Assigns rank `root_rank`'s values to the variables, of TensorFlow or Keras, of every rank.
    All ranks list variables of the same shapes and dtypes in the same order."""
    variables = list(variables)
    if not variables:
        return
    tensors = [tf.convert_to_tensor(variable) for variable in variables]
    values = run(lambda arrays: _adjoint.copies(group_of(group), arrays, root_rank, {}), tensors,
                 [tensor.shape for tensor in tensors])
    for variable, value in zip(variables, values):
        variable.assign(value)
