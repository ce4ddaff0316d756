"""The mean of the gradients that several towers (replicas) computed for the same variables.

    from tutti.average_gradients import average_gradients
    tower_grads = [[(grad, var), ...], ...]     # One list for each tower.
    means = average_gradients(tower_grads)      # [(mean, var of tower 0), ...]

    means = average_gradients(own_grads, group=tutti.join())  # One process a tower.

docs/average_gradients.md compares with the variants of this function.
"""

import contextlib
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_size_t, c_void_p
from typing import Any, Iterable

from tutti import _foreign, _frameworks, _traced
from tutti._error import Error, invalid, naming
from tutti._frameworks import library, told_to_others
from tutti._group import Group
from tutti._tensor import choice_of, strategy_text
from tutti._values import Component, IndexedSlices, Results, Views, held, slices_of
from tutti._waiting import interruptible

__all__ = ["IndexedSlices", "average_gradients"]


class _Gradient(ctypes.Structure):
    _fields_ = [("value", POINTER(Component)), ("variable", c_char_p)]


class _Options(ctypes.Structure):
    _fields_ = [("none", c_char_p), ("strict", c_int32), ("sum_duplicates", c_int32),
                ("compare_variables", c_int32), ("clip_norm", POINTER(c_double)),
                ("clip_global_norm", POINTER(c_double)), ("timeout_seconds", POINTER(c_double)),
                ("strategy", c_char_p), ("reproducible", c_int32)]


_frameworks.declare({
    "tutti_average_gradients": (c_int, [POINTER(_Gradient), POINTER(c_size_t), c_size_t,
                                        POINTER(_Options), c_void_p, POINTER(c_void_p)]),
})


def _list_of(gradients, what):
    if isinstance(gradients, (list, tuple, zip, map)) or hasattr(gradients, "__next__"):
        return list(gradients)
    raise invalid(f"{what} must be a list, not {type(gradients).__name__}")


def _towers_of(gradients, group):
    """The towers of this process: in a group also a single one, given without a list around."""
    gradients = _list_of(gradients, "the gradients")
    is_one = group is not None and not (gradients and isinstance(gradients[0], list))
    return [gradients] if is_one else [_tower_of(tower) for tower in gradients]


def _tower_of(tower):
    if isinstance(tower, tuple):  # The pairs of a single tower would each be taken for one.
        raise invalid("a tower must be a list, not a tuple: to average the pairs of one tower over "
                      "the ranks pass group=; of towers in this process pass a list of lists")
    return _list_of(tower, "a tower")


def _split(item):
    """(gradient, variable, whether they came as a pair)."""
    if not isinstance(item, tuple):
        return item, None, False
    if len(item) == 2 and isinstance(item[0], tuple):
        raise invalid("a gradient must be an array, not a tuple; a tower must be a list")
    if len(item) != 2:
        raise invalid(f"a tuple of a gradient and a variable has two items, not {len(item)}")
    return (*item, True)


def _parts_of(gradient):
    """What of a gradient a tape may watch."""
    slices = slices_of(gradient)
    return [gradient] if slices is None else [gradient, slices.values]


def _name_of(tower, index):
    """How messages call a gradient."""
    return f"tower {tower}, gradient {index}"


def _held(tower, index, item):
    """An item with what its gradient holds."""
    gradient, variable, is_pair = _split(item)
    gradient = held(gradient, _name_of(tower, index))
    return (gradient, variable) if is_pair else gradient


def _text_of(variable):
    """The text that stands for a variable: itself, or its path or name."""
    if isinstance(variable, str):
        return variable
    names = (getattr(variable, "path", None), getattr(variable, "name", None))  # path: of Keras.
    return next((name for name in names if isinstance(name, str)), "")


def _gradient(views, kept, item, what):
    gradient, variable, _ = _split(item)
    component = None
    with naming(what):
        for part in _parts_of(gradient):
            _traced.refuse_recorded(part)
    if gradient is not None:
        component = ctypes.pointer(views.component(gradient, what))
        kept.append(component)
    return _Gradient(component, _text_of(variable).encode())


def _number(value, what):
    if value is None:
        return None
    try:
        return ctypes.pointer(c_double(value))
    except TypeError:
        raise invalid(f"{what} {value!r} is no number") from None


def _like(towers, index):
    """What the mean of a variable's gradients is to be like: the first that this process has, else
    the variable, else the first gradient of any; None where there is none."""
    own = [_split(tower[index]) for tower in towers]
    like = _first(gradient for gradient, _, _ in own)
    if like is None:
        with contextlib.suppress(Error):  # Of a variable without data.
            like = _first(_foreign.held(variable) for _, variable, _ in own
                          if _foreign.is_value(variable))
    return _first(_split(item)[0] for tower in towers for item in tower) if like is None else like


