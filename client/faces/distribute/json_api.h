// Resolvers, topologies and device assignments as JSON, for c_api.h. A wrong key or type is
// INVALID_ARGUMENT. What is None in Python is null, or left out.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/faces/distribute/device_assignment.h"
#include "client/faces/distribute/resolver.h"
#include "client/faces/distribute/strategy.h"
#include "client/faces/distribute/union_resolver.h"

namespace tutti::distribute {

// {"kind": "simple", "cluster": {"worker": {"0": "a:1"}}, "task_type": "worker", "task_id": 0,
//  "rpc_layer": "grpc", "environment": "", "master": "", "num_accelerators": {"GPU": 1}}
// "tf_config": task_type, task_id, rpc_layer, environment. "slurm": jobs {name: tasks}, port_base,
// gpus_per_node, gpus_per_task, tasks_per_node (a number, or {node: tasks}), sort_nodes, rpc_layer.
// "kubernetes": services {job: [name]}, port, task_type, task_id, rpc_layer. "union": task_type,
// task_id, rpc_layer. "torchrun": rpc_layer, num_accelerators. "mpi": also master.
Result<std::shared_ptr<const Resolver>> resolver_of(const std::string& json,
                                                    UnionResolver::Resolvers parts);

// The answer to {"get": "cluster_spec"}, "task" [type, id], "num_accelerators", "rpc_layer",
// "environment", "placement" {"rank", "world_size", "is_chief", "leader"}, "visible_devices" (of
// Slurm), or "master" with task_type, task_id and rpc_layer.
Result<std::string> ask_resolver(const Resolver& resolver, const std::string& question);

// The answer to {"topology": {"mesh_shape": [..], "device_coordinates": [[[..]]], "device_type":
// "GPU"}}, which is {"missing_devices", "tasks", "devices_per_task", "ring_order": [[task,
// device]]}. With "build": {"computation_shape", "computation_stride", "num_replicas",
// "device_order_mode": "AUTO"}, or with "core_assignment", it has also "core_assignment" and
// "devices" [replica][core][task, device].
Result<std::string> describe_assignment(const std::string& question);

// Options of tutti_distribute_strategy_create().
Result<StrategyOptions> strategy_options_of(const std::string& json);
std::string describe(const Strategy& strategy);

}  // namespace tutti::distribute
