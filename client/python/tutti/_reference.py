"""What a reproducible reduction gives, computed by NumPy."""

import functools

import numpy

from tutti._dtype import numpy_dtype
from tutti._error import invalid
from tutti._tensor import Tensor, factor_of, op_number

_TRUE_IF_ANY = ("sum", "max", "bor")


def reference(values, op="sum", dtype=None, factors=None):
    """The result that every rank of a group gets of a reproducible reduction, bit for bit: values
    is the list of the ranks' arrays, by rank, all of one shape and dtype; factors, those of
    "premul_sum". The order is ((x0 + x1) + x2) + ... Floats of 16 bits are combined in f32 and
    rounded once, after the division of "mean". Every NaN is NumPy's. "min" and "max" give the later
    one of equal values, such as 0.0 and -0.0. The result of one rank is its array.
    """
    op_number(op)
    values = list(values)
    tensors = [Tensor(x, dtype, wants_gradient=False) for x in values]
    if not tensors:
        raise invalid("reference() needs the array of at least one rank")
    first = tensors[0]
    if any((x.dtype, x.shape, x.on_gpu) != (first.dtype, first.shape, False) for x in tensors):
        raise invalid("reference() needs arrays of one dtype and shape, in the host's memory")
    _check_op(op, first.dtype)
    factors = [1.0] * len(tensors) if factors is None else [factor_of(op, x) for x in list(factors)]
    if len(factors) != len(tensors):
        raise invalid("reference() needs a factor for each array")
    with numpy.errstate(all="ignore"):
        terms = [_scaled(x, factor) for x, factor in zip(tensors, factors)]
        total = functools.reduce(_combine_of(op, first.dtype), terms)
        if op == "mean" and len(terms) > 1:
            total = total / total.dtype.type(len(terms))
        if total.dtype.kind == "f" and len(terms) > 1:
            total[numpy.isnan(total)] = numpy.nan
        result = Tensor(first.new(first.shape), first.dtype, writable=True)
        _bits_of(result)[...] = _narrowed(total, first.dtype)
    return result.x


def _check_op(op, dtype):
    is_float = dtype in ("f16", "bf16", "f32", "f64")
    if not is_float and op in ("mean", "premul_sum") or is_float and op in ("band", "bor", "bxor"):
        raise invalid(f"op {op!r} is not for arrays of {dtype}")


def _bits_of(tensor):
    """The elements in a row; bf16, which NumPy lacks, as uint16."""
    row = tensor.memory.reshape(-1)  # Of DLPack, perhaps as integers.
    return row.view(numpy.uint8 if tensor.dtype == "bool" else numpy_dtype(tensor.dtype))


def _widened(row, dtype):
    """As the type in which they are combined."""
    if dtype == "bf16":
        return (row.astype(numpy.uint32) << 16).view(numpy.float32)
    if dtype == "bool":
        return row != 0
    return row.astype(numpy.float32) if dtype == "f16" else row.copy()


def _narrowed(row, dtype):
    """The inverse; bf16 is rounded to nearest, ties to even."""
    if dtype != "bf16":
        return row.astype(numpy.float16) if dtype == "f16" else row
    bits = row.view(numpy.uint32)
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
    return numpy.where(numpy.isnan(row), bits >> 16, rounded).astype(numpy.uint16)


def _scaled(tensor, factor):
    """One rank's term; a product of 16 bits is rounded before it is added."""
    row = _widened(_bits_of(tensor), tensor.dtype)
    if factor == 1:
        return row
    product = row * row.dtype.type(factor)
    product[numpy.isnan(product)] = numpy.nan
    return _widened(_narrowed(product, tensor.dtype), tensor.dtype)


def _combine_of(op, dtype):
    """The operation on two rows."""
    if dtype == "bool" and op != "bxor":
        return numpy.logical_or if op in _TRUE_IF_ANY else numpy.logical_and
    return {"prod": numpy.multiply, "band": numpy.bitwise_and, "bor": numpy.bitwise_or,
            "bxor": numpy.bitwise_xor,
            "min": lambda a, b: numpy.where((a < b) | (a != a), a, b),
            "max": lambda a, b: numpy.where((a > b) | (a != a), a, b)}.get(op, numpy.add)
