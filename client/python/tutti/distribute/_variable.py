"""Variables of which every replica has a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from tutti import _foreign, _traced
from tutti._error import Error, invalid
from tutti._frameworks import check
from tutti._handle import Unique
from tutti._values import views_of
from tutti.distribute import _api
from tutti.distribute._values import (PerReplica, VariableAggregation, VariableSynchronization,
                                      name_of)

if TYPE_CHECKING:
    from tutti.distribute._strategy import Strategy


_FLOATS = ("f32", "f64", "f16", "bf16")


def _converted(value, dtype):
    """The initial value, as a Tensor, in the dtype that is asked for."""
    tensor = _api.tensor_of(value, "initial_value")
    if dtype is None:
        return tensor
    try:
        array = _foreign.converted(tensor.x, dtype)
    except Error:
        raise
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise invalid(f"initial_value {tensor.x!r} is no array of {dtype}: {error}") from error
    return _api.tensor_of(array, "initial_value")


def _trainable(given, synchronization):
    """Whether a variable is, by the rule of TensorFlow: None means all but ON_READ."""
    is_on_read = synchronization.upper() == b"ON_READ"
    if given and is_on_read:
        raise invalid("an ON_READ variable cannot be trainable; leave trainable out, or choose "
                      "another synchronization")
    return not is_on_read if given is None else given


class Variable(Unique, numpy.lib.mixins.NDArrayOperatorsMixin):
    """A variable of the current strategy: create it within strategy.scope(), on every process. All
    copies begin with the initial value (or what it returns, if it can be called) of replica 0's
    process.

    Within a replica's function: with synchronization ON_WRITE (AUTO) and aggregation SUM or MEAN,
    an assignment updates all copies by the reduction of the replicas' values; with
    ONLY_FIRST_REPLICA by the value of replica 0; all replicas must make it. With NONE, and with
    ON_READ, it updates the replica's own copy. Reading gives that copy.

    Outside: an assignment updates all copies of this process; a PerReplica gives each its own
    value. Reading gives the first copy with ON_WRITE, and with ON_READ the aggregate of all
    replicas, for which all processes must read; an assigned value is then the aggregate, too, of
    which with SUM each copy gets a part.

    In NumPy's functions and operators it stands for its value. Wrong values raise ValueError.
    """

    strategy: Strategy
    shape: tuple[int, ...]
    dtype: Any
    _instead = ("keep its value, v.numpy(), and give it to assign(), or to another Variable in the "
                "strategy's scope, on every process")

    def __init__(self, initial_value: Any, trainable: bool | None = None, name: str = "Variable",
                 dtype: Any = None,
                 synchronization: VariableSynchronization | str = VariableSynchronization.AUTO,
                 aggregation: VariableAggregation | str = VariableAggregation.NONE) -> None:
        from tutti.distribute._strategy import get_strategy  # Which imports this module.
        self.strategy = get_strategy()
        self.name = name
        self.synchronization, self.aggregation = synchronization, aggregation
        self.strategy.require_cross_replica("Variable()")
        with self.strategy.telling():
            if not isinstance(name, str):
                raise TypeError(f"name={name!r} must be a text")
            value = initial_value() if callable(initial_value) else initial_value
            initial = _converted(value, dtype)
            names = (name.encode(),
                     name_of(synchronization, VariableSynchronization, "synchronization"),
                     name_of(aggregation, VariableAggregation, "aggregation"))
            self.trainable = _trainable(trainable, names[1])
            if names[2] == b"MEAN" and initial.dtype not in _FLOATS:
                raise invalid(f"variable {name!r} of {initial.dtype} has no MEAN; give it a float "
                              "dtype, or aggregate by SUM or ONLY_FIRST_REPLICA")
        views = views_of([initial])
        self._handle = self.strategy.wait(lambda: _api.make(
            "variable_create", "variable_free", self.strategy.handle.pointer, views, *names,
            keep=self.strategy.handle))
        self._source = initial
        self.shape = tuple(initial.shape)
        self.dtype = initial.x.dtype if hasattr(initial.x, "dtype") else initial.array_dtype

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} of shape {self.shape}, {self.dtype}>"

    def assign(self, value: Any) -> Variable:
        """Sets the variable: see the class. Returns it."""
        return self._update(b"assign", value)

    def assign_add(self, value: Any) -> Variable:
        """Adds to the variable: see the class. Returns it."""
        return self._update(b"assign_add", value)

    def assign_sub(self, value: Any) -> Variable:
        """Subtracts from the variable: see the class. Returns it."""
        return self._update(b"assign_sub", value)

    def value(self) -> Any:
        """Its value, as a new array of the kind of the initial value: see the class."""
        return self._read(self._source.x)

    read_value = value

    def numpy(self) -> Any:
        """Its value as a NumPy array."""
        return self._read(self._source.x if isinstance(self._source.x, numpy.ndarray) else None)

    def _read(self, like):
        """Its value, as a new array of the kind of `like`, or of NumPy for None."""
        def read():
            return _api.results_of("variable_value", self._handle.pointer)

        _traced.refuse_call("reading a Variable")
        together = _api.function("current_replica")() is None
        if together:
            self.strategy.require_cross_replica("value()")
        return (self.strategy.wait(read) if together else read()).tensor(0, like)

    @property
    def values(self) -> tuple[Any, ...]:
        """Copies of the copies of this process's replicas."""
        _traced.refuse_call("reading a Variable")
        results = _api.results_of("variable_copies", self._handle.pointer)
        return tuple(results.tensor(i, self._source.x) for i in range(len(results)))

    def __array__(self, dtype=None, copy=None):
        del copy  # Always a new array.
        return numpy.asarray(self.numpy(), dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if any(isinstance(out, Variable) for out in options.get("out", ())):
            raise invalid(f"numpy.{ufunc.__name__} cannot write into variable {self.name!r}, as "
                          "v -= x or out=v would; use v.assign_sub(x), v.assign_add(x) or "
                          "v.assign(value)")
        inputs = (x.numpy() if isinstance(x, Variable) else x for x in inputs)
        return getattr(ufunc, method)(*inputs, **options)

    def __float__(self) -> float:
        return float(self.numpy())

    def _tensor(self, value):
        """A value as it is; numbers and lists in the variable's dtype."""
        if isinstance(value, (bool, int, float, list, tuple)):
            value = self._source.filled(value)
        return _api.tensor_of(value)

    def _update(self, update, value):
        with _api.telling("variable_refuse", self._handle.pointer):
            values = value.values if isinstance(value, PerReplica) else (value,)
            tensors = [self._tensor(one) for one in values]
        check(_api.function("variable_update")(self._handle.pointer, update,
                                               views_of(tensors), len(tensors)))
        return self
