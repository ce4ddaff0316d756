"""Streams of CUDA, as other libraries have them."""

import operator

from tutti._error import invalid


def handle_of(stream):
    """The handle of a stream, an int; None for None, and for the default stream."""
    if stream is None:
        return None
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        stream = getattr(stream, name, stream)
    try:
        handle = operator.index(getattr(stream, "value", stream))  # ctypes
    except TypeError:
        raise invalid(f"stream {stream!r} is no stream of CUDA; pass its handle, an int") from None
    if not 0 <= handle < 2**64:
        raise invalid(f"stream {handle} is out of range")
    return handle or None


def producer_of(tensors):
    """The stream that has to reach an operation before the arrays' values are there: that which
    their __cuda_array_interface__ names. None: it names none, or arrays are of another kind."""
    streams = {_named_by(tensor.x) for tensor in tensors if tensor is not None} - {None}
    if len(streams) > 1:
        raise invalid("the arrays' __cuda_array_interface__ name different streams; give stream=")
    return next(iter(streams), None)


def _named_by(x):
    if hasattr(x, "__dlpack__"):  # Then the producer has seen to it.
        return None
    return getattr(x, "__cuda_array_interface__", {}).get("stream")
