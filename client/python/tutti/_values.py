"""Values between Python and the C ABI of client/faces/frameworks: arrays and slices with their
devices, as structures of C, and results as arrays over the library's memory."""

import ctypes
import math
import operator
import sys
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Iterable, SupportsIndex

import numpy

from tutti import _foreign, _frameworks, _traced
from tutti._dtype import DTYPES, LONG, SIZES, own_dtype
from tutti._error import invalid, naming
from tutti._tensor import HostTensor

Array = Any  # See docs/faces.md: in the host's memory; or a number.
INT32 = (-2**31, 2**31 - 1)  # Bounds for whole().
INT64 = (-2**63, 2**63 - 1)
_NAMES = {number: name for name, number in DTYPES.items()}
_LONG = {short: long for long, short in LONG.items()}


def whole(number, what, low, high):
    """`number` as an int. Raises InvalidArgument, naming it `what`, if it is no whole number from
    `low` to `high`: ctypes would cut it silently."""
    try:
        value = operator.index(number)
    except TypeError:
        raise invalid(
            f"{what} {number!r} is no whole number; convert it with int()") from None
    if not low <= value <= high:
        raise invalid(f"{what} {value} is out of range; give one from {low} to {high}")
    return value


class IndexedSlices:
    """Rows of a tensor, as tf.IndexedSlices: values[i] is a part of row indices[i]; a row may occur
    several times, which stands for the sum of its parts. dense_shape is that of the whole tensor,
    or None."""

    def __init__(self, values: Array, indices: Array,
                 dense_shape: Iterable[SupportsIndex] | None = None) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = None if dense_shape is None else tuple(
            whole(size, "a size of dense_shape", 0, INT64[1]) for size in dense_shape)

    def __repr__(self):
        return (f"IndexedSlices(values={self.values!r}, indices={self.indices!r}, "
                f"dense_shape={self.dense_shape!r})")


def held(value, what):
    """What a value of the argument `what` holds: see _foreign.held()."""
    with naming(what):
        return _foreign.held(value)


def slices_of(value):
    """The IndexedSlices that a value is, also of another library; else None."""
    if isinstance(value, numpy.ndarray):
        return None
    if isinstance(value, IndexedSlices):
        return value
    rows = _foreign.rows_of(value)
    return None if rows is None else IndexedSlices(*rows)


class TensorView(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("shape", POINTER(c_int64)), ("rank", c_size_t),
                ("dtype", c_int32)]


class Component(ctypes.Structure):
    _fields_ = [("elements", TensorView), ("is_sparse", c_int32), ("indices", TensorView),
                ("dense_shape", POINTER(c_int64)), ("dense_rank", c_size_t), ("device", c_char_p)]


_frameworks.declare({
    "tutti_results_size": (c_size_t, [c_void_p]),
    "tutti_results_components": (c_size_t, [c_void_p, c_size_t]),
    "tutti_results_get": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(Component)]),
    "tutti_results_free": (None, [c_void_p]),
})


def _sizes(shape):
    return (c_int64 * len(shape))(*shape)


def _view_of(tensor):
    """A Tensor as C takes it; the second item must live as long."""
    shape = _sizes(tensor.shape)
    return TensorView(tensor.address, shape, len(shape), DTYPES[tensor.dtype]), shape


def views_of(tensors):
    """The Tensors as an array for C. They stay alive for as long as this does."""
    made = [_view_of(tensor) for tensor in tensors]
    views = (TensorView * len(made))(*(view for view, _ in made))
    views.kept = tensors, made
    return views


class Views:
    """Makes structures of C from values, and keeps what they point to. options: of the
    Tensors."""

    def __init__(self, **options):
        self._kept = []
        self._options = options

    def tensor(self, x):
        tensor = HostTensor(x, **self._options)
        view, shape = _view_of(tensor)
        self._kept += [tensor, shape]
        return view

    def component(self, value, what, device=None):
        """The component of an array, a number or slices. Raises InvalidArgument, naming it `what`,
        for what is none."""
        name = None if device is None else device.encode()
        with naming(what):
            slices = slices_of(value)
            if slices is None:
                return Component(self.tensor(value), 0, TensorView(), None, 0, name)
            if slices is not value:  # Its parts do not show a gradient.
                _traced.without_gradient(value, self._options.get("wants_gradient", True))
            shape = None if slices.dense_shape is None else _sizes(slices.dense_shape)
            self._kept.append(shape)
            return Component(self.tensor(slices.values), 1, self.tensor(slices.indices), shape,
                             0 if shape is None else len(shape), name)


class _Memory:
    """Memory of a result, for NumPy. Keeps the result alive."""

    def __init__(self, owner, address, bytes_):
        self._owner = owner
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (bytes_,),
                                    "data": (address, False)}


class Results(_frameworks.Made):
    """Owns what a function of the library stores behind its last argument."""

    def __init__(self, function, *arguments):
        super().__init__(function, _frameworks.library.tutti_results_free, *arguments)

    def __len__(self):
        return _frameworks.library.tutti_results_size(self.pointer)

    def components(self, index, like):
        """[(value, device)] of a value, of the kind of `like`, an array, a number or slices."""
        count = _frameworks.library.tutti_results_components(self.pointer, index)
        views = [self._view(index, at) for at in range(count)]
        return [(self._value(view, like), view.device.decode()) for view in views]

    def tensor(self, index, like):
        """A result that is one tensor, of the kind of `like`."""
        return self._array(self._view(index).elements, like)

    def copy_to(self, index, target):
        """Copies such a result to the array of a writable Tensor of its shape and dtype."""
        ctypes.memmove(target.address, self._view(index).elements.data, target.memory.nbytes)
        target.write_back()

    def _view(self, index, component=0):
        view = Component()
        _frameworks.check(_frameworks.library.tutti_results_get(self.pointer, index, component,
                                                                ctypes.byref(view)))
        return view

    def _value(self, view, like):
        parts = slices_of(like)
        elements = self._array(view.elements, like if parts is None else parts.values)
        if not view.is_sparse:
            return elements
        shape = tuple(view.dense_shape[:view.dense_rank]) if view.dense_shape else None
        indices = self._array(view.indices, like if parts is None else parts.indices)
        return _foreign.slices_like(IndexedSlices(elements, indices, shape), like)

    def _array(self, view, like):
        shape = tuple(view.shape[:view.rank])
        name = _NAMES[view.dtype]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(like, torch.Tensor):
            dtype = getattr(torch, _LONG[name])
            if 0 in shape:
                return torch.empty(shape, dtype=dtype, device="cpu")
            memory = torch.from_numpy(self._bytes(view, shape, SIZES[name]))
            return memory.view(dtype).reshape(shape)
        dtype = own_dtype(like, name)
        array = self._bytes(view, shape, dtype.itemsize).view(dtype).reshape(shape)
        return _foreign.like(array, like)

    def _bytes(self, view, shape, itemsize):
        """The memory of an array, which keeps the results."""
        bytes_ = math.prod(shape) * itemsize
        return numpy.asarray(_Memory(self, view.data, bytes_)) if bytes_ else numpy.empty(0, "u1")
