"""burn's collective API (burn-collective): peers, each a thread of this process with a device,
reduce and broadcast tensors, within the process and among processes.

    from tutti import burn
    config = burn.CollectiveConfig().with_num_devices(2)

    def worker(peer):  # On a thread for each peer.
        burn.register(peer, "cpu", config)
        mean = burn.all_reduce(peer, gradient, burn.ReduceOperation.Mean)
        burn.finish_collective(peer)

The functions act on one Collective of the process; make others for groups of your own. Every error
is a CollectiveError of burn's name. docs/burn.md says what differs.
"""

import contextlib
import ctypes
import enum
import json
import re
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from tutti import _frameworks
from tutti._error import Error, invalid, text_of
from tutti._group import Group
from tutti._handle import Unique, leave_at_exit
from tutti._tensor import choice_of, strategy_text
from tutti._values import Results, TensorView, views_of
from tutti._waiting import interruptible
from tutti.distribute import _api

_NOT_SET = -2**63  # A number of a config.
Strategy = str | dict[str, int]  # "tree:2", or {"Tree": 2}.


class CollectiveError(Error):
    """Base of burn's errors, which are classes of this module: InvalidConfig and so on. `name` is
    burn's name, such as "Global(PeerLost(3))". Those about wrong arguments are ValueErrors, too."""

    @property
    def name(self) -> str:
        """burn's name of the error."""
        return self.message.split(":", 1)[0]


class InvalidConfig(CollectiveError, ValueError):
    """The config cannot work."""


class MultipleRegister(CollectiveError):
    """The peer is registered already."""


class RegisterParamsMismatch(CollectiveError, ValueError):
    """Another config than the first peer's, or more peers than num_devices."""


class MultipleUnregister(CollectiveError):
    """The peer is not registered, or has finished already."""


class RegisterNotFirstOperation(CollectiveError):
    """The peer, or the root of a reduce, is not registered."""


class AllReduceShapeMismatch(CollectiveError, ValueError):
    """Peers give all_reduce() other shapes or dtypes."""


class AllReduceOperationMismatch(CollectiveError, ValueError):
    """Peers give all_reduce() other operations."""


class ReduceShapeMismatch(CollectiveError, ValueError):
    """Peers give reduce() other shapes or dtypes."""


class ReduceOperationMismatch(CollectiveError, ValueError):
    """Peers give reduce() other operations."""


class ReduceRootMismatch(CollectiveError, ValueError):
    """Peers give reduce() other roots."""


class BroadcastNoTensor(CollectiveError, ValueError):
    """No peer gives broadcast() a tensor."""


class BroadcastMultipleTensors(CollectiveError, ValueError):
    """Several peers give broadcast() a tensor."""


class LocalServerMissing(CollectiveError):
    """The collective was reset meanwhile."""


class Other(CollectiveError):
    """Peers that do not come in time, a peer in two calls at once, and wrong arguments,
    for which it is also a ValueError."""


class Global(CollectiveError):
    """A failure between nodes; Global(PeerLost(3)) where node 3 is gone."""


class _WrongArgument(Other, ValueError):
    """Other with the code INVALID_ARGUMENT."""


_ERRORS = {kind.__name__: kind for kind in (
    InvalidConfig, MultipleRegister, RegisterParamsMismatch, MultipleUnregister,
    RegisterNotFirstOperation, AllReduceShapeMismatch, AllReduceOperationMismatch,
    ReduceShapeMismatch, ReduceOperationMismatch, ReduceRootMismatch, BroadcastNoTensor,
    BroadcastMultipleTensors, LocalServerMissing, Other, Global)}
__all__ = ["AllReduceStrategy", "Collective", "CollectiveConfig", "CollectiveError",
           "ReduceOperation", "all_reduce", "broadcast", "finish_collective", "reduce", "register",
           "reset_collective", *_ERRORS]


class _Config(ctypes.Structure):
    _fields_ = [("num_devices", c_int64), ("local_all_reduce_strategy", c_char_p),
                ("local_reduce_strategy", c_char_p), ("local_broadcast_strategy", c_char_p),
                ("num_nodes", c_int64), ("global_address", c_char_p), ("node_address", c_char_p),
                ("data_service_port", c_int64), ("global_all_reduce_strategy", c_char_p),
                ("global_reduce_strategy", c_char_p), ("global_broadcast_strategy", c_char_p)]


