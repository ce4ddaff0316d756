"""Reads DLPack capsules, because numpy.from_dlpack() supports neither bf16 nor writable arrays."""

import ctypes
from ctypes import (POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p)

import numpy

from tutti._dtype import text_of, unknown
from tutti._error import Error, invalid

_DEVICES = (1, 2, 3)  # kDLCPU, kDLCUDA, kDLCUDAHost.
_CUDA = 2
_DIMENSIONS_MAX = 64  # NumPy's; later ones have no more.
_DEFAULT_STREAM = 1  # CUDA's legacy one, as DLPack numbers it.
_READ_ONLY = 1
# Packages whose arrays may be written to. A capsule without a version does not say so, and JAX's
# and TensorFlow's arrays, which give such, must never change: others share their memory.
_WRITABLE = {"torch", "cupy", "paddle", "mxnet", "warp"}
# By type code and bits.
_NAMES = {(2, 32): "f32", (2, 64): "f64", (2, 16): "f16", (4, 16): "bf16", (6, 8): "bool",
          (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8",
          (1, 16): "u16", (1, 32): "u32", (1, 64): "u64"}
_NARROW = ("int4", "uint4", "int2", "uint2")
# For tensors that TensorFlow ends the process for when it is asked for their memory.
_NO_NUMBERS = ("string", "resource", "variant")
# Lazy operations of torch that a tensor's memory does not show, and how to apply them.
_LAZY = {"is_conj": "conjugated lazily; pass x.resolve_conj()",
         "is_neg": "negated lazily; pass x.resolve_neg()"}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _Tensor)]


_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]


class _Memory:
    """Exposes a capsule's memory to NumPy and keeps the capsule, and so the tensor, alive."""

    def __init__(self, capsule, interface):
        self._capsule = capsule
        self.__array_interface__ = interface


def _capsule_of(x):
    """On a GPU, the default stream waits for what the producer has queued for x: operations that
    are given no stream begin there."""
    stream = {"stream": _DEFAULT_STREAM} if is_on_gpu(x) else {}
    try:
        try:
            return x.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:  # A producer older than DLPack 1.0.
            return x.__dlpack__(**stream)
    except (MemoryError, Error):
        raise
    except Exception as error:  # Whatever the producer's code raises.
        raise invalid(f"this {type(x).__name__} does not share its memory: {error}") from error


def _refuse_lazy(x):
    for test, words in _LAZY.items():
        is_lazy = getattr(x, test, None)
        if callable(is_lazy) and is_lazy():
            raise invalid(f"this {type(x).__name__} is {words}, a copy that has its values in "
                          "memory")


def _refuse_dtype(x):
    """Refuses dtypes that some producers refuse as well, but without advice."""
    text = text_of(getattr(x, "dtype", ""))
    if text.startswith(("complex", "float8", "float6_", "float4")) or text in _NARROW + _NO_NUMBERS:
        raise unknown(text)


def _name_of(x, tensor):
    """Tutti's name of a tensor's dtype."""
    name = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is None:
        raise unknown(text_of(getattr(x, "dtype", f"code {tensor.code} of {tensor.bits} bits")))
    return name


def _is_writable(x):
    """Whether x is known to be writable by where its type is from."""
    return any(kind.__module__.partition(".")[0] in _WRITABLE for kind in type(x).__mro__)


def _open(x, capsule):
    """(the tensor in the capsule of x, whether it is read-only; None: it does not say). Raises for
    what is no capsule of a known layout: one that was used before may have lost its memory."""
    try:
        name = _get_name(capsule)
    except ValueError:
        raise invalid(f"__dlpack__ of this {type(x).__name__} gives a {type(capsule).__name__}, no "
                      "capsule") from None
    versioned = None
    if name == b"dltensor_versioned":
        versioned = ctypes.cast(_get_pointer(capsule, name), POINTER(_Versioned)).contents
    if versioned is None and name != b"dltensor" or versioned and versioned.major != 1:
        raise invalid(f"__dlpack__ of this {type(x).__name__} gives a capsule "
                      f"{(name or b'without name').decode(errors='replace')!r}"
                      f"{f' of version {versioned.major}' if versioned else ''}, but must give a "
                      "new one of DLPack before 2.0")
    if versioned is not None:
        return _checked(x, versioned.tensor), bool(versioned.flags & _READ_ONLY)
    return _checked(x, ctypes.cast(_get_pointer(capsule, name), POINTER(_Tensor)).contents), None


def _checked(x, tensor):
    """The tensor; raises for one that lies about its memory, as far as that is known."""
    has_shape = 0 <= tensor.ndim <= _DIMENSIONS_MAX and (tensor.ndim == 0 or bool(tensor.shape))
    shape = tensor.shape[:tensor.ndim] if has_shape else [-1]
    if min(shape, default=0) < 0 or (0 not in shape and not tensor.data):
        raise invalid(f"__dlpack__ of this {type(x).__name__} gives a tensor without memory, or of "
                      f"a wrong shape ({tensor.ndim} axes)")
    return tensor


def _strides_of(tensor, itemsize):
    if not tensor.strides:
        return None
    return tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim))


def _device_of(x):
    """The number of the kind of device that x is on."""
    try:
        return int(x.__dlpack_device__()[0])
    except (MemoryError, Error):
        raise
    except Exception as error:  # Whatever the producer's code raises.
        raise invalid(f"this {type(x).__name__} names no device of DLPack: {error}") from error


def is_on_gpu(x):
    """Whether x is in the memory of a CUDA device."""
    return _device_of(x) == _CUDA


def view(x):
    """(NumPy array over the memory of x, name of its dtype). The array has unsigned integers of the
    same width. For memory on a GPU it shows the place and must not be read. Raises INVALID_ARGUMENT
    or UNIMPLEMENTED for tensors that cannot be shared."""
    device = _device_of(x)
    if device not in _DEVICES:
        raise Error("UNIMPLEMENTED", f"tensors on DLPack device {device}; move them to the CPU")
    _refuse_lazy(x)
    _refuse_dtype(x)
    capsule = _capsule_of(x)
    tensor, read_only = _open(x, capsule)
    if read_only is None:
        read_only = not _is_writable(x)
    name = _name_of(x, tensor)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:
        empty = numpy.empty(shape, f"u{tensor.bits // 8}")
        empty.flags.writeable = not read_only
        return empty, name
    memory = _Memory(capsule, {
        "version": 3, "typestr": f"<u{tensor.bits // 8}", "shape": shape,
        "strides": _strides_of(tensor, tensor.bits // 8),
        "data": (tensor.data + tensor.byte_offset, read_only)})
    return numpy.asarray(memory), name
