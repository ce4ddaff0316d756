"""tf.distribute's cross-device operations, on arrays: reductions and copies of values that have a
component on each of several devices, in one process or with one process a rank.

    from tutti import cross_device as tfd
    ops = tfd.HierarchicalCopyAllReduce(num_packs=2)
    value = tfd.PerReplica([numpy.ones(3), numpy.ones(3)])
    ops.reduce(tfd.ReduceOp.SUM, value, destinations=value)  # Mirrored: [2, 2, 2] twice

With group= every rank passes the components of its own devices, and all ranks make the same calls
in the same order: ops = tfd.HierarchicalCopyAllReduce(group=tutti.join()).

Values are arrays of any library, numbers and slices, and results are of their kind: docs/faces.md.
Wrong arguments raise a tutti.Error that is a ValueError, too; other failures a tutti.Error. If the
ranks of a group disagree about a call, or one of them refuses its arguments, all of them raise it.
docs/cross_device.md compares with TensorFlow.
"""

import ctypes
import enum
import operator
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Iterable, Sequence, SupportsIndex

from tutti import _foreign, _frameworks
from tutti._error import invalid
from tutti._frameworks import check, library, told_to_others
from tutti._group import Group
from tutti._handle import Unique
from tutti._tensor import choice_of
from tutti._values import INT32, INT64, Component, IndexedSlices, Results, Views, held, whole
from tutti._waiting import interruptible

__all__ = ["CommunicationImplementation", "CommunicationOptions", "CrossDeviceOps",
           "HierarchicalCopyAllReduce", "IndexedSlices", "Mirrored", "PerReplica", "ReduceOp",
           "ReductionToOneDevice"]

_Value = Any  # An array, a number or IndexedSlices.
_Destinations = Any  # PerReplica, Mirrored, an array, a device string or a list of such strings.


class _Devices(ctypes.Structure):
    _fields_ = [("names", POINTER(c_char_p)), ("count", c_size_t)]


class _Reduction(ctypes.Structure):
    _fields_ = [("components", POINTER(Component)), ("count", c_size_t),
                ("destinations", _Devices)]


class _Options(ctypes.Structure):
    _fields_ = [("bytes_per_pack", c_int64), ("has_timeout", c_int32),
                ("timeout_seconds", c_double), ("implementation", c_char_p),
                ("reproducible", c_int32)]


_frameworks.declare({
    "tutti_communication_options_check": (c_int, [POINTER(_Options)]),
    "tutti_hierarchical_copy_create": (c_int, [POINTER(c_int64), c_void_p, POINTER(c_void_p)]),
    "tutti_reduction_to_one_device_create": (c_int, [c_char_p, c_void_p, POINTER(c_void_p)]),
    "tutti_cross_device_free": (None, [c_void_p]),
    "tutti_cross_device_reduce": (c_int, [c_void_p, c_char_p, POINTER(_Reduction),
                                          POINTER(_Options), POINTER(c_void_p)]),
    "tutti_cross_device_batch_reduce": (c_int, [c_void_p, c_char_p, POINTER(_Reduction), c_size_t,
                                                POINTER(_Options), POINTER(c_void_p)]),
    "tutti_cross_device_broadcast": (c_int, [c_void_p, POINTER(Component), POINTER(_Devices),
                                             c_int32, POINTER(_Options), POINTER(c_void_p)]),
})


class _NamedInEitherCase(enum.Enum):
    @classmethod
    def _missing_(cls, value):
        name = own_name(value, cls)
        member = cls.__members__.get(name.upper()) if isinstance(name, str) else None
        if member is None:
            raise invalid(f"{value!r} is no valid {cls.__name__}; give one of "
                          f"{', '.join(cls.__members__)}")
        return member


