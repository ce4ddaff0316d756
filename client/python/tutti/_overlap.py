"""Arrays that share elements where the library cannot see it. It compares memory; in place of an
array that is not contiguous it is given a copy, which shares nothing with anything. So these are
compared here, by their own elements.

An array that is read is copied before the call, and the result is copied to one that is written
when the operation is waited for. So the input and the output of one operation may
overlap as they like; two outputs may not, nor what operations under way have.
"""

import threading
import typing
import weakref

import numpy

from tutti._error import invalid

_WORK_MAX = 10_000  # Of the search for an element that two arrays share; some milliseconds.
_lock = threading.Lock()  # Guards what follows.
# The Uses of operations under way, by their works, which have done(): of those that will copy a
# result to an array, and of all others.
_copying = weakref.WeakKeyDictionary()
_plain = weakref.WeakKeyDictionary()


class Use(typing.NamedTuple):
    """What an operation does with an array of NumPy, or a tensor of torch."""
    array: typing.Any
    is_written: bool
    is_copied: bool  # The library is given a copy.


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


def _bounds(place):
    """(address of the first byte, address behind the last one) of an array that has elements."""
    begin = place.__array_interface__["data"][0]
    end = begin + place.itemsize
    for side, stride in zip(place.shape, place.strides):
        if stride < 0:
            begin += (side - 1) * stride
        else:
            end += (side - 1) * stride
    return begin, end


def _share(place, other):
    """Whether two arrays have an element in common. Where that takes long to find out, they are
    taken to have."""
    try:
        return numpy.shares_memory(place, other, max_work=_WORK_MAX)
    except (RuntimeError, OverflowError):  # numpy.TooHardError, whose place depends on the version.
        return True


def elements_of(array):
    """What arrays have in common that have the same elements, in the same order."""
    place = _place_of(array)
    layout = place.size if place.flags.c_contiguous else (place.shape, place.strides)
    return place.__array_interface__["data"][0], place.itemsize, layout


def find(arrays, matters):
    """The positions of two arrays that have an element in common, ascending, or None. matters(i,
    j): whether it is asked for, of two whose bounds overlap."""
    places = [_place_of(array) for array in arrays]
    active = []
    for begin, end, i in sorted((*_bounds(place), i) for i, place in enumerate(places)
                                if place.size):
        active = [other for other in active if other[0] > begin]
        for _, j in active:
            if matters(i, j) and _share(places[i], places[j]):
                return min(i, j), max(i, j)
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
    of each, a list. What the library is given itself, it compares."""
    flat = [(number, use) for number, uses_of_one in enumerate(uses) for use in uses_of_one]
    if not any(use.is_copied for _, use in flat):
        return

    def matters(i, j):
        (a, mine), (b, other) = flat[i], flat[j]
        return (a != b and (mine.is_written or other.is_written)
                and (mine.is_copied or other.is_copied))

    found = find([use.array for _, use in flat], matters)
    if found is not None:
        first, second = sorted(flat[i][0] for i in found)
        raise invalid(f"tensors {first} and {second} of the list overlap, and the operation writes "
                      "there; use separate buffers")


def _collide(mine, theirs):
    """Whether an operation that begins gets in the way of one under way: by what this one, or that
    one, will copy to an array; or by copying from an array that that one writes."""
    if theirs.is_copied and not theirs.is_written:
        return False  # It has been copied.
    if not mine.is_copied and not theirs.is_copied:
        return False  # The library has compared them.
    return (mine.is_written or theirs.is_written) and _share(_place_of(mine.array),
                                                             _place_of(theirs.array))


def check_under_way(uses):
    """Raises if an operation with these Uses gets in the way of one under way."""
    if not _copying and not any(use.is_copied for use in uses):
        return
    with _lock:
        under_way = [*_copying.items(), *(item for item in _plain.items() if not item[0].done())]
    for _, theirs in under_way:
        for mine in uses:
            if any(_collide(mine, use) for use in theirs):
                raise invalid("an array that is not contiguous has elements that an operation "
                              "under way uses as well; wait for that first")


def begin(work, uses):
    """Keeps in mind what a work that nobody has waited for uses, until end() or its end."""
    is_copying = any(use.is_copied and use.is_written for use in uses)
    with _lock:
        (_copying if is_copying else _plain)[work] = uses


def end(work):
    with _lock:
        _copying.pop(work, None)
        _plain.pop(work, None)


def is_any_copying():
    """Whether an operation under way will copy its result to an array."""
    return bool(_copying)
