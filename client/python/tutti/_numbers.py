"""Arguments that are numbers: ranks, tags, shapes and timeouts, as C takes them."""

import math
import numbers
import operator

from tutti._error import invalid

_TIMEOUT_MS_MAX = 2**31 - 1


def milliseconds(seconds, default):
    """A timeout in seconds as milliseconds for C; `default` for None."""
    if seconds is None:
        return default
    if not isinstance(seconds, numbers.Real) or not seconds > 0:
        raise invalid(f"timeout {seconds!r} must be a number of seconds above 0")
    return math.ceil(min(seconds * 1000, _TIMEOUT_MS_MAX))


def whole(number, what, end=2**31):
    """A whole number from 0 to below `end`, by default one that fits C's int."""
    try:
        whole = operator.index(number)
    except TypeError:
        raise invalid(f"{what} {number!r} is no whole number; convert it with int()") from None
    if not 0 <= whole < end:
        raise invalid(f"{what} {number} is out of range; give one from 0 to {end - 1}")
    return whole


def destination(rank):
    return whole(rank, "destination")


def source(rank):
    """A rank, or -1 for any."""
    return -1 if rank is None else whole(rank, "source")


def tag(tag):
    """A message's tag, which fits 64 bits."""
    return whole(tag, "tag", 2**64)


def shape(shape):
    """A shape, given as a number or as several, as a tuple."""
    try:
        sides = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        sides = tuple(map(operator.index, sides))
    except TypeError:
        raise invalid(f"shape {shape!r} is no whole number, nor a tuple of such") from None
    if any(side < 0 for side in sides):
        raise invalid(f"shape {shape!r} has a side below 0")
    return sides
