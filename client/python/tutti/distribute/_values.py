"""Values of replicas, and how they are combined."""

import enum

from tutti.cross_device import CommunicationOptions, PerReplica, ReduceOp, own_name
from tutti.distribute import _api

__all__ = ["CommunicationOptions", "InputContext", "PerReplica", "ReduceOp", "ValueContext",
           "VariableAggregation", "VariableSynchronization", "name_of"]


class VariableAggregation(enum.Enum):
    """How the values that replicas give a variable become one."""
    NONE = "NONE"
    SUM = "SUM"
    MEAN = "MEAN"
    ONLY_FIRST_REPLICA = "ONLY_FIRST_REPLICA"


class VariableSynchronization(enum.Enum):
    """When the replicas' copies of a variable are made equal."""
    AUTO = "AUTO"
    NONE = "NONE"
    ON_WRITE = "ON_WRITE"
    ON_READ = "ON_READ"


def name_of(value, kind, argument):
    """The name of a member of an enumeration, or of one given by name, as bytes. C++ refuses what
    is none."""
    value = own_name(value, kind)
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{argument}={value!r} must be a {kind.__name__} or its name")


class ValueContext:
    """What a function that makes a replica's value is given."""

    def __init__(self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1) -> None:
        self.replica_id_in_sync_group = replica_id_in_sync_group
        self.num_replicas_in_sync = num_replicas_in_sync

    def __repr__(self) -> str:
        return (f"ValueContext(replica_id_in_sync_group={self.replica_id_in_sync_group}, "
                f"num_replicas_in_sync={self.num_replicas_in_sync})")


class InputContext:
    """What a function that makes a process's data set is given: the number of processes, which of
    them this is, and the number of all replicas."""

    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0,
                 num_replicas_in_sync: int = 1) -> None:
        self.num_input_pipelines = num_input_pipelines
        self.input_pipeline_id = input_pipeline_id
        self.num_replicas_in_sync = num_replicas_in_sync

    def __repr__(self) -> str:
        return (f"InputContext(num_input_pipelines={self.num_input_pipelines}, "
                f"input_pipeline_id={self.input_pipeline_id}, "
                f"num_replicas_in_sync={self.num_replicas_in_sync})")

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The batch of each replica. Raises ValueError if the replicas do not divide it."""
        return _api.per_replica_batch_size(global_batch_size, self.num_replicas_in_sync)
