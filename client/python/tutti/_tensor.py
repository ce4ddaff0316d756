"""Arguments of collectives: arrays as contiguous memory with a dtype, ops and strategies."""

import numbers

import numpy

from tutti import _dlpack, _foreign, _overlap, _traced
from tutti._dtype import LONG, SIZES, dtype_name, numpy_dtype, own_dtype
from tutti._error import Error, invalid

OPS = {"sum": 0, "mean": 1, "min": 2, "max": 3, "prod": 4, "band": 5, "bor": 6, "bxor": 7,
       "premul_sum": 8}


def op_number(op):
    """The number of an op given by name."""
    if not isinstance(op, str) or op not in OPS:
        raise invalid(f"op {op!r} is none of {', '.join(OPS)}")
    return OPS[op]


def factor_of(op, factor):
    """The factor for C, 1 for None; raises if the op has none."""
    if factor is None:
        return 1.0
    if op != "premul_sum":
        raise invalid(f"factor= is for op=\"premul_sum\", not for op {op!r}")
    if not isinstance(factor, numbers.Real):
        raise invalid(f"factor {factor!r} is no real number; convert it with float()")
    return float(factor)


def choice_of(value, name="reproducible", invalid=invalid):
    """True, False or None as the options of C have it. invalid: makes the error."""
    if value is None:
        return 0
    if not isinstance(value, (bool, numpy.bool_)):
        raise invalid(f"{name}={value!r} is none of True, False and None")
    return 1 if value else -1


def strategy_text(strategy):
    """The text of one strategy, or of a pair for (local, global), as bytes; None for None."""
    if strategy is None:
        return None
    if isinstance(strategy, (tuple, list)):
        return b",".join(strategy_text(level) or b"auto" for level in strategy)
    if isinstance(strategy, dict):
        strategy = str(strategy).replace("'", '"')
    if not isinstance(strategy, str):
        raise invalid(f"strategy {strategy!r} is neither a text nor a pair")
    return strategy.encode()


