// The cluster of a Slurm step, as tf.distribute's SlurmClusterResolver.
#pragma once

#include <vector>

#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

// The order in which nodes get their tasks' ranks.
enum class NodeOrder {
  // As in SLURM_STEP_NODELIST: so Slurm numbers the tasks of a step (block distribution).
  as_listed,
  // As strings, as TensorFlow does: n10 comes before n2, and an address may then be that of another
  // task. For clusters of which TensorFlow's processes are part.
  by_name,
};

// What is not set is read from the environment.
struct SlurmOptions {
  std::map<std::string, int> jobs = {};  // Tasks of each job; empty: all are `worker`.
  int port_base = 8888;                  // Port of a node's first task; the next have the next.
  std::optional<int> gpus_per_node = std::nullopt;   // Else count_gpus().
  std::optional<int> gpus_per_task = std::nullopt;   // Else gpus_per_node / most tasks of a node.
  std::optional<int> tasks_per_node = std::nullopt;  // The same on all nodes.
  std::map<std::string, int> tasks_by_node =
      {};  // Or of each node by name; goes before tasks_per_node.
  NodeOrder node_order = NodeOrder::as_listed;  // `tasks_by_node` is always by name.
  std::string rpc_layer = "grpc";
  Environment variables = process_environment();
};

// Reads SLURM_PROCID and, where the options leave it open, SLURM_STEP_NUM_TASKS,
// SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE once, in create().
class SlurmResolver : public Resolver {
 public:
  // FAILED_PRECONDITION: a variable is not set; the host list and the tasks per node differ in
  // length; jobs have another number of tasks than nodes; tasks want more GPUs than a node has;
  // SLURM_PROCID is not the number of a task. INVALID_ARGUMENT: a variable or option cannot be
  // read, a node is listed twice, a number is negative, no tasks or more than kTasksMax, a port is
  // above 65535.
  static Result<SlurmResolver> create(const SlurmOptions& options = {});

  Result<ClusterSpec> cluster_spec() const override { return spec_; }

  // This task's share of its node's GPUs, "2,3", for CUDA_VISIBLE_DEVICES; empty without GPUs. If
  // the variable is set, the share is of its entries. TensorFlow sets the variable itself, and
  // counts from 0 always; here the caller does, before CUDA starts.
  const std::string& visible_devices() const { return visible_devices_; }

 private:
  SlurmResolver(ResolverOptions options, ClusterSpec spec, std::string visible_devices)
      : Resolver(std::move(options)),
        spec_(std::move(spec)),
        visible_devices_(std::move(visible_devices)) {}

  ClusterSpec spec_;
  std::string visible_devices_;
};

}  // namespace tutti::distribute