_CONFIG, _VIEWS, _RESULTS = POINTER(_Config), POINTER(TensorView), POINTER(c_void_p)
_frameworks.declare({
    "tutti_burn_config_check": (c_int, [_CONFIG]),
    "tutti_burn_create": (c_int, [c_void_p, c_int32, c_int32, POINTER(c_void_p)]),
    "tutti_burn_free": (None, [c_void_p]),
    "tutti_burn_register": (c_int, [c_void_p, c_uint32, _CONFIG]),
    "tutti_burn_all_reduce": (c_int, [c_void_p, c_uint32, _VIEWS, c_char_p, _RESULTS]),
    "tutti_burn_reduce": (c_int, [c_void_p, c_uint32, _VIEWS, c_char_p, c_uint32, _RESULTS]),
    "tutti_burn_broadcast": (c_int, [c_void_p, c_uint32, _VIEWS, _RESULTS]),
    "tutti_burn_refuse": (c_int, [c_void_p, c_uint32, c_char_p]),
    "tutti_burn_finish": (c_int, [c_void_p, c_uint32]),
    "tutti_burn_reset": (c_int, [c_void_p]),
    "tutti_burn_leave_job": (None, [c_void_p]),
})
_library = _frameworks.library


@contextlib.contextmanager
def _named_errors():
    """Gives an error of the library its class here."""
    try:
        yield
    except Error as error:
        raise _named(error.code, error.message, error.rank, error.host) from None


def _named(code, message, rank=None, host=None):
    """The class of an error whose message begins with burn's name; another one is Other."""
    kind = _ERRORS.get(message.split(":", 1)[0].split("(", 1)[0])
    if kind is None:
        kind, message = Other, f"Other: {message}"
    if kind is Other and code == "INVALID_ARGUMENT":
        kind = _WrongArgument
    return kind(code, message, rank, host)


def _invalid_config(why):
    return InvalidConfig("INVALID_ARGUMENT", f"InvalidConfig: {why}")


class ReduceOperation(enum.Enum):
    """Sum, or the mean over all peers. Names are accepted as well, in any case."""
    Sum = "SUM"
    Mean = "MEAN"


class AllReduceStrategy(str):
    """Centralized, Tree(arity) or Ring. It is a text, such as "tree:2", which does as well. Made of
    another text than these, and of an arity that is not 1 to 2**24 - 1, it raises InvalidConfig."""

    __slots__ = ()
    Centralized: "AllReduceStrategy"
    Ring: "AllReduceStrategy"

    def __new__(cls, text: str) -> "AllReduceStrategy":
        tree = re.fullmatch("tree:([1-9][0-9]*)", text)
        if text not in ("centralized", "ring") and not (tree and int(tree[1]) < 2**24):
            raise _invalid_config(f"{text!r} is none of centralized, tree:N with N from 1 to "
                                  f"{2**24 - 1}, ring")
        return super().__new__(cls, text)

    @classmethod
    def Tree(cls, arity: int) -> "AllReduceStrategy":
        """Each peer of the tree has `arity` children."""
        return cls(f"tree:{_api.whole(arity, 'arity')}")

    @classmethod
    def from_json(cls, text: str | bytes) -> "AllReduceStrategy":
        """Reads what serde writes for burn's enumeration: "Ring", or {"Tree":2}. InvalidConfig:
        another text."""
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and list(value) == ["Tree"] and type(value["Tree"]) is int:
            return cls.Tree(value["Tree"])
        if value not in ("Centralized", "Ring"):
            raise _invalid_config(f'{text!r} is none of "Centralized", {{"Tree":N}}, "Ring"')
        return cls(value.lower())

    def to_json(self) -> str:
        """What serde writes for burn's enumeration."""
        return json.dumps({"Tree": self.arity} if self.arity else self.capitalize(),
                          separators=(",", ":"))

    @property
    def arity(self) -> int | None:
        """How many children a node of a Tree has; None for the others."""
        return int(self[len("tree:"):]) if self.startswith("tree:") else None

    def __repr__(self) -> str:
        name = f"Tree({self.arity})" if self.arity else self.capitalize()
        return f"AllReduceStrategy.{name}"


