"""Values of other libraries: what they hold, which of them are slices, and results of their kind.

Libraries are asked only where a program has loaded them.
"""

import importlib
import sys

import numpy

from tutti import _traced
from tutti._dtype import asked_dtype, text_of
from tutti._error import Error, invalid

# How to read the tensor that an object holds, by the package and the name of its class.
_reader = _traced.by_class({
    ("tensorflow", "Variable"): lambda x: x.value(),
    ("keras", "Variable"): lambda x: x.value,
    ("tutti", "Variable"): lambda x: x.value(),
})
# What to do with values that are no arrays.
_remedy = _traced.by_class({
    ("tutti", "IndexedSlices"): "pass an array with all rows, or use tutti.cross_device",
    ("tensorflow", "IndexedSlices"): "pass tf.convert_to_tensor(x), or use tutti.cross_device",
    ("tensorflow", "SparseTensor"): "pass tf.sparse.to_dense(x)",
    ("tensorflow", "RaggedTensor"): "pass x.to_tensor()",
    ("jax", "JAXSparse"): "pass x.todense()",
    ("scipy", "_spbase"): "pass x.toarray()",
    ("scipy", "spmatrix"): "pass x.toarray()",
})
_ANY = ("give a number or an array: of NumPy, torch, TensorFlow or JAX, or another one with DLPack "
        "or __array__")


def _is_of(x, library, name):
    """Whether x is of a class of a library, which may not be loaded."""
    return isinstance(x, getattr(sys.modules.get(library), name, ()))


def held(x):
    """The array that x stands for: its tensor, if x is a variable, else x. Raises for what has no
    data yet, and for an array of JAX that is spread over several devices."""
    if isinstance(x, numpy.ndarray):
        return x
    _traced.refuse_value(x)
    read = _reader(type(x))
    if read is not None:
        return held(read(x))
    devices = len(x.sharding.device_set) if _is_of(x, "jax", "Array") else 1
    if devices > 1:
        raise invalid(f"this array of shape {list(x.shape)} is spread over {devices} devices; pass "
                      "jax.device_get(x), or its addressable_shards one by one")
    return x


def refuse_layout(x):
    """Raises for a tensor of torch whose elements are no array in its memory."""
    if not _is_of(x, "torch", "Tensor"):
        return
    if x.is_nested:
        raise invalid("a nested tensor is no array; pass x.to_padded_tensor(0.0)")
    if x.layout is not sys.modules["torch"].strided:
        raise invalid(f"a tensor of the layout {x.layout} is no array; pass x.to_dense()")
    if x.is_quantized:
        raise invalid("a quantized tensor is no array of numbers; pass x.dequantize()")


def refuse_masked(*arrays):
    """Raises if one of them is a masked array."""
    if any(isinstance(array, numpy.ma.MaskedArray) for array in arrays):
        raise invalid("a masked array would be reduced without its mask; pass x.filled(value), or "
                      "x.data to ignore the mask")


def native(array):
    """A NumPy array, or a subclass, as a new array object of the machine's byte order."""
    return numpy.asarray(array, array.dtype.newbyteorder("=")).view()


def array_of(x):
    """A read-only array with the values of an object that has __array__ but not DLPack."""
    if not hasattr(x, "__array__"):
        raise invalid(f"{type(x).__name__} is no tensor; {_remedy(type(x)) or _ANY}")
    try:  # __array__ of TensorFlow fails for a bfloat16 without axes.
        array = numpy.asanyarray(x.numpy() if _is_of(x, "tensorflow", "Tensor") else x)
        refuse_masked(array)
        array = native(array)
    except (MemoryError, Error):
        raise
    except Exception as error:  # Whatever the object's code raises.
        raise invalid(f"__array__ of this {type(x).__name__} failed: {error}") from error
    array.flags.writeable = False
    return array


def is_value(x):
    """Whether x is an array, holds one, or is of a class that is refused for one: not a structure
    of several."""
    return (hasattr(x, "__dlpack__") or hasattr(x, "__array__")
            or _reader(type(x)) is not None or _remedy(type(x)) is not None)


def rows_of(x):
    """(values, indices, dense_shape) of another library's slices: tf.IndexedSlices, or a sparse
    tensor of torch with one sparse axis; None for what is none."""
    if _is_of(x, "tensorflow", "IndexedSlices"):
        shape = x.dense_shape
        return x.values, x.indices, None if shape is None else [int(size) for size in shape]
    if _is_of(x, "torch", "Tensor") and x.layout is sys.modules["torch"].sparse_coo:
        if x.sparse_dim() != 1:
            raise invalid(f"a sparse tensor with {x.sparse_dim()} sparse axes has no rows; pass "
                          "x.to_dense(), or one with one: x.to_dense().to_sparse(1)")
        return x._values(), x._indices()[0], x.shape
    return None


def slices_like(slices, x):
    """IndexedSlices with parts of the kind of x's, as slices of x's library; x may be dense."""
    if _is_of(x, "tensorflow", "IndexedSlices") or _is_of(x, "tensorflow", "Tensor"):
        tensorflow, shape = sys.modules["tensorflow"], slices.dense_shape
        if shape is not None:
            given = getattr(x, "dense_shape", None)
            shape = tensorflow.constant(shape, getattr(given, "dtype", tensorflow.int64))
        return tensorflow.IndexedSlices(slices.values, slices.indices, shape)
    if _is_of(x, "torch", "Tensor"):
        return sys.modules["torch"].sparse_coo_tensor(
            slices.indices[None], slices.values, slices.dense_shape, device="cpu",
            check_invariants=False)
    return slices


def like(array, x):
    """A new NumPy array as an array of x's library, on x's device: TensorFlow, JAX, or another one
    of the array API; else itself."""
    if isinstance(x, (numpy.ndarray, numpy.generic)):
        return array
    if _is_of(x, "tensorflow", "Tensor"):
        tensorflow = sys.modules["tensorflow"]
        with tensorflow.device(x.device):
            return tensorflow.convert_to_tensor(array)
    if _is_of(x, "jax", "Array"):
        jax = sys.modules["jax"]
        device = x.device if getattr(x, "committed", True) else None
        with _x64(jax):
            return jax.numpy.asarray(array, device=device)
    namespace = getattr(x, "__array_namespace__", None)
    return array if namespace is None else namespace().asarray(array)


def converted(x, dtype):
    """An array with the elements of x in a dtype, which is of any library or a name: of torch if x
    is, else as like() makes it."""
    if not _is_of(x, "torch", "Tensor"):
        return like(numpy.asarray(x, asked_dtype(dtype)), x)
    is_bf16 = text_of(dtype) in ("bf16", "bfloat16")  # Which NumPy may lack.
    name = "bfloat16" if is_bf16 else asked_dtype(dtype).name
    return x.detach().to(getattr(sys.modules["torch"], name))


def _x64(jax):
    """JAX cuts elements of 64 bits silently, unless they are enabled."""
    if not hasattr(jax, "enable_x64"):  # Older versions have it elsewhere.
        jax = importlib.import_module("jax.experimental")
    return jax.enable_x64(True)
