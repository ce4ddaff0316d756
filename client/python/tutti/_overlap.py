"""Arrays that share elements where the library cannot see it. It compares memory while that is in
use; in place of an array that is not contiguous it is given a copy, which shares nothing with
anything, and of ordinary memory it makes one. So these are compared here, by their own elements.

What is copied is read by the call, and written by the wait for the operation. So the input and the
output of one operation may overlap as they like where one of them is not contiguous; two outputs
may not, nor what operations have that were not waited for.
"""

import itertools
import os
import typing
import weakref

import numpy

from tutti._error import invalid

_WORK_MAX = 10_000  # Of the search for an element that two arrays share; some milliseconds.
# What works use that nobody has waited for, by the works' ids: of those that will copy a result to
# an array, perhaps, and of all others. Each access is one that Python does not divide: signal
# handlers and finalizers make calls within others, and a fork may come at any time.
_copying, _plain = {}, {}
_shared = {}  # The bounds of each memory of empty(), by its address.


class Use(typing.NamedTuple):
    """What an operation does with an array of NumPy, or a tensor of torch."""
    array: typing.Any
    is_written: bool
    is_copied: bool  # The library is given a copy.
    is_watched: bool = False  # The library compares it with others until the work is waited for.
    given_bounds: tuple | None = None  # Where they are known: see _bounds().


class _UnderWay(typing.NamedTuple):
    """What a work uses, without keeping the work alive."""
    work: weakref.ref
    begin: int  # The bounds of all.
    end: int
    uses: list


class _Place:
    """Exposes to NumPy where the elements of a tensor of torch are; they are not read."""

    def __init__(self, tensor):
        bytes_ = tensor.element_size()
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{bytes_}", "shape": tuple(tensor.shape),
            "strides": tuple(bytes_ * stride for stride in tensor.stride()),
            "data": (tensor.data_ptr(), True)}


def _place_of(array):
    if isinstance(array, numpy.ndarray):
        return array
    return numpy.asarray(_Place(array)) if array.numel() else numpy.empty(0, "u1")


def _has_elements(array):
    return bool(array.size if isinstance(array, numpy.ndarray) else array.numel())


def _bounds(array):
    """(address of the first byte, address behind the last one) of an array that has elements."""
    if isinstance(array, numpy.ndarray):
        begin, bytes_, strides = array.ctypes.data, array.itemsize, array.strides
        if array.flags.c_contiguous:
            return begin, begin + array.nbytes
    else:
        begin, bytes_ = array.data_ptr(), array.element_size()
        if array.is_contiguous():
            return begin, begin + array.nbytes
        strides = [bytes_ * stride for stride in array.stride()]
    end = begin + bytes_
    for side, stride in zip(array.shape, strides):
        if stride < 0:
            begin += (side - 1) * stride
        else:
            end += (side - 1) * stride
    return begin, end


def _bounds_of(use):
    return use.given_bounds or _bounds(use.array)


def _is_within(use, first, last):
    begin, end = _bounds_of(use)
    return begin < last and first < end


def _around(uses):
    """The bounds of all elements. (0, 0): there are none."""
    if len(uses) == 1 and uses[0].given_bounds:
        return uses[0].given_bounds
    bounds = [_bounds_of(use) for use in uses if _has_elements(use.array)]
    return (min((begin for begin, _ in bounds), default=0),
            max((end for _, end in bounds), default=0))


def _share(array, other):
    """Whether two arrays have an element in common. Where that takes long to find out, they are
    taken to have."""
    try:
        return numpy.shares_memory(_place_of(array), _place_of(other), max_work=_WORK_MAX)
    except (RuntimeError, OverflowError):  # numpy.TooHardError, whose place depends on the version.
        return True


def elements_of(array, dtype):
    """What arrays have in common that are one for an operation, which reads them as a dtype: they
    have the same elements in the same order."""
    place = _place_of(array)
    layout = place.size if place.flags.c_contiguous else (place.shape, place.strides)
    return dtype, place.__array_interface__["data"][0], layout


