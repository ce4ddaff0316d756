"""Strategies as users of tf.distribute know them, over Tutti's daemons.

    from tutti import distribute
    strategy = distribute.Strategy()  # As TF_CONFIG or `tutti run` says; else alone.
    with strategy.scope():
        total = distribute.Variable(0.0, aggregation="SUM")
    loss = strategy.run(train_step, args=(batch,))
    mean = strategy.reduce("MEAN", loss, axis=None)

docs/distribute.md says what differs from TensorFlow.
"""

from tutti.distribute import cluster_resolver
from tutti.distribute._discovery import discover
from tutti.distribute._strategy import (ReplicaContext, Strategy, StrategyExtended,
                                        get_replica_context, get_strategy, has_strategy,
                                        in_cross_replica_context)
from tutti.distribute._topology import (DeviceAssignment, DeviceOrderMode, Host, Link, Topology,
                                        device_assignment)
from tutti.distribute._values import (CommunicationOptions, InputContext, PerReplica, ReduceOp,
                                      ValueContext, VariableAggregation, VariableSynchronization)
from tutti.distribute._variable import Variable

TPUStrategy = Strategy

__all__ = ["CommunicationOptions", "DeviceAssignment", "DeviceOrderMode", "Host",
           "InputContext", "Link", "PerReplica", "ReduceOp", "ReplicaContext", "Strategy",
           "StrategyExtended", "TPUStrategy", "Topology", "ValueContext", "Variable",
           "VariableAggregation", "VariableSynchronization", "cluster_resolver",
           "device_assignment", "discover", "get_replica_context", "get_strategy", "has_strategy",
           "in_cross_replica_context"]
