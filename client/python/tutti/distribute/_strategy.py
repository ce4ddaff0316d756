"""Strategies: replicas of one program in step."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import c_int64
from typing import Any

import numpy

from tutti import _traced
from tutti._frameworks import check, error_of, told_to_others
from tutti._group import Group
from tutti._handle import Unique, leave_at_exit
from tutti._values import IndexedSlices, views_of
from tutti._waiting import interruptible
from tutti.cross_device import Mirrored
from tutti.distribute import _api, _data, _discovery, _nest
from tutti.distribute._topology import DeviceAssignment, Topology
from tutti.distribute._values import (CommunicationOptions, InputContext, PerReplica, ReduceOp,
                                      ValueContext, name_of)
from tutti.distribute._variable import Variable
from tutti.distribute.cluster_resolver import ClusterResolver, default_resolver, resolver_of

_LOCAL = (PerReplica, Mirrored, Variable)  # Have a value of each replica of this process.
_strategies = weakref.WeakValueDictionary()  # By handle, for those of a thread's context.


def _axes_of(axis):
    """The axes as C takes them, and how many they are; None for all replicas' values as a whole."""
    if axis is None:
        return None, 0
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return (c_int64 * len(axes))(*(_api.whole(one, "axis") for one in axes)), len(axes)


def _refuse_slices(value):
    """gather() has no meaning for them, as in TensorFlow."""
    for leaf in _nest.flatten(value):
        for part in leaf.values if isinstance(leaf, (PerReplica, Mirrored)) else (leaf,):
            if isinstance(part, IndexedSlices):
                raise NotImplementedError("gather() of IndexedSlices is not supported; gather "
                                          "their values and indices, or make an array of them")


class ReplicaContext(Unique):
    """What the function of a replica may ask and do. Every replica must make the same calls, in
    the same order: what differs raises on all of them."""

    _instead = "call get_replica_context() in the replica's function"

    def __init__(self, strategy: Strategy, handle: int, run: _Run) -> None:
        self.strategy = strategy
        self._handle = handle
        self._run = run
        self.index = _api.function("replica_index")(handle)

    @property
    def replica_id_in_sync_group(self) -> int:
        """This replica's number, from 0."""
        return self.strategy.local_replica_ids[self.index]

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas of all processes."""
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of this replica's logical devices."""
        return tuple(self.strategy.devices[self.index])

    def all_reduce(self, reduce_op: ReduceOp | str, value: Any,
                   options: CommunicationOptions | None = None) -> Any:
        """The value, which may be nested, reduced over all replicas: in new arrays."""
        return self._collective("replica_all_reduce", value, options,
                                lambda: name_of(reduce_op, ReduceOp, "reduce_op"))

    def all_gather(self, value: Any, axis: int,
                   options: CommunicationOptions | None = None) -> Any:
        """The values of all replicas, which may be nested, one behind the other along `axis`."""
        def read_axis():
            _refuse_slices(value)
            return _api.whole(axis, "axis")

        return self._collective("replica_all_gather", value, options, read_axis)

    def _require_own_function(self, call):
        if self._handle is None or _api.function("current_replica")() != self._handle:
            raise error_of("FAILED_PRECONDITION", f"ReplicaContext.{call} was called outside of "
                           "the replica's function; call it there, and on its thread")

    def end(self) -> None:
        """The replica's function has returned."""
        self._handle = None

    def _collective(self, name, value, options, read_argument):
        self._require_own_function(name.removeprefix("replica_") + "()")
        with _api.telling("refuse", self.strategy.handle.pointer):
            argument = read_argument()
            tensors = [_api.tensor_of(leaf) for leaf in _nest.flatten(value)]
            call = _api.call_of(_nest.describe(value), options)
        results = _api.results_of(name, self._handle, argument, views_of(tensors), len(tensors),
                               call)
        return _nest.pack(value, (results.tensor(i, tensor.x) for i, tensor in enumerate(tensors)))

    def merge_call(self, merge_fn: Callable[..., Any], args: Sequence[Any] = (),
                   kwargs: dict[str, Any] | None = None) -> Any:
        """Calls merge_fn(strategy, *args, **kwargs) once in this process, between its replicas:
        arguments that differ are PerReplica. Returns each replica's part of what it returns."""
        self._require_own_function("merge_call()")
        kwargs = kwargs or {}
        name = f"merge_call({getattr(merge_fn, '__name__', merge_fn)})"
        return self._run.merge(self, name, merge_fn, (tuple(args), kwargs))