def own_name(value: Any, kind: type[enum.Enum]) -> Any:
    """The name of a member of TensorFlow's enumeration that is called as `kind`; else `value`."""
    is_theirs = (isinstance(value, enum.Enum)
                 and type(value).__name__.removesuffix("V2") == kind.__name__)
    return value.name if is_theirs else value


class ReduceOp(_NamedInEitherCase):
    """SUM or MEAN. ReduceOp("sum") reads a text."""

    SUM = "SUM"
    MEAN = "MEAN"


class CommunicationImplementation(_NamedInEitherCase):
    """RING runs a group's reductions as a ring; AUTO and NCCL mean the class's own order."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


class CommunicationOptions:
    """How to reduce. bytes_per_pack: values of a batch are combined into packs of at least as many
    bytes; 0: see num_packs. timeout_seconds: for a whole call in a group; None or 0: the timeout of
    join(). implementation: a CommunicationImplementation or its name. reproducible: whether a
    group's reductions are, as in Group's collectives; where a rank has several components, their
    sum is its value."""

    def __init__(self, bytes_per_pack: SupportsIndex = 0, timeout_seconds: float | None = None,
                 implementation: CommunicationImplementation | str =
                 CommunicationImplementation.AUTO, reproducible: bool | None = None) -> None:
        self.bytes_per_pack = bytes_per_pack
        self.timeout_seconds = timeout_seconds
        self.implementation = CommunicationImplementation(implementation)
        self.reproducible = reproducible
        check(library.tutti_communication_options_check(self._view()))

    def _view(self):
        has_timeout = self.timeout_seconds is not None
        return ctypes.byref(_Options(
            whole(self.bytes_per_pack, "bytes_per_pack", *INT64), has_timeout,
            _real(self.timeout_seconds, "timeout_seconds") if has_timeout else 0,
            self.implementation.value.encode(), choice_of(self.reproducible, invalid=invalid)))

    def merge(self, options: "CommunicationOptions | None") -> "CommunicationOptions":
        """These options, with those of `options` that are not the default in their place."""
        if options is None:
            return self
        auto = CommunicationImplementation.AUTO
        seconds = options.timeout_seconds
        if seconds is None:
            seconds = self.timeout_seconds
        return CommunicationOptions(
            options.bytes_per_pack or self.bytes_per_pack,
            None if seconds is None else float(seconds),
            self.implementation if options.implementation is auto else options.implementation,
            self.reproducible if options.reproducible is None else options.reproducible)

    def __repr__(self):
        return (f"CommunicationOptions({self.bytes_per_pack}, {self.timeout_seconds}, "
                f"{self.implementation.name}, {self.reproducible})")


def _real(number, what):
    try:
        return float(number)
    except (TypeError, ValueError):
        raise invalid(f"{what} {number!r} is no number of seconds") from None


class _Distributed:
    def __init__(self, values: Iterable[_Value], devices: Iterable[str] | None = None) -> None:
        self.values = tuple(values)
        self.devices = (tuple(f"/device:CPU:{i}" for i in range(len(self.values)))
                        if devices is None else tuple(devices))
        if len(self.devices) != len(self.values):
            raise invalid(f"{len(self.values)} values need as many devices, "
                          f"but {len(self.devices)} are given")

    def __repr__(self):
        parts = ", ".join(f"{device}: {value!r}"
                          for value, device in zip(self.values, self.devices))
        return f"{type(self).__name__}({{{parts}}})"


class PerReplica(_Distributed):
    """One value for each replica of this process, which may differ. devices: their names, such as
    "GPU:0" or "/job:worker/task:1/device:GPU:0"; None: /device:CPU:0, /device:CPU:1 and so on."""


class Mirrored(_Distributed):
    """Equal values on several devices of this process, which share no memory."""

    @property
    def primary(self) -> _Value:
        """The value on the first device."""
        return self.values[0]


def _distributed(value, what="per_replica_value"):
    """A value as PerReplica or Mirrored of what its components hold: one that is on no devices is
    of one replica."""
    if isinstance(value, _Distributed):
        values = [held(one, f"{what}, value {i}") for i, one in enumerate(value.values)]
        if all(map(operator.is_, values, value.values)):
            return value
        return (Mirrored if isinstance(value, Mirrored) else PerReplica)(values, value.devices)
    if isinstance(value, (list, tuple, dict)) or value is None:
        raise invalid(f"{what}: Cannot convert the {type(value).__name__} to a PerReplica object; "
                      "pass PerReplica(values)")
    return PerReplica([held(value, what)])


def _devices_of(destinations):
    """The names of the devices of destinations."""
    if isinstance(destinations, _Distributed):
        return destinations.devices
    if isinstance(destinations, str):
        if not destinations:
            raise invalid("destinations can not be empty")
        return (destinations,)
    if isinstance(destinations, (list, tuple)) and all(isinstance(d, str) for d in destinations):
        return tuple(destinations)
    if _foreign.is_value(destinations):
        return ("/device:CPU:0",)
    raise invalid("destinations must be one of a PerReplica or Mirrored object, an array, a "
                  f"device string or a list of such, not {destinations!r}")


def _devices_view(destinations):
    names = _devices_of(destinations)
    return _Devices((c_char_p * len(names))(*(name.encode() for name in names)), len(names))


def _reduction_view(views, value, destinations, what="per_replica_value"):
    components = [views.component(one, f"{what}, value {i}", device)
                  for i, (one, device) in enumerate(zip(value.values, value.devices))]
    return _Reduction((Component * len(components))(*components), len(components),
                      _devices_view(destinations))


def _unwrapped(components):
    """A result: Mirrored, its value where it is on one device, None where it is on none."""
    if len(components) > 1:
        return Mirrored(*zip(*components))
    return components[0][0] if components else None


def _pairs_of(value_destination_pairs):
    """The pairs with values as PerReplica or Mirrored. Errors as TensorFlow's."""
    if not isinstance(value_destination_pairs, (list, tuple)):
        raise invalid("`value_destination_pairs` should be a list or tuple")
    for pair in value_destination_pairs:
        if not isinstance(pair, tuple):
            raise invalid("Each element of `value_destination_pairs` should be a tuple.")
        if len(pair) != 2:
            raise invalid("Each element of `value_destination_pairs` should be a tuple of size 2.")
    return [(_distributed(value, _pair_name(i)), destinations)
            for i, (value, destinations) in enumerate(value_destination_pairs)]