class Tensor:
    """A user's array `x`, or that of a variable, and contiguous memory with its elements.

    If x is contiguous, that memory is x itself. Otherwise it is a copy (is_copy), which
    write_back() copies to x. Raises for an x that has no data yet, while a function is traced, and
    where the gradient of x would be lost, unless that is not wanted.
    """

    def __init__(self, x, dtype=None, writable=False, wants_gradient=True):
        _traced.refuse_call("this collective")
        self.x = _foreign.held(x)
        if writable and self.x is not x:
            raise invalid(f"this {type(x).__name__} is not written to: it holds its array; pass "
                          "its value, and assign the result to it")
        x = self.x
        self.like = x  # result() is of its kind.
        view, self._name = self._view(x, wants_gradient)
        self.dtype = (dtype_name(self._name) if dtype is None
                      else self._read_as(view, self._name, dtype))
        if writable and not view.flags.writeable:
            raise invalid(f"the array to write to is read-only ({type(x).__name__}); give a "
                          "writable one, such as a copy as a NumPy array, or out=")
        self._view = view
        self.on_gpu = self._is_on_gpu(x)
        if self.on_gpu and not view.flags.c_contiguous:
            raise invalid("the array is on a GPU and not contiguous; pass a contiguous copy")
        self.is_copy = not view.flags.c_contiguous
        if self.is_copy and writable:
            _overlap.check_self(view)
        self.memory = numpy.ascontiguousarray(view) if self.is_copy else view
        self.address = self.memory.ctypes.data

    @staticmethod
    def _is_on_gpu(x):
        if isinstance(x, numpy.ndarray):
            return False
        if hasattr(x, "__dlpack_device__"):
            return _dlpack.is_on_gpu(x)
        return hasattr(x, "__cuda_array_interface__")

    @staticmethod
    def _view_cuda(x):
        """A NumPy array that shows where a CUDA array is, and must not be read."""
        class Place:
            owner = x
            __array_interface__ = {
                key: x.__cuda_array_interface__[key] for key in ("shape", "typestr", "data")
            } | {"strides": x.__cuda_array_interface__.get("strides"), "version": 3}

        view = numpy.asarray(Place())
        return view, view.dtype

    @staticmethod
    def _view(x, wants_gradient):
        _foreign.refuse_masked(x)
        if isinstance(x, numpy.ndarray):
            if not x.dtype.isnative:
                raise invalid("the array is of foreign byte order; convert it with astype")
            return x, x.dtype
        if isinstance(x, (int, float, complex, list, tuple, numpy.generic)):
            view = Tensor._array_of(x)
            view.flags.writeable = False
            return view, view.dtype
        _foreign.refuse_layout(x)
        x = _traced.without_gradient(x, wants_gradient)
        if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
            return _dlpack.view(x)
        if hasattr(x, "__cuda_array_interface__"):
            return Tensor._view_cuda(x)
        array = _foreign.array_of(x)
        return array, array.dtype

    @staticmethod
    def _array_of(x):
        """A number, or a list of such, as an array."""
        if isinstance(x, (list, tuple)):
            _foreign.refuse_masked(*x)
        try:
            return _foreign.native(numpy.asarray(x))
        except (ValueError, TypeError, OverflowError) as error:
            raise invalid(f"this {type(x).__name__} is no array of numbers; give numbers, and rows "
                          f"of one length: {error}") from error

    @staticmethod
    def _read_as(view, name, dtype):
        """The dtype to read the array as. Unsigned integers may hold any dtype of their size,
        such as bf16, which NumPy lacks."""
        wanted = dtype_name(dtype)
        stands_for = view.dtype.kind in "uV" and view.dtype.itemsize == SIZES[wanted]
        if stands_for or LONG.get(str(name), str(name)) == wanted:
            return wanted
        raise invalid(f"an array of {name} does not hold {wanted}")

    shape = property(lambda self: self._view.shape)
    count = property(lambda self: self.memory.size)

    @property
    def elements(self):
        """What arrays have in common that are the same for an operation."""
        if self.is_copy:
            return _overlap.elements_of(self._view, self.dtype)
        return self.dtype, self.address, self.count

    def use(self, is_written):
        """What an operation does with x, which it writes or only reads."""
        bounds = None if self.is_copy else (self.address, self.address + self.memory.nbytes)
        return _overlap.Use(self._view, is_written, self.is_copy, self.on_gpu, bounds)

    def write_back(self):
        """Copies the memory to x, unless it is x itself."""
        if self.is_copy:
            self._view[...] = self.memory.reshape(self._view.shape)

    def fits(self, shape, dtype, what):
        """Self, if it has this shape and dtype; raises otherwise, naming it `what`."""
        if self.shape == tuple(shape) and self.dtype == dtype:
            return self
        raise invalid(f"{what} has shape {list(self.shape)} of {self.dtype}, "
                      f"but must have {list(shape)} of {dtype}")

    @property
    def array_dtype(self):
        """The NumPy dtype of new arrays like x."""
        if isinstance(self.x, numpy.ndarray):
            return self.x.dtype
        if dtype_name(self._name) != self.dtype:  # The user has declared it: see _read_as().
            return numpy_dtype(self.dtype)
        return own_dtype(self.x, self.dtype)

    def new(self, shape):
        """A new array of the dtype of x: of torch if x is, else of NumPy."""
        if hasattr(self.x, "new_empty"):  # torch
            return self.x.new_empty(tuple(shape))
        if self.on_gpu:
            raise invalid(f"the result of a {type(self.x).__name__} on a GPU needs a place; give "
                          "out=")
        return numpy.empty(shape, self.array_dtype)

    def result(self):
        """What an operation returns that has written here: x, or a copy of the kind of `like`."""
        return self.x if self.like is self.x else _foreign.like(self.x, self.like)

    def filled(self, value):
        """A number or a list as an array of the kind and dtype of x."""
        if hasattr(self.x, "new_tensor"):  # torch
            return self.x.new_tensor(value)
        return numpy.asarray(value, self.array_dtype)


def uses_of(source, target):
    """What an operation does with the Tensors that it reads and writes; None: it has none."""
    uses = [] if target is None else [target.use(True)]
    if source is not None and source is not target:
        uses.append(source.use(False))
    return uses


class HostTensor(Tensor):
    """A Tensor that is not in the memory of a GPU; raises if it is."""

    def __init__(self, x, **options):
        super().__init__(x, **options)
        if self.on_gpu:
            raise Error("UNIMPLEMENTED", f"this {type(x).__name__} is on a GPU; move it to the CPU")