class _Run:
    """One call of Strategy.run(): what its replicas return and raise, and where they merge."""

    def __init__(self, strategy, function, args, kwargs):
        self.strategy = strategy
        self.results = [None] * len(strategy.local_replica_ids)
        self._call = (function, args, kwargs)
        self._contexts = [contextvars.copy_context() for _ in self.results]
        self._errors = []  # Of replicas and merges, the first one first.
        self._arguments = [None] * len(self.results)
        self._merged = None

    def replica_main(self, _, handle):
        """The function that the library calls on each replica's thread."""
        replica = ReplicaContext(self.strategy, handle, self)
        self.strategy.replicas_by_handle[handle] = replica
        function, args, kwargs = self._call
        try:
            args, kwargs = _select(args, replica.index), _select(kwargs, replica.index)
            if len(self.results) > 1:  # On a thread of its own.
                function = functools.partial(self._contexts[replica.index].run, function)
            self.results[replica.index] = function(*args, **kwargs)
        except BaseException as error:  # Raised again by Strategy.run().
            self._errors.append(error)
            return 1
        finally:
            del self.strategy.replicas_by_handle[handle]
            replica.end()
        return 0

    def merge(self, replica, name, function, arguments):
        """merge_call() of one replica."""
        self._arguments[replica.index] = arguments

        def merge_main(_):
            try:
                args, kwargs = _nest.regroup(list(self._arguments), _join)
                self._merged = function(self.strategy, *args, **kwargs)
            except BaseException as error:  # Raised again by Strategy.run().
                self._errors.append(error)
                return 1
            return 0

        check(_api.function("replica_merge")(replica._handle, name.encode(),
                                             _api.MergeFunction(merge_main), None))
        return _select(self._merged, replica.index)

    def raise_first(self):
        """Raises what was raised first, if anything was."""
        if self._errors:
            raise self._errors[0]


def _select(tree, index):
    """The structure with each PerReplica replaced by its value for one replica."""
    return _nest.map_leaves(
        lambda leaf: leaf.values[index] if isinstance(leaf, PerReplica) else leaf, tree)


def _join(values):
    """The replicas' values as one: the value itself where it is the same object for all."""
    return values[0] if all(value is values[0] for value in values) else PerReplica(values)