def _first(values):
    """The first one that is there, or None."""
    return next((value for value in values if value is not None), None)


def _result(towers, index, components):
    """The mean in the form of the input: with tower 0's variable, or alone."""
    _, variable, is_pair = _split(towers[0][index])
    mean = components[0][0] if components else None
    parts = [part for tower in towers for part in _parts_of(_split(tower[index])[0])]
    if isinstance(mean, IndexedSlices):
        mean.values = _traced.ended_gradient(mean.values, parts)
    mean = _traced.ended_gradient(mean, parts)
    return (mean, variable) if is_pair else mean


class _Call:
    """The arguments of a call, read: as structures of C, and what these point to."""

    def __init__(self, tower_grads, group, options):
        self._group = group  # Outlives the call.
        self.towers = [[_held(t, i, item) for i, item in enumerate(tower)]
                       for t, tower in enumerate(_towers_of(tower_grads, group))]
        # The gradients are the end of the calculation: they need none of their own.
        self._views, self._kept = Views(wants_gradient=False), []
        gradients = [_gradient(self._views, self._kept, item, _name_of(t, i))
                     for t, tower in enumerate(self.towers) for i, item in enumerate(tower)]
        self._arguments = ((_Gradient * len(gradients))(*gradients),
                           (c_size_t * len(self.towers))(*map(len, self.towers)),
                           len(self.towers), ctypes.byref(options), _pointer(group))

    def run(self):
        """The results."""
        return Results(library.tutti_average_gradients, *self._arguments)


def _pointer(group):
    return None if group is None else group._handle.pointer


def _options(none, strict, sum_duplicates, compare_variables, norms, timeout, strategy,
             reproducible):
    if not isinstance(none, str):
        raise invalid(f"none {none!r} is no policy for None; give 'error', 'skip' or 'zeros'")
    return _Options(none.encode(), bool(strict), bool(sum_duplicates), bool(compare_variables),
                    _number(norms[0], "clip_norm"), _number(norms[1], "clip_global_norm"),
                    _number(timeout, "timeout"), strategy_text(strategy),
                    choice_of(reproducible, invalid=invalid))


def average_gradients(tower_grads: Iterable[Any], group: Group | None = None, none: str = "error",
                      strict: bool = True, clip_norm: float | None = None,
                      clip_global_norm: float | None = None, sum_duplicates: bool = True,
                      compare_variables: bool = True, timeout: float | None = None,
                      strategy: str | tuple[str, str] | list[str] | None = None,
                      reproducible: bool | None = None) -> list[Any]:
    """The mean of each variable's gradients over all towers: a list of (mean, variable of tower 0),
    or of means where gradients come without variables.

    tower_grads: a list of towers, each a list of (gradient, variable) or of gradients, in the same
    order. With a group: the towers of this process, or the list of its only one. Gradients are
    arrays of any library, numbers, slices, or None; the means are of their kind (docs/faces.md),
    where this process has None of that of the variable, else of its other gradients.

    group: a tutti.Group; the mean is over the towers of all ranks, and the same bits on each. All
    ranks make the same calls in the same order. If they disagree, or one of them refuses its
    arguments, all raise ValueError, and the next call works.

    none: "error", or what to do about a variable for which some towers have None: "skip" takes the
    mean of the others, "zeros" counts None as zeros. Where all have None, so has the result.

    strict: if False, towers may be of different lengths, and the shortest counts.

    clip_norm: scales each gradient of each tower with a larger norm down to this norm, before the
    mean. clip_global_norm: scales all means down so that their global norm is at most this.

    sum_duplicates: of IndexedSlices, sums the rows of one index, in order of the indices.

    compare_variables: whether the ranks of a group must give the same variables, by name (.path,
    which those of Keras have, else .name; or a text in the variable's place).

    timeout, strategy, reproducible: as in Group's collectives. Where a rank has several towers,
    their sum is its value.

    No gradient passes through: the mean of tensors of torch that require one (create_graph=True)
    raises in backward(), and a tensor that a GradientTape watches is refused.

    Raises a tutti.Error, which is a ValueError for wrong arguments: towers of different lengths,
    None without a policy, different shapes or dtypes, integers, which have no mean.
    """
    if group is not None and not isinstance(group, Group):
        raise invalid(f"group {group!r} is no tutti.Group")
    with told_to_others(group):
        options = _options(none, strict, sum_duplicates, compare_variables,
                           (clip_norm, clip_global_norm), timeout, strategy, reproducible)
        call = _Call(tower_grads, group, options)
    results = call.run() if group is None else interruptible(call.run)
    return [_result(call.towers, i, results.components(i, _like(call.towers, i)))
            for i in range(len(results))]
