"""Clusters, and the resolvers that find them, under the names of tf.distribute.cluster_resolver."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from tutti._handle import Unique
from tutti.distribute import _api


class ClusterSpec:
    """The tasks of a cluster: {job: [address, ...]}, or {job: {index: address}}; or what another
    ClusterSpec has, also TensorFlow's."""

    def __init__(self, cluster: Any) -> None:
        if hasattr(cluster, "as_dict"):  # Also TensorFlow's.
            cluster = cluster.as_dict()
        if not isinstance(cluster, dict):
            raise TypeError(f"cluster={cluster!r} must be a dict from jobs to addresses, or a "
                            "ClusterSpec")
        self._jobs = {_text(job, "a job"): _tasks(job, tasks) for job, tasks in cluster.items()}

    def as_dict(self) -> dict[str, Any]:
        """A list of addresses for each job, or {index: address} where indices are missing."""
        return {job: list(tasks.values()) if list(tasks) == list(range(len(tasks))) else dict(tasks)
                for job, tasks in self._jobs.items()}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """The number of tasks of a job. Raises ValueError if there is no such job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The indices of a job's tasks. Raises ValueError if there is no such job."""
        return list(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """A task's address. Raises ValueError if there is no such job or task."""
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise ValueError(f"task_index={task_index!r} is not in job {job_name!r}, which has "
                             f"{list(tasks)}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job's tasks by index, with None where one is missing. Raises
        ValueError if there is no such job."""
        tasks = self._job(job_name)
        return [tasks.get(index) for index in range(max(tasks, default=-1) + 1)]

    def _job(self, name):
        if name not in self._jobs:
            raise ValueError(f"job_name={name!r} is not in the cluster, which has {self.jobs}")
        return self._jobs[name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"


def _text(value, what):
    if not isinstance(value, str):
        raise TypeError(f"{what} of the cluster is {value!r}; it must be a string")
    return value


def _tasks(job, tasks):
    if not isinstance(tasks, (dict, list, tuple)):
        raise TypeError(f"the tasks of job {job!r} are {tasks!r}; they must be a list of "
                        "addresses, or a dict from index to address")
    indexed = tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
    return {_api.whole(index, "task_index"): _text(address, "an address")
            for index, address in sorted(indexed)}


class ClusterResolver(Unique):
    """Base of the resolvers. What a method tells is read again at each call.

    task_type, task_id and rpc_layer can be set where the constructor takes them; later strategies
    and unions go by the new ones."""

    _instead = "make another one with the same arguments; cluster_spec() can be copied"

    def __init__(self, options: dict[str, Any], parts: Sequence[ClusterResolver] = ()) -> None:
        self._make(options, parts)

    def _make(self, options, parts):
        pointers = (ctypes.c_void_p * len(parts))(*(part.handle.pointer for part in parts))
        self.handle = _api.make("resolver_create", "resolver_free", _api.to_json(options),
                                pointers, len(parts))
        self._options, self._parts = options, parts

    def _set(self, name, value):
        if name not in self._options or self._options["kind"] == "slurm":
            raise AttributeError(f"{name} of a {type(self).__name__} is what its launcher tells; "
                                 f"pass UnionResolver(resolver, {name}={value!r}) instead of it")
        self._make({**self._options, name: value}, self._parts)

    def _ask(self, get, **more):
        return _api.ask("resolver_ask", self.handle.pointer, _api.to_json({"get": get, **more}))

    def cluster_spec(self) -> ClusterSpec:
        """The ClusterSpec."""
        return ClusterSpec({job: {int(index): address for index, address in tasks.items()}
                            for job, tasks in self._ask("cluster_spec").items()})

    def master(self, task_type: str | None = None, task_id: int | None = None,
               rpc_layer: str | None = None) -> str:
        """The address to connect to, of a task if it is named; "" if there is none to tell."""
        return self._ask("master", task_type=task_type, task_id=task_id, rpc_layer=rpc_layer)

    def num_accelerators(self, task_type: str | None = None, task_id: int | None = None,
                         config_proto: Any = None) -> dict[str, int]:
        """{"GPU": 4}: accelerators of this process by type. The arguments are for
        compatibility."""
        del task_type, task_id, config_proto
        return self._ask("num_accelerators")

    def placement(self) -> dict[str, Any]:
        """{"rank", "world_size", "is_chief", "leader"} of this process."""
        return self._ask("placement")

    @property
    def task_type(self) -> str | None:
        """The job of this process's task, or None."""
        return self._ask("task")[0]

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._set("task_type", task_type)

    @property
    def task_id(self) -> int | None:
        """The index of this process's task, or None."""
        return self._ask("task")[1]

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._set("task_id", task_id)

    @property
    def environment(self) -> str:
        """"google" within Google, else "", as TensorFlow defines it."""
        return self._ask("environment")

    @property
    def rpc_layer(self) -> str | None:
        """"grpc", or None for none."""
        return self._ask("rpc_layer") or None

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._set("rpc_layer", rpc_layer)


def _json_of(spec):
    if not isinstance(spec, ClusterSpec):
        raise TypeError(f"cluster_spec={spec!r} must be a ClusterSpec")
    return {job: {str(index): spec.task_address(job, index) for index in spec.task_indices(job)}
            for job in spec.jobs}


class SimpleClusterResolver(ClusterResolver):
    """Tells what it is given."""

    def __init__(self, cluster_spec: ClusterSpec, master: str = "", task_type: str | None = None,
                 task_id: int | None = None, environment: str = "",
                 num_accelerators: dict[str, int] | None = None,
                 rpc_layer: str | None = None) -> None:
        if not isinstance(master, str):
            raise TypeError(f"master={master!r} must be a string")
        super().__init__({"kind": "simple", "cluster": _json_of(cluster_spec), "master": master,
                          "task_type": task_type, "task_id": task_id, "environment": environment,
                          "num_accelerators": num_accelerators, "rpc_layer": rpc_layer})


class TFConfigClusterResolver(ClusterResolver):
    """The cluster of the variable TF_CONFIG."""

    def __init__(self, task_type: str | None = None, task_id: int | None = None,
                 rpc_layer: str | None = None, environment: str | None = None) -> None:
        super().__init__({"kind": "tf_config", "task_type": task_type, "task_id": task_id,
                          "rpc_layer": rpc_layer, "environment": environment})


class SlurmClusterResolver(ClusterResolver):
    """The cluster of the Slurm step, read once. tasks_per_node is a number, or {node: tasks}.
    auto_set_gpu sets CUDA_VISIBLE_DEVICES to this task's share of the GPUs. sort_nodes orders
    nodes by name as TensorFlow does, instead of as Slurm lists and numbers them."""

    def __init__(self, jobs: dict[str, int] | None = None, port_base: int = 8888,
                 gpus_per_node: int | None = None, gpus_per_task: int | None = None,
                 tasks_per_node: int | dict[str, int] | None = None, auto_set_gpu: bool = True,
                 rpc_layer: str | None = "grpc", sort_nodes: bool = False) -> None:
        super().__init__({"kind": "slurm", "jobs": jobs, "port_base": port_base,
                          "gpus_per_node": gpus_per_node, "gpus_per_task": gpus_per_task,
                          "tasks_per_node": tasks_per_node, "rpc_layer": rpc_layer,
                          "sort_nodes": sort_nodes})
        if auto_set_gpu and self.visible_devices:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.visible_devices

    @property
    def visible_devices(self) -> str:
        """This task's share of its node's GPUs, such as "2,3"."""
        return self._ask("visible_devices")

    def get_task_info(self) -> tuple[str | None, int | None]:
        """(job, index) of this process's task."""
        return self.task_type, self.task_id


class KubernetesClusterResolver(ClusterResolver):
    """The pods behind headless services, {job: [service, ...]}, as DNS tells them."""

    def __init__(self, job_to_service_mapping: dict[str, list[str]] | None = None,
                 tf_server_port: int = 8470, rpc_layer: str | None = "grpc",
                 task_type: str | None = None, task_id: int | None = None) -> None:
        super().__init__({"kind": "kubernetes", "services": job_to_service_mapping,
                          "port": tf_server_port, "rpc_layer": rpc_layer, "task_type": task_type,
                          "task_id": task_id})


class UnionResolver(ClusterResolver):
    """Several resolvers as one: jobs of lists are concatenated, others merged by index."""

    def __init__(self, *resolvers: ClusterResolver, task_type: str | None = None,
                 task_id: int | None = None, rpc_layer: str | None = None) -> None:
        for resolver in resolvers:
            if not isinstance(resolver, ClusterResolver):
                raise TypeError(f"{resolver!r} is no ClusterResolver")
        super().__init__({"kind": "union", "task_type": task_type, "task_id": task_id,
                          "rpc_layer": rpc_layer}, resolvers)


class TorchrunClusterResolver(ClusterResolver):
    """The cluster of a process that torchrun started: every rank is a worker."""

    def __init__(self, rpc_layer: str | None = None,
                 num_accelerators: dict[str, int] | None = None) -> None:
        super().__init__({"kind": "torchrun", "rpc_layer": rpc_layer,
                          "num_accelerators": num_accelerators})


class MPIClusterResolver(ClusterResolver):
    """The cluster of a process that mpirun started: every rank is a worker. `master` is the
    address of rank 0, which MPI does not tell."""

    def __init__(self, master: str = "", rpc_layer: str | None = None,
                 num_accelerators: dict[str, int] | None = None) -> None:
        super().__init__({"kind": "mpi", "master": master, "rpc_layer": rpc_layer,
                          "num_accelerators": num_accelerators})


UnionClusterResolver = UnionResolver


def default_resolver(rank, world_size, from_variables):
    """That of a strategy which was given none, of these ranks. from_variables: it has asked
    TF_CONFIG and the variables of `tutti run`."""
    if from_variables and "TF_CONFIG" in os.environ:
        return TFConfigClusterResolver()
    told = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if (from_variables and {"TUTTI_WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
            and told == (str(rank), str(world_size))):
        return TorchrunClusterResolver()
    if world_size == 1:
        return SimpleClusterResolver(ClusterSpec({}))
    workers = ClusterSpec({"worker": [""] * world_size})  # Their addresses are not known.
    return SimpleClusterResolver(workers, task_type="worker", task_id=rank)


def resolver_of(given):
    """A ClusterResolver as it is; else one of what any object with cluster_spec(), task_type and
    task_id tells."""
    if given is None or isinstance(given, ClusterResolver):
        return given
    try:
        spec = given.cluster_spec()
        spec = spec if isinstance(spec, ClusterSpec) else ClusterSpec(spec.as_dict())
        return SimpleClusterResolver(spec, task_type=given.task_type, task_id=given.task_id)
    except AttributeError as error:
        raise TypeError(f"cluster_resolver={given!r} is no resolver: it needs cluster_spec(), "
                        f"task_type and task_id ({error})") from None