class StrategyExtended(Unique):
    """Less common parts of a strategy."""

    _instead = "it is strategy.extended of its strategy alone"

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._devices = strategy.devices
        self._logical = 0

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The names of the devices of this process's replicas: of the current logical device."""
        return tuple(devices[self._logical] for devices in self._devices)

    parameter_devices = worker_devices

    @contextlib.contextmanager
    def experimental_logical_device(self, logical_device_id: int) -> Iterator[None]:
        """Makes worker_devices tell this logical device. ValueError: out of range."""
        count = len(self._devices[0])
        if not 0 <= _api.whole(logical_device_id, "logical_device_id") < count:
            raise ValueError(f"logical_device_id={logical_device_id} is out of range: a replica "
                             f"has {count} logical devices, from 0")
        before, self._logical = self._logical, logical_device_id
        try:
            yield
        finally:
            self._logical = before

    def reduce_to(self, reduce_op: ReduceOp | str, value: Any, destinations: Any = None,
                  options: CommunicationOptions | None = None) -> Any:
        """As Strategy.reduce(). Every process has the result, so `destinations` changes
        nothing."""
        del destinations
        return self._strategy.reduce(reduce_op, value, axis=None, options=options)

    def batch_reduce_to(self, reduce_op: ReduceOp | str,
                        value_destination_pairs: Sequence[tuple[Any, Any]],
                        options: CommunicationOptions | None = None) -> list[Any]:
        """As reduce_to() of each pair's value, at the price of few messages."""
        return self._strategy.reduce(reduce_op, [value for value, _ in value_destination_pairs],
                                     axis=None, options=options)

    def broadcast_to(self, tensor: Any, destinations: Any = None) -> Any:
        """The tensor, of which every replica of this process gets the same."""
        del destinations
        return tensor

    def update(self, var: Variable, fn: Callable[..., Any], args: Sequence[Any] = (),
               kwargs: dict[str, Any] | None = None, group: bool = True) -> PerReplica | None:
        """Calls fn(copy, *args, **kwargs) for the variable's copy of each replica of this process,
        with each PerReplica replaced by its value; a result other than None is assigned. Returns
        the results if `group` is false."""
        kwargs = kwargs or {}
        self._strategy.require_cross_replica("update()")
        copies = var.values
        results = [fn(copy, *_select(tuple(args), i), **_select(kwargs, i))
                   for i, copy in enumerate(copies)]
        var.assign(PerReplica([copy if result is None else result
                               for copy, result in zip(copies, results)]))
        return None if group else PerReplica(results)

    def call_for_each_replica(self, fn: Callable[..., Any], args: Sequence[Any] = (),
                              kwargs: dict[str, Any] | None = None) -> Any:
        """As Strategy.run()."""
        return self._strategy.run(fn, args, kwargs)

    def read_var(self, v: Variable) -> Any:
        """As v.value()."""
        return v.value()

    def colocate_vars_with(self, colocate_with_variable: Variable
                           ) -> contextlib.AbstractContextManager[None]:
        """A context without effect: variables have no devices. ValueError: not a variable of this
        strategy."""
        if getattr(colocate_with_variable, "strategy", None) is not self._strategy:
            raise ValueError(f"colocate_with_variable={colocate_with_variable!r} must be a "
                             "Variable that was made in the scope of this strategy")
        return contextlib.nullcontext()

    def non_slot_devices(self, var_list: Any) -> tuple[str, ...]:
        """worker_devices, whatever the variables."""
        del var_list
        return self.worker_devices

    def value_container(self, value: Any) -> Any:
        """The value itself."""
        return value