AllReduceStrategy.Centralized = AllReduceStrategy("centralized")
AllReduceStrategy.Ring = AllReduceStrategy("ring")


class CollectiveConfig:
    """How the peers work together; the same for all of a process. num_devices: peers of this
    process. The local strategies are orders of association, the global ones move data between
    processes. num_nodes, global_address, node_address and data_service_port must be given all or
    none: with them, num_nodes processes work together."""

    _DEFAULTS = {"num_devices": 1, "local_all_reduce_strategy": "tree:2",
                 "local_reduce_strategy": "tree:2", "local_broadcast_strategy": "tree:2",
                 "num_nodes": None, "global_address": None, "node_address": None,
                 "data_service_port": None, "global_all_reduce_strategy": "ring",
                 "global_reduce_strategy": "tree:2", "global_broadcast_strategy": "tree:2"}

    num_devices: int
    local_all_reduce_strategy: Strategy
    local_reduce_strategy: Strategy
    local_broadcast_strategy: Strategy
    num_nodes: int | None
    global_address: str | None
    node_address: str | None
    data_service_port: int | None
    global_all_reduce_strategy: Strategy
    global_reduce_strategy: Strategy
    global_broadcast_strategy: Strategy

    def __init__(self, **fields: Any) -> None:
        for name in fields:
            if name not in self._DEFAULTS:
                raise TypeError(f"{name!r} is no field; these are: {', '.join(self._DEFAULTS)}")
        self.__dict__["_fields"] = {
            name: _strategy_of(value) if name.endswith("strategy") else value
            for name, value in {**self._DEFAULTS, **fields}.items()}

    def __getattr__(self, name: str) -> Any:
        """A field, or with_<field>(value): a copy with another value."""
        fields = self.__dict__.get("_fields", {})
        if name in fields:
            return fields[name]
        field = name.removeprefix("with_")
        if name.startswith("with_") and field in fields:
            return lambda value: CollectiveConfig(**{**fields, field: value})
        raise AttributeError(f"CollectiveConfig has no {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._DEFAULTS:
            raise AttributeError(f"{name!r} is no field; these are: {', '.join(self._DEFAULTS)}")
        raise AttributeError(f"a config does not change, because peers compare theirs; take the "
                             f"one that with_{name}({value!r}) returns")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectiveConfig) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(tuple(self._fields.items()))

    def __repr__(self) -> str:
        return f"CollectiveConfig({', '.join(f'{k}={v!r}' for k, v in self._fields.items())})"

    def is_valid(self) -> bool:
        """Whether registering with this config can succeed; InvalidConfig says why not."""
        try:
            with _named_errors():
                _frameworks.check(_library.tutti_burn_config_check(self.as_c()))
        except CollectiveError:
            return False
        return True

    def as_c(self) -> Any:
        """The config for C."""
        values = (_as_c(name, value) for name, value in self._fields.items())
        return ctypes.byref(_Config(*values))


def _strategy_of(value):
    """A field as an AllReduceStrategy; what is none stays, to be refused where it is used."""
    with contextlib.suppress(InvalidConfig, TypeError):
        if isinstance(value, dict):
            return AllReduceStrategy.from_json(json.dumps(value))
        return AllReduceStrategy(value)
    return value


def _as_c(name, value):
    """A field of a config for C."""
    if name.endswith("strategy"):
        try:
            return strategy_text(value)
        except Error as error:
            raise _invalid_config(f"{name}: {error.message}") from None
    if name.endswith("address"):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name}={value!r} must be a text, or None")
        return None if value is None else value.encode()
    if value is None:
        return _NOT_SET
    try:
        number = _api.whole(value, name)
    except ValueError as error:
        raise _invalid_config(error) from None
    if number < 0:
        raise _invalid_config(f"{name}={number} is below 0; None is for what is not set")
    return number


def _peer(peer, argument="peer"):
    number = _api.whole(peer, argument)
    if not 0 <= number < 2**32:
        raise _named("INVALID_ARGUMENT", f"{argument}={number} must be 0 to {2**32 - 1}")
    return number