def _pair_name(index):
    return f"value_destination_pairs[{index}]"


def _like(value):
    """What a result of the value is to be like: its first component."""
    return value.values[0] if value.values else None


class CrossDeviceOps(Unique):
    """What the classes have in common; see there."""

    _instead = "pass the object itself, or make another one with the same arguments"

    def __init__(self, create: Any, argument: Any, group: Group | None) -> None:
        if group is not None and not isinstance(group, Group):
            raise invalid(f"group {group!r} is no tutti.Group")
        self._group = group
        owner = group and group._handle
        self._handle = _frameworks.Made(create, library.tutti_cross_device_free, argument,
                                        owner and owner.pointer, keep=owner)

    def _call(self, views, function, *arguments):
        """Calls a function of C that returns results, such that Ctrl-C ends the wait for others.
        The call goes on then: it keeps what the arguments point to, which `views` holds."""
        def call(_kept=views):
            return Results(function, self._handle.pointer, *arguments)

        return call() if self._group is None else interruptible(call)

    def reduce(self, reduce_op: ReduceOp | str, per_replica_value: PerReplica | Mirrored | _Value,
               destinations: _Destinations,
               options: CommunicationOptions | None = None) -> Mirrored | _Value | None:
        """The sum or mean of the components of a value, of all ranks in a group, on every device of
        `destinations`.

        destinations: a PerReplica or Mirrored object, an array, a device string or a list of such;
        of a value, only its devices matter. A device without a task is one of this process, in a
        group of each; "/job:worker/task:2/device:CPU:0" is on rank 2.

        Returns a Mirrored object; the value itself where it is on one device; None where this
        process has none. Every copy has the same bits, in every run. Floats of 16 bits are summed
        in f32 and rounded once; integers wrap, and have no MEAN.

        Of IndexedSlices the rows of all are put one after the other, and MEAN divides them.
        """
        views = Views()
        with told_to_others(self._group):
            value = _distributed(per_replica_value)
            view = _reduction_view(views, value, destinations)
            arguments = _op_name(reduce_op), ctypes.byref(view), _options_view(options)
        results = self._call(views, library.tutti_cross_device_reduce, *arguments)
        return _unwrapped(results.components(0, _like(value)))

    def batch_reduce(self, reduce_op: ReduceOp | str,
                     value_destination_pairs: Sequence[tuple[Any, _Destinations]],
                     options: CommunicationOptions | None = None
                     ) -> list[Mirrored | _Value | None]:
        """Like reduce() for each pair of a list; returns the list of results. In a group the values
        of a dtype are reduced in packs."""
        views = Views()
        with told_to_others(self._group):
            pairs = _pairs_of(value_destination_pairs)
            reductions = [_reduction_view(views, *pair, _pair_name(i))
                          for i, pair in enumerate(pairs)]
            arguments = (_op_name(reduce_op), (_Reduction * len(pairs))(*reductions), len(pairs),
                         _options_view(options))
        results = self._call(views, library.tutti_cross_device_batch_reduce, *arguments)
        return [_unwrapped(results.components(i, _like(value)))
                for i, (value, _) in enumerate(pairs)]

    def broadcast(self, tensor: _Value, destinations: _Destinations, root: SupportsIndex = 0,
                  options: CommunicationOptions | None = None) -> Mirrored | _Value | None:
        """Copies of the tensor on every device of `destinations`; in a group, of that of rank
        `root`, where the others pass a tensor of the same shape and dtype. Returns as reduce()."""
        views = Views()
        with told_to_others(self._group):
            tensor = held(tensor, "tensor")
            component = views.component(tensor, "tensor")
            devices = _devices_view(destinations)
            arguments = (ctypes.byref(component), ctypes.byref(devices),
                         whole(root, "root", *INT32), _options_view(options))
        results = self._call(views, library.tutti_cross_device_broadcast, *arguments)
        return _unwrapped(results.components(0, tensor))