class Strategy(Unique):
    """Replicas of one program in step, as tf.distribute.TPUStrategy has them. Where TensorFlow
    controls all devices from one process, here every process creates the strategy and makes the
    same calls on its own replicas, of which it mostly has one.

    cluster_resolver: who takes part; any object with cluster_spec(), task_type and task_id. None:
    TF_CONFIG if it is set, else what `tutti run` has set, else this process alone. All processes
    join a job through their node's agent, and the call waits for all of them.

    device_assignment: gives this process the replicas on the task of its rank.

    local_replicas: without it, the number of replicas of this process. Several run on threads.

    group: a tutti.Group to use instead of joining. job: name of the job to join. timeout: seconds
    for joining, and for each operation. reproducible: whether reductions among the processes are,
    as in Group's collectives, also those of variables; a call's CommunicationOptions count before.
    The sum of a process's replicas is its value.

    Wrong arguments raise ValueError or TypeError, on every rank where all have to take part.
    Failures are tutti.Error: UNAVAILABLE names the process that died.
    """

    num_replicas_in_sync: int
    local_replica_ids: list[int]
    rank: int
    world_size: int
    _instead = ("pass the object itself, or get_strategy() within its scope; another process makes "
                "a strategy of its own")

    def __init__(self, cluster_resolver: Any = None,
                 device_assignment: DeviceAssignment | None = None, *,
                 tpu_cluster_resolver: Any = None,
                 experimental_device_assignment: DeviceAssignment | None = None,
                 local_replicas: int = 1, group: Group | None = None, job: str | None = None,
                 timeout: float | None = None, reproducible: bool | None = None) -> None:
        if group is not None and not isinstance(group, Group):
            raise TypeError(f"group={group!r} must be a tutti.Group")
        self._group = group
        owner = group and group._handle
        given = owner and owner.pointer
        with told_to_others(group):
            self._resolver = resolver_of(cluster_resolver or tpu_cluster_resolver)
            assignment = device_assignment or experimental_device_assignment
            if assignment is not None and not isinstance(assignment, DeviceAssignment):
                raise TypeError(f"device_assignment={assignment!r} must be a DeviceAssignment")
            self._topology = assignment and assignment.topology
            options = _api.to_json({
                "device_assignment": assignment and assignment.options,
                "local_replicas": _api.whole(local_replicas, "local_replicas"), "job": job,
                "timeout_ms": _api.milliseconds(timeout, -1),
                "reproducible": _api.choice(reproducible)})
        self.handle = interruptible(lambda: _api.make(
            "strategy_create", "strategy_free", options,
            self._resolver and self._resolver.handle.pointer, given, keep=owner))
        leave_at_exit(self.handle, _api.function("strategy_leave_job"))
        _strategies[self.handle.pointer] = self
        told = _api.ask("strategy_describe", self.handle.pointer)
        self.num_replicas_in_sync = told["num_replicas_in_sync"]
        self.local_replica_ids = told["local"]
        self.rank, self.world_size = told["rank"], told["world_size"]
        self.devices = told["devices"]
        self.extended = StrategyExtended(self)
        self.replicas_by_handle = {}
        self._resolver = self._resolver or default_resolver(self.rank, self.world_size,
                                                            from_variables=group is None)

    def __repr__(self):
        return (f"<tutti.distribute.Strategy with replicas {self.local_replica_ids} of "
                f"{self.num_replicas_in_sync}>")

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """The resolver that was given, else one that tells what the strategy goes by: TF_CONFIG,
        the variables of `tutti run`, or its processes as workers. A process alone has an empty one,
        with a task_type of None."""
        return self._resolver

    @property
    def topology(self) -> Topology:
        """That of the device assignment; else that of the job, as discover() has it, found at the
        first use, which every process must make."""
        if self._topology is None:
            self._topology = _discovery.topology_of(self, self._group and self._group.hosts)
        return self._topology

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Makes this the current strategy of the thread, in which variables are created. Raises
        tutti.Error, a RuntimeError, within another strategy's scope."""
        check(_api.function("strategy_enter")(self.handle.pointer))
        try:
            with self._warning_of_foreign_variables():
                yield self
        finally:
            check(_api.function("strategy_leave")(self.handle.pointer))

    def _warning_of_foreign_variables(self):
        """A context in which a variable of TensorFlow, or of Keras on it, is warned of: nothing
        keeps those of several processes equal."""
        tensorflow = sys.modules.get("tensorflow")
        if self.num_replicas_in_sync == 1 or not hasattr(tensorflow, "variable_creator_scope"):
            return contextlib.nullcontext()
        return tensorflow.variable_creator_scope(_create_with_warning)

    def require_cross_replica(self, call: str) -> None:
        """Raises within a replica's function, and within the scope of another strategy."""
        check(_api.function("strategy_require_cross_replica")(self.handle.pointer, call.encode()))

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (),
            kwargs: dict[str, Any] | None = None, options: Any = None) -> Any:
        """Calls fn(*args, **kwargs) for each replica of this process, with each PerReplica
        replaced by the replica's value. Returns what it returns, nested as it is: PerReplica for
        several replicas, unless all return the same object. Raises what the first replica that
        failed has raised."""
        del options
        _traced.refuse_call("Strategy.run()")
        if not callable(fn):
            raise TypeError(f"fn={fn!r} is not callable")
        if not isinstance(args, (list, tuple)):
            raise ValueError(f"args={args!r} must be a list or tuple of fn's arguments")
        run = _Run(self, fn, tuple(args), kwargs or {})
        code = _api.function("strategy_run")(self.handle.pointer,
                                             _api.RunFunction(run.replica_main), None)
        run.raise_first()
        check(code)
        return run.results[0] if len(run.results) == 1 else _nest.regroup(run.results, _join)

    def reduce(self, reduce_op: ReduceOp | str, value: Any,
               axis: int | Sequence[int] | None = None,
               options: CommunicationOptions | None = None) -> Any:
        """The value reduced over all replicas and, if `axis` is given (a number or several), over
        these axes of each, along which lengths may differ: MEAN is then that of all elements. The
        value may be nested. Every process gets the result."""
        self.require_cross_replica("reduce()")
        with self.telling():
            op = name_of(reduce_op, ReduceOp, "reduce_op")
            axes, axis_count = _axes_of(axis)
            if self._is_shared(value):
                return _nest.map_leaves(lambda leaf: _reduce_shared(op, leaf), value)
            leaves, call = self._prepare(value, options)
        return self._collective(value, leaves, "strategy_reduce", op,
                                behind=(axes, axis_count, call))

    def telling(self) -> contextlib.AbstractContextManager[None]:
        """A context for checks before a collective: what is raised within makes the other ranks'
        call fail as well, so that none is a call ahead of the others."""
        return _api.telling("refuse", self.handle.pointer)

    def gather(self, value: Any, axis: int, options: CommunicationOptions | None = None) -> Any:
        """The values of all replicas one behind the other along `axis`, along which lengths may
        differ. The value may be nested. Every process gets the result."""
        self.require_cross_replica("gather()")
        with self.telling():
            _refuse_slices(value)
            axis = _api.whole(axis, "axis")
            leaves, call = self._prepare(value, options)
        return self._collective(value, leaves, "strategy_gather", axis, behind=(call,))

    def _is_shared(self, value):
        """Whether a value is the same for several replicas, and not one of each. Among processes,
        which may have different numbers of replicas, it is that of each replica of its process."""
        return self.world_size == 1 and len(self.local_replica_ids) > 1 and not any(
            isinstance(leaf, _LOCAL) for leaf in _nest.flatten(value))

    def _prepare(self, value, options):
        """The tensors of each leaf, and the call for C."""
        leaves = [self._tensors_of(leaf) for leaf in _nest.flatten(value)]
        return leaves, _api.call_of(_nest.describe(value), options)

    def _collective(self, value, leaves, name, argument, behind):
        views = views_of([tensor for leaf in leaves for tensor in leaf])
        results = self.wait(lambda: _api.results_of(name, self.handle.pointer, argument, views,
                                                 len(leaves), *behind))
        return _nest.pack(value, (results.tensor(i, leaf[0].x) for i, leaf in enumerate(leaves)))

    def wait(self, call: Callable[[], Any]) -> Any:
        """call(), which may wait for other processes, so that Ctrl-C ends the wait."""
        return call() if self.world_size == 1 else interruptible(call)

    def _tensors_of(self, leaf):
        """A leaf's tensor of each replica of this process."""
        values = self.experimental_local_results(leaf)
        if len(values) == 1:
            values *= len(self.local_replica_ids)
        if len(values) != len(self.local_replica_ids):
            raise ValueError(f"{leaf!r} has {len(values)} values, but this process has "
                             f"{len(self.local_replica_ids)} replicas; give one for each")
        return [_api.tensor_of(value) for value in values]

    def broadcast_parameters(self, value: Any, root: int = 0,
                             options: CommunicationOptions | None = None) -> Any:
        """Copies the arrays of replica `root`'s process, which may be nested, into those of the
        other processes, so that all begin with the same weights. Returns the value."""
        self.require_cross_replica("broadcast_parameters()")
        with self.telling():
            leaves = [_api.tensor_of(leaf, writable=True, wants_gradient=False)
                      for leaf in _nest.flatten(value)]
            root = _api.whole(root, "root", bits=32)
            call = _api.call_of(_nest.describe(value), options)
        views = views_of(leaves)
        results = self.wait(lambda: _api.results_of("strategy_broadcast", self.handle.pointer, root,
                                                 views, len(leaves), call))
        for i, leaf in enumerate(leaves):
            results.copy_to(i, leaf)
        return value

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """The values of this process's replicas, as a tuple; one for what is no PerReplica."""
        return value.values if isinstance(value, _LOCAL) else (value,)

    def experimental_distribute_values_from_function(
            self, value_fn: Callable[[ValueContext], Any]) -> PerReplica:
        """value_fn(ValueContext) of each replica of this process, as PerReplica."""
        return PerReplica([value_fn(ValueContext(replica, self.num_replicas_in_sync))
                           for replica in self.local_replica_ids])

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Iterable[Any]],
                                          options: Any = None) -> Iterable[Any]:
        """The batches of the iterable dataset_fn(InputContext), one for each replica of this
        process at a time. Every process must iterate: where the data of one ends first, its
        replicas get empty batches until all have ended."""
        del options
        context = InputContext(self.world_size, self.rank, self.num_replicas_in_sync)
        return _data.ReplicaBatches(self, dataset_fn(context))

    def experimental_distribute_dataset(self, dataset: Iterable[Any],
                                        options: Any = None) -> Iterable[Any]:
        """Each replica's rows of an iterable of global batches, which every process iterates. The
        rows go to the replicas in order, equally many to each; the last ones of a batch that they
        do not divide get fewer, or none."""
        del options
        return _data.SharedBatches(self, dataset)

    def experimental_assign_to_logical_device(self, tensor: Any,
                                              logical_device_id: int) -> tuple[str, Any]:
        """(name of the device, tensor). ValueError if a replica has no such logical device."""
        with self.extended.experimental_logical_device(logical_device_id):
            return self._logical_names()[logical_device_id], tensor

    def experimental_split_to_logical_devices(
            self, tensor: Any, partition_dimensions: Sequence[int]) -> list[tuple[str, Any]]:
        """[(name of the device, part)]: the tensor cut into partition_dimensions[i] parts along
        each axis i, a part for each logical device of the replica. ValueError if the numbers do
        not divide the shape, or their product is not the number of devices."""
        source = _api.tensor_of(tensor)
        names = self._logical_names()
        parts = [_api.whole(part, "partition_dimensions") for part in partition_dimensions]
        results = _api.results_of("split", views_of([source]), (c_int64 * len(parts))(*parts),
                               len(parts), len(names))
        return [(name, results.tensor(i, source.x)) for i, name in enumerate(names)]

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> list[tuple[str, Any]]:
        """[(name of the device, tensor)]: for each logical device of the replica."""
        return [(name, tensor) for name in self._logical_names()]

    def _logical_names(self):
        """The devices of the current replica; between the replicas, those of this process's
        first."""
        replica = get_replica_context()
        return self.devices[replica.index if replica else 0]


