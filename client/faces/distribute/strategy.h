// Replicas of one program in step, as tf.distribute.TPUStrategy: which replicas this process has,
// running a function on each, and collectives over all of them.
//
// Where TensorFlow's strategy controls all devices from one process, here each process calls the
// same on its own replicas, mostly on one.
//
// Calls between the replicas, outside of run(), belong to the cross-replica context: within a
// replica's function, and within another strategy's scope, they are FAILED_PRECONDITION. Every
// process must make the same of them in the same order; see Replicas. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/faces/distribute/cluster_group.h"
#include "client/faces/distribute/context.h"
#include "client/faces/distribute/device_assignment.h"
#include "client/faces/distribute/input_context.h"
#include "client/faces/distribute/replica_context.h"
#include "client/faces/distribute/replicas.h"

namespace tutti::distribute {

struct StrategyOptions {
  ClusterOptions cluster = {};
  // Gives this process the replicas whose logical devices are on the task of its rank.
  std::optional<DeviceAssignment> device_assignment = std::nullopt;
  // Without it: replicas of this process. Processes may have different numbers.
  int local_replicas = 1;
  // Whether reductions among the processes are of which the call does not say; else as the join
  // says.
  std::optional<bool> reproducible = std::nullopt;
};

class Strategy {
 public:
  // All processes of the cluster create it. Errors as ClusterGroup::create(); INVALID_ARGUMENT on
  // every rank: device_assignment has another number of tasks than the cluster, a replica whose
  // devices are on several tasks, or a task without replicas.
  static Result<std::unique_ptr<Strategy>> create(StrategyOptions options = {});

  // For all processes.
  int num_replicas_in_sync() const { return replicas_.count(); }
  const Replicas& replicas() const { return replicas_; }

  // How long replicas of this process wait for each other, unless a call says otherwise.
  int32_t timeout_ms() const { return timeout_ms_; }

  // Takes part in a collective with an error of this rank's own, which becomes that of all ranks:
  // so no rank is a call ahead of the others. Within a replica's function, for that replica.
  Status refuse(const Status& own, const CallOptions& options = {}) const;

  // Calls `function`, which must not throw, once for each replica of this process: on this thread
  // for a single one, else on a thread of its own for each, at the same time. Returns when all have
  // returned; the error of the first that failed. INVALID_ARGUMENT: `function` is empty.
  // RESOURCE_EXHAUSTED: not every thread could be started; the others run.
  Status run(const std::function<Status(ReplicaContext&)>& function);

  // The leaves reduced over all replicas, and over `axes` of each where given. `structure`
  // describes how the leaves are nested and must be the same on all ranks. Errors as
  // Replicas::all_reduce() and reduce_over().
  Result<std::vector<Tensor>> reduce(ReduceOp op, const Leaves& leaves,
                                     const std::optional<std::vector<int64_t>>& axes = {},
                                     const std::string& structure = "",
                                     const CallOptions& options = {}) const;
  // The leaves of all replicas one behind the other along `axis`. Errors as Replicas::gather().
  Result<std::vector<Tensor>> gather(const Leaves& leaves, int64_t axis,
                                     const std::string& structure = "",
                                     const CallOptions& options = {}) const;
  // The leaves of replica `root`: `values` of its process, which for initial weights is the first.
  // Errors as Replicas::broadcast().
  Result<std::vector<Tensor>> broadcast_parameters(const std::vector<Tensor>& values, int root = 0,
                                                   const std::string& structure = "",
                                                   const CallOptions& options = {}) const;

  // For functions that make this process's data, and the values of its replicas.
  InputContext input_context() const;
  std::vector<ValueContext> value_contexts() const;

  // For each replica: its devices in the assignment, else the host.
  int num_logical_devices() const;
  // "/job:worker/task:1/device:GPU:0". OUT_OF_RANGE: no such replica or logical device.
  Result<std::string> device_name(int replica, int logical_device) const;

  // OK in this strategy's cross-replica context, and where no scope was entered.
  Status require_cross_replica(const std::string& call) const;

  // See ClusterGroup.
  void leave_job() const { group_.leave(); }

 private:
  Strategy(ClusterGroup group, Replicas replicas, std::optional<DeviceAssignment> assignment,
           int32_t timeout_ms)
      : group_(std::move(group)),
        replicas_(std::move(replicas)),
        assignment_(std::move(assignment)),
        timeout_ms_(timeout_ms) {}

  ClusterGroup group_;  // Outlives `replicas_`, which borrows it.
  Replicas replicas_;
  std::optional<DeviceAssignment> assignment_ = std::nullopt;
  int32_t timeout_ms_;
};

}  // namespace tutti::distribute
