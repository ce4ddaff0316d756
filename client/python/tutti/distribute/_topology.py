"""Devices as points of a mesh, and which of them each replica gets."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy

from tutti.distribute import _api


class DeviceOrderMode(enum.IntEnum):
    """In which order DeviceAssignment.build() hands out devices."""
    AUTO = 0
    RING = 1
    MESH = 2


class Host(NamedTuple):
    """A host of a job: its name, the tasks on it, and its cores, NUMA nodes and GPUs."""
    name: str
    tasks: tuple[int, ...]
    cores: int
    numa_nodes: int
    gpus: int


class Link(NamedTuple):
    """What was measured of the way from one host to another: the time of a small message, in
    microseconds, and the rate, in bytes per second; 0 where it was not."""
    latency_us: float
    bytes_per_s: float


def _lists(numbers, argument):
    """Nested lists of whole numbers."""
    try:
        array = numpy.asarray(numbers)
    except ValueError as error:
        raise ValueError(f"{argument} must be regular: {error}") from None
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{argument}={numbers!r} must be whole numbers")
    return array.tolist()


class Topology:
    """mesh_shape: 4 sizes, x, y, z and core. device_coordinates: [task][device][4]. Raises
    ValueError for points outside of the mesh, or with two devices.

    That of discover() has the hosts along x, in the order of a ring that avoids links which are at
    least twice as slow as the median one, and the devices of each host's tasks along the core.
    hosts: in this order. links: by the names of two hosts, those that were measured. Others have
    none of both."""

    num_tasks: int
    num_tpus_per_task: int
    hosts: tuple[Host, ...]
    links: dict[tuple[str, str], Link]

    def __init__(self, mesh_shape: Any, device_coordinates: Any, device_type: str = "GPU", *,
                 hosts: Iterable[Host] = (),
                 links: Mapping[tuple[str, str], Link] | None = None) -> None:
        self.hosts, self.links = tuple(hosts), dict(links or {})
        self.options = {"mesh_shape": _lists(mesh_shape, "mesh_shape"),
                        "device_coordinates": _lists(device_coordinates, "device_coordinates"),
                        "device_type": device_type}
        told = _api.ask("assignment", _api.to_json({"topology": self.options}))
        self.num_tasks = told["tasks"]
        self.num_tpus_per_task = told["devices_per_task"]
        self._missing = told["missing_devices"]
        self._ring = told["ring_order"]

    @property
    def mesh_shape(self) -> numpy.ndarray[Any, Any]:
        """The 4 sizes, as an array."""
        return numpy.array(self.options["mesh_shape"])

    @property
    def mesh_rank(self) -> int:
        """4."""
        return 4

    @property
    def device_coordinates(self) -> numpy.ndarray[Any, Any]:
        """Coordinates by task and device, as an array."""
        return numpy.array(self.options["device_coordinates"])

    @property
    def missing_devices(self) -> numpy.ndarray[Any, Any]:
        """Coordinates without a device, as an array."""
        return numpy.array(self._missing).reshape(-1, 4)

    def ring_order(self) -> list[tuple[int, int]]:
        """All devices as [task, device], in an order for a ring that goes from task to task as
        seldom as possible."""
        return [tuple(device) for device in self._ring]


class DeviceAssignment:
    """core_assignment: the coordinates [replica][logical core][4]. Raises ValueError for points
    without a device."""

    def __init__(self, topology: Topology, core_assignment: Any) -> None:
        cores = _lists(core_assignment, "core_assignment")
        self._set(topology, _ask(topology, core_assignment=cores))

    @staticmethod
    def build(topology: Topology, computation_shape: Any = None, computation_stride: Any = None,
              num_replicas: int = 1,
              device_order_mode: DeviceOrderMode = DeviceOrderMode.AUTO) -> DeviceAssignment:
        """Packs replicas of computation_shape devices, computation_stride apart, into the mesh.
        Raises ValueError if they do not fit."""
        lists = {name: None if sizes is None else _lists(sizes, name) for name, sizes in
                 (("computation_shape", computation_shape),
                  ("computation_stride", computation_stride))}
        made = object.__new__(DeviceAssignment)
        made._set(topology, _ask(topology, build={
            **lists, "num_replicas": _api.whole(num_replicas, "num_replicas"),
            "device_order_mode": DeviceOrderMode(device_order_mode).name}))
        return made

    def _set(self, topology, told):
        self._topology = topology
        self._cores = told["core_assignment"]
        self._devices = told["devices"]

    @property
    def options(self) -> dict[str, Any]:
        """The assignment for the library."""
        return {"topology": self._topology.options, "core_assignment": self._cores}

    @property
    def topology(self) -> Topology:
        """The Topology."""
        return self._topology

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self._cores)

    @property
    def num_cores_per_replica(self) -> int:
        """The number of logical cores of each replica."""
        return len(self._cores[0])

    @property
    def core_assignment(self) -> numpy.ndarray[Any, Any]:
        """Coordinates by replica and logical core, as an array."""
        return numpy.array(self._cores)

    def coordinates(self, replica: int, logical_core: int) -> tuple[int, ...]:
        """The coordinates of a device. IndexError if there is no such replica or core."""
        return tuple(self._at(self._cores, replica, logical_core))

    def tpu_ordinal(self, replica: int = 0, logical_core: int = 0) -> int:
        """The device's number within its task."""
        return self._at(self._devices, replica, logical_core)[1]

    def tpu_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """The name of a device: "/job:worker/task:0/device:GPU:1"."""
        task, device = self._at(self._devices, replica, logical_core)
        kind = self._topology.options["device_type"]
        return f"{_job(job)}/task:{task}/device:{kind}:{device}"

    def host_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """The name of the host of a device."""
        return f"{_job(job)}/task:{self._at(self._devices, replica, logical_core)[0]}/device:CPU:0"

    def lookup_replicas(self, task_id: int, logical_core: int) -> list[int]:
        """The replicas whose logical core is on a task. ValueError: none."""
        found = [replica for replica, cores in enumerate(self._devices)
                 if 0 <= logical_core < len(cores) and cores[logical_core][0] == task_id]
        if not found:
            raise ValueError(f"no replica has its logical core {logical_core} on task {task_id}")
        return found

    def _at(self, table, replica, logical_core):
        if not (0 <= replica < self.num_replicas and 0 <= logical_core < len(table[0])):
            raise IndexError(f"replica {replica}, logical core {logical_core} is not among "
                             f"{self.num_replicas} replicas of {len(table[0])} cores")
        return table[replica][logical_core]


def _job(job):
    return "" if job is None else f"/job:{job}"


def _ask(topology, **more):
    if not isinstance(topology, Topology):
        raise TypeError(f"topology={topology!r} must be a Topology")
    return _api.ask("assignment", _api.to_json({"topology": topology.options, **more}))


def device_assignment(topology: Topology, computation_shape: Any = None,
                      computation_stride: Any = None, num_replicas: int = 1,
                      device_order_mode: DeviceOrderMode = DeviceOrderMode.AUTO
                      ) -> DeviceAssignment:
    """As DeviceAssignment.build()."""
    return DeviceAssignment.build(topology, computation_shape, computation_stride, num_replicas,
                                  device_order_mode)