def find(uses, matters):
    """The positions of two Uses whose arrays have an element in common, ascending, or None.
    matters(i, j): whether it is asked for, of two whose bounds overlap, i < j."""
    active = []
    for begin, end, i in sorted((*_bounds_of(use), i) for i, use in enumerate(uses)
                                if _has_elements(use.array)):
        active = [other for other in active if other[0] > begin]
        for _, j in active:
            pair = min(i, j), max(i, j)
            if matters(*pair) and _share(uses[i].array, uses[j].array):
                return pair
        active.append((end, i))
    return None


def check_self(array):
    """Raises if elements of an array, which is written to, lie on each other."""
    array = _place_of(array)
    extent = array.itemsize
    for stride, side in sorted((abs(stride), side)
                               for side, stride in zip(array.shape, array.strides) if side > 1):
        if stride < extent:
            raise invalid("elements of the array to write to have the same memory (shape "
                          f"{list(array.shape)}, strides {list(array.strides)}); give a copy")
        extent += stride * (side - 1)


def check_list(uses):
    """Raises if an array of a list is written, and shares elements with another one. uses: the Uses
    of each, a list."""
    flat = [(number, use) for number, uses_of_one in enumerate(uses) for use in uses_of_one]

    def matters(i, j):
        (a, mine), (b, other) = flat[i], flat[j]
        return a != b and (mine.is_written or other.is_written)

    found = find([use for _, use in flat], matters)
    if found is not None:
        first, second = sorted(flat[i][0] for i in found)
        raise invalid(f"tensors {first} and {second} of the list overlap, and the operation writes "
                      "there; use separate buffers")


def add_shared(address, bytes_):
    """Memory of empty(), which the library does not copy, until remove_shared()."""
    _shared[address] = address, address + bytes_


def remove_shared(address):
    _shared.pop(address, None)


def _is_shared(array):
    address, _ = _bounds(array)
    return any(begin <= address < end for begin, end in list(_shared.values()))


def _collide(mine, theirs):
    """Whether an operation that begins gets in the way of one under way with which it shares
    elements: by what this one, or that one, will copy to an array; or by copying from an array that
    that one writes."""
    if not mine.is_written and not theirs.is_written or theirs.is_copied and not theirs.is_written:
        return False  # Both are read, or theirs has been.
    if mine.is_copied or theirs.is_copied:
        return theirs.is_written or theirs.is_watched or _is_shared(theirs.array)
    # The library compares what it does not copy.
    return theirs.is_written and not theirs.is_watched and not _is_shared(theirs.array)


def check_under_way(uses):
    """Raises if an operation with these Uses gets in the way of one that was not waited for."""
    if not _copying and not _plain:
        return
    works = list(_copying.values())
    if any(use.is_copied for use in uses):
        works += list(_plain.values())
    first, last = _around(uses)
    near = [theirs for _, begin, end, theirs in works if begin < last and first < end]
    if not near:
        return
    both = [*uses, *(use for use in itertools.chain(*near) if _is_within(use, first, last))]

    def matters(i, j):
        return i < len(uses) <= j and _collide(both[i], both[j])

    if find(both, matters) is not None:
        raise invalid("an array has elements that an operation under way uses as well; wait for "
                      "that first: an operation is under way until its wait() has returned")


def begin(work, uses):
    """Keeps in mind what a work that nobody has waited for uses, until end() or its end."""
    is_copying = any(use.is_written and not use.is_watched for use in uses)
    key = id(work)
    (_copying if is_copying else _plain)[key] = _UnderWay(
        weakref.ref(work, lambda _: _forget(key)), *_around(uses), uses)


def end(work):
    _forget(id(work))


def _forget(key):
    _copying.pop(key, None)
    _plain.pop(key, None)


def _forget_all():
    _copying.clear()
    _plain.clear()


os.register_at_fork(after_in_child=_forget_all)  # A child has none of its parent's works.


def is_any_copying():
    """Whether an operation under way will copy its result to an array."""
    return bool(_copying)