def _op_name(reduce_op):
    return ReduceOp(reduce_op).value.encode()


def _options_view(options):
    if options is None:
        return None
    if isinstance(options, CommunicationOptions):
        return options._view()
    fields = ("bytes_per_pack", "timeout_seconds", "implementation")  # TensorFlow's have these.
    if not all(hasattr(options, field) for field in fields):
        raise invalid(f"options {options!r} are no CommunicationOptions")
    return CommunicationOptions(*(getattr(options, field) for field in fields))._view()


class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Sums within each group of devices, then of the groups' sums, then copies back. The groups are
    the hosts of the ranks; in one process the hosts (tasks) of the devices, or two halves of those
    of one host, the first the larger. With num_packs=None tensors are not packed."""

    def __init__(self, num_packs: SupportsIndex | None = 1, group: Group | None = None) -> None:
        packs = None if num_packs is None else c_int64(whole(num_packs, "num_packs", *INT64))
        super().__init__(library.tutti_hierarchical_copy_create,
                         None if packs is None else ctypes.byref(packs), group)


class ReductionToOneDevice(CrossDeviceOps):
    """Sums on one device, from left to right: reduce_to_device, else the first destination."""

    def __init__(self, reduce_to_device: str | None = None, group: Group | None = None) -> None:
        device = None if reduce_to_device is None else str(reduce_to_device).encode()
        super().__init__(library.tutti_reduction_to_one_device_create, device, group)
