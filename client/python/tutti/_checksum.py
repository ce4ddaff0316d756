"""Checksums of arrays."""

from tutti._error import invalid
from tutti._library import library
from tutti._tensor import Tensor


def checksum(x):
    """The XXH3 hash of the elements of an array, in their order, as an int of 64 bits: the same on
    every host and for any strides. Elements of equal bits hash alike: 0.0 and -0.0 do not."""
    tensor = Tensor(x, wants_gradient=False)
    if tensor.on_gpu:
        raise invalid("checksum() needs an array in the host's memory; pass a copy there")
    return library.tutti_checksum(tensor.address, tensor.memory.nbytes)
