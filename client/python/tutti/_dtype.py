"""Tutti's dtypes and the names that users may give them."""

import numpy

from tutti._error import Error, invalid

# The numbers of tutti_dtype in proto/tutti_types.h.
DTYPES = {name: number for number, name in enumerate(
    ("f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool", "i16", "u16", "u32", "u64"))}
SIZES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "bool": 1,
         "i16": 2, "u16": 2, "u32": 4, "u64": 8}
LONG = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8",
        "uint8": "u8", "int32": "i32", "int64": "i64", "bool": "bool", "int16": "i16",
        "uint16": "u16", "uint32": "u32", "uint64": "u64"}
_NUMPY = {short: long for long, short in LONG.items()}
# By NumPy's scalar types: to ask a dtype for its name takes microseconds.
_OF_TYPE = {numpy.dtype(long).type: short for long, short in LONG.items() if short != "bf16"}
# Key of the metadata that marks a uint16 dtype as bf16, for which NumPy has no dtype.
_MARK = "tutti"
_BF16 = numpy.dtype("uint16", metadata={_MARK: "bf16"})
_HINTS = {  # By prefix of the name.
    "complex": "pass its real view: x.view('float32') or 'float64', or torch.view_as_real(x)",
    "float8": "convert it to bf16 or f16 and back",
    "float4": "convert it to bf16 or f16 and back",
    "float6_": "convert it to bf16 or f16 and back",
    "int4": "convert it to i8 and back",
    "int2": "convert it to i8 and back",
    "uint4": "convert it to u8 and back",
    "uint2": "convert it to u8 and back",
    "float128": "convert it to f64 with astype",
    "longdouble": "convert it to f64 with astype",
    "string": "pass numbers, such as tf.io.decode_raw(x, tf.uint8)",
    "str": "pass numbers, such as the bytes of a text: numpy.frombuffer(text.encode(), 'u1')",
    "bytes": "pass numbers: numpy.frombuffer(x, 'u1')",
    "object": "convert it with astype, as numpy.asarray(x, dtype='float64') does",
}


def unknown(text):
    """The Error about a dtype that Tutti lacks, with advice, to raise."""
    hint = next((hint for start, hint in _HINTS.items() if text.startswith(start)), None)
    return invalid(f"dtype {text!r} is none of {', '.join(DTYPES)}" + (f"; {hint}" if hint else ""))


def dtype_name(dtype):
    """Tutti's name of a dtype given as "f32", "float32", a NumPy or a torch dtype."""
    if isinstance(dtype, type):
        dtype = numpy.dtype(dtype)
    if isinstance(dtype, numpy.dtype) and _MARK in (dtype.metadata or {}):
        return dtype.metadata[_MARK]
    text = _OF_TYPE.get(getattr(dtype, "type", None)) or text_of(dtype)
    name = LONG.get(text, text)
    if name not in DTYPES:
        raise unknown(text)
    return name


def text_of(dtype):
    """The name that its own library gives a dtype."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    return text.rsplit(".", 1)[-1]  # torch.float32


def numpy_dtype(dtype):
    """The NumPy dtype for new arrays. For bf16 it is a uint16 that is marked as bf16, unless a
    NumPy dtype of that name is given."""
    name = dtype_name(dtype)
    if isinstance(dtype, numpy.dtype):
        return dtype.newbyteorder("=")
    return _BF16 if name == "bf16" else numpy.dtype(_NUMPY[name])


def named_dtype(name):
    """The NumPy dtype that has this name: bf16 is that of ml_dtypes, and never uint16. Raises
    UNIMPLEMENTED without ml_dtypes."""
    if name != "bf16":
        return numpy.dtype(_NUMPY[name])
    try:
        from ml_dtypes import bfloat16  # JAX and TensorFlow have loaded it.
    except ImportError:
        raise Error("UNIMPLEMENTED", "NumPy has no bfloat16 for a new array: install ml_dtypes, "
                    "or pass tensors of torch") from None
    return numpy.dtype(bfloat16)


def own_dtype(x, name):
    """The NumPy dtype of new arrays that are like x, whose dtype Tutti calls `name`: that of x
    where NumPy knows it, as it does those of JAX and TensorFlow."""
    given = getattr(x, "dtype", None)
    given = getattr(given, "as_numpy_dtype", given)  # TensorFlow
    if isinstance(given, (numpy.dtype, type)) and dtype_name(given) == name:
        return numpy.dtype(given).newbyteorder("=")
    return named_dtype(name)


def asked_dtype(dtype):
    """The NumPy dtype that a user means by one of any library, or by its name."""
    try:
        return numpy.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    except TypeError:
        return named_dtype(dtype_name(dtype))