def _create_with_warning(create, **options):
    """A creator of variables for TensorFlow. A program that has loaded tutti.tensorflow knows."""
    if "tutti.tensorflow" not in sys.modules:
        warnings.warn("a variable of TensorFlow or Keras was made in the scope of a strategy of "
                      "tutti.distribute, which does not keep it equal on all replicas: model.fit() "
                      "would train every process alone; compile the model with "
                      "tutti.tensorflow.DistributedOptimizer, or make a tutti.distribute.Variable",
                      RuntimeWarning, stacklevel=2)
    return create(**options)


def _reduce_shared(op, value):
    """A value that is the same for all replicas, reduced: the rule of TensorFlow."""
    array = numpy.asarray(_api.tensor_of(value).x)
    if array.ndim == 0 and array == 0:
        return value
    if op.upper() == b"MEAN":
        return value
    raise ValueError(f"{value!r} is one value for several replicas, whose SUM is not defined; pass "
                     "a PerReplica, or MEAN")


def has_strategy() -> bool:
    """Whether a strategy's scope was entered on this thread."""
    return _api.function("current_strategy")() is not None


def get_strategy() -> Strategy:
    """The strategy whose scope was entered on this thread. Raises tutti.Error, a RuntimeError, if
    there is none."""
    strategy = _strategies.get(_api.function("current_strategy")())
    if strategy is None:
        raise error_of("FAILED_PRECONDITION", "no strategy's scope was entered on this thread; "
                       "enter one: with strategy.scope():")
    return strategy


def get_replica_context() -> ReplicaContext | None:
    """The ReplicaContext within a replica's function, else None."""
    handle = _api.function("current_replica")()
    return None if handle is None else get_strategy().replicas_by_handle[handle]


def in_cross_replica_context() -> bool:
    """Whether this thread is in a strategy's scope, and not in a replica's function."""
    return has_strategy() and _api.function("current_replica")() is None