def _operation(op):
    if isinstance(op, ReduceOperation):
        return op.value.encode()
    if isinstance(op, str):
        return op.encode()
    raise TypeError(f"op={op!r} must be a ReduceOperation or its name")


def _tensor(tensor):
    with _named_errors():
        if tensor is None:
            raise invalid("None is no tensor; only broadcast() takes it")
        return _api.tensor_of(tensor, "tensor")


class Collective(Unique):
    """The peers of a process. group: a tutti.Group of the processes; None: as the config says, and
    this process alone without global parameters. timeout: seconds to wait for other peers, 30
    unless given. reproducible: whether reductions among the processes are, as in tutti.Group's
    collectives; the sum of a process's peers is its value. Its methods are the functions of this
    module."""

    _instead = "pass the object itself: its peers are those of this process"

    def __init__(self, group: Group | None = None, timeout: float | None = None,
                 reproducible: bool | None = None) -> None:
        if group is not None and not isinstance(group, Group):
            raise TypeError(f"group={group!r} must be a tutti.Group")
        choice = choice_of(
            reproducible, invalid=lambda message: _named("INVALID_ARGUMENT", message))
        owner = group and group._handle
        self._handle = _frameworks.Made(_library.tutti_burn_create, _library.tutti_burn_free,
                                   owner and owner.pointer, _api.milliseconds(timeout, 0),
                                   choice, keep=owner)
        leave_at_exit(self._handle, _library.tutti_burn_leave_job)

    def register(self, peer: int, device: str, config: CollectiveConfig) -> None:
        """Registers a peer, which must come first, and waits for the others. device: "cpu" or
        "cpu:N"; tensors of other devices are not supported yet."""
        if not isinstance(device, str) or device.split(":")[0] != "cpu":
            raise ValueError(f'device={device!r} must be "cpu" or "cpu:N"; move tensors there')
        if not isinstance(config, CollectiveConfig):
            raise TypeError(f"config={config!r} must be a CollectiveConfig")
        self._check(_library.tutti_burn_register, _peer(peer), config.as_c())

    def all_reduce(self, peer: int, tensor: Any,
                   op: ReduceOperation | str = ReduceOperation.Sum) -> Any:
        """The reduction over all peers, as a new array."""
        return self._run(_library.tutti_burn_all_reduce, peer,
                         lambda: (_tensor(tensor), _operation(op)))

    def reduce(self, peer: int, tensor: Any, op: ReduceOperation | str, root: int) -> Any:
        """The same for the peer `root`; None for the others."""
        return self._run(_library.tutti_burn_reduce, peer,
                         lambda: (_tensor(tensor), _operation(op), _peer(root, "root")))

    def broadcast(self, peer: int, tensor: Any = None) -> Any:
        """The tensor of the one peer that gives one, as a new array."""
        return self._run(_library.tutti_burn_broadcast, peer,
                         lambda: (None if tensor is None else _tensor(tensor),))

    def finish_collective(self, peer: int) -> None:
        """Unregisters a peer."""
        self._check(_library.tutti_burn_finish, _peer(peer))

    def reset_collective(self) -> None:
        """Forgets all peers; what waits for others raises LocalServerMissing."""
        self._check(_library.tutti_burn_reset)

    def _check(self, function, *arguments):
        with _named_errors():
            interruptible(lambda: _frameworks.check(function(self._handle.pointer, *arguments)))

    def _run(self, function, peer, read):
        """Calls a function with the tensor and the arguments that read() returns. What it raises
        is reported to the other peers, whose call fails as well, so that none is a call ahead."""
        peer = _peer(peer)
        try:
            tensor, *arguments = read()
        except BaseException as error:
            text = text_of(error).removeprefix("Other: ").encode(errors="replace")
            interruptible(lambda: _library.tutti_burn_refuse(self._handle.pointer, peer, text))
            raise
        views = None if tensor is None else views_of([tensor])
        with _named_errors():
            results = interruptible(lambda: Results(function, self._handle.pointer, peer, views,
                                                     *arguments))
        return results.tensor(0, tensor and tensor.x) if len(results) else None


_process = Collective()  # As in burn, of which a process has one.
register = _process.register
all_reduce = _process.all_reduce
reduce = _process.reduce
broadcast = _process.broadcast
finish_collective = _process.finish_collective
reset_collective = _process.reset_collective
