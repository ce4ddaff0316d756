#include "client/faces/distribute/strategy.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace tutti::distribute {
namespace {

constexpr const char* kJob = "worker";

// The replicas whose devices are on `task`.
Result<std::vector<int>> replicas_on(const DeviceAssignment& assignment, int task, int tasks) {
  const Topology& topology = assignment.topology();
  if (topology.num_tasks() != tasks)
    return invalid_argument("device_assignment is for " + std::to_string(topology.num_tasks()) +
                            " tasks, but the cluster has " + std::to_string(tasks) +
                            "; make both equal");
  std::vector<int> ids;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    const auto& cores = assignment.core_assignment()[static_cast<size_t>(replica)];
    const int home = topology.device_at(cores[0])->task;
    for (const Coordinates& core : cores)
      if (topology.device_at(core)->task != home)
        return invalid_argument("replica " + std::to_string(replica) +
                                " of device_assignment has devices on several tasks; choose a "
                                "computation_shape that fits in one");
    if (home == task) ids.push_back(replica);
  }
  if (!ids.empty()) return ids;
  return invalid_argument("device_assignment has no replica on task " + std::to_string(task) +
                          "; give each task at least one");
}

// Which replicas this process has. An error is reported to the other ranks.
Result<Replicas> make_replicas(tutti_group* group, const StrategyOptions& options) {
  if (!options.device_assignment)
    return Replicas::create(group, {options.local_replicas, {}}, options.reproducible);
  const int rank = group == nullptr ? 0 : tutti_rank(group);
  const int size = group == nullptr ? 1 : tutti_world_size(group);
  const Result<std::vector<int>> ids = replicas_on(*options.device_assignment, rank, size);
  if (!ids.ok()) return faces::refuse(group, ids.status());
  return Replicas::create(group, {static_cast<int>(ids->size()), *ids}, options.reproducible);
}

// That of the group, if there is one.
int32_t timeout_of(const ClusterOptions& options) {
  if (options.timeout_ms > 0) return options.timeout_ms;
  const std::optional<std::string> seconds = options.variables("TUTTI_TIMEOUT");
  const double given = seconds ? std::strtod(seconds->c_str(), nullptr) : 0;
  return given > 0 && given < 1e6 ? std::max(1, static_cast<int32_t>(given * 1000)) : 30'000;
}

Status call_in_context(const std::function<Status(ReplicaContext&)>& function,
                       ReplicaContext& replica) {
  const ContextScope scope({&replica.strategy(), &replica});
  return function(replica);
}

std::string list_of(const std::optional<std::vector<int64_t>>& axes) {
  return axes ? to_string(*axes) : "None";
}

}  // namespace

Result<std::unique_ptr<Strategy>> Strategy::create(StrategyOptions options) {
  Result<ClusterGroup> group = ClusterGroup::create(options.cluster);
  if (!group.ok()) return faces::refuse(options.cluster.group, group.status());
  Result<Replicas> replicas = make_replicas(group->get(), options);
  if (!replicas.ok()) return replicas.status();
  return std::unique_ptr<Strategy>(new Strategy(*std::move(group), *std::move(replicas),
                                                std::move(options.device_assignment),
                                                timeout_of(options.cluster)));
}

Status Strategy::refuse(const Status& own, const CallOptions& options) const {
  const Context current = current_context();
  if (current.replica != nullptr && current.strategy == this)
    return current.replica->refuse(own, options);
  if (Status status = require_cross_replica("a collective"); !status.ok()) return status;
  return replicas_.agree(own, "", options);
}

Status Strategy::require_cross_replica(const std::string& call) const {
  const Context current = current_context();
  if (current.replica != nullptr)
    return failed_precondition(call +
                               " requires being in cross-replica context, but was called within a "
                               "replica's function; call it outside of run()");
  if (current.strategy == nullptr || current.strategy == this) return {};
  return failed_precondition(call +
                             " was called within the scope of another strategy; mixing different "
                             "strategies is not possible, leave that scope first");
}

Status Strategy::run(const std::function<Status(ReplicaContext&)>& function) {
  if (Status status = require_cross_replica("run()"); !status.ok()) return status;
  if (!function) return invalid_argument("run() needs a function to call");
  Rendezvous rendezvous(replicas_.local());
  const auto run_one = [&](size_t index) {
    ReplicaContext replica(*this, rendezvous, index);
    rendezvous.finish(index, call_in_context(function, replica));
  };
  const size_t replicas = replicas_.local().size();
  std::vector<std::jthread> threads;
  threads.reserve(replicas);
  const auto start = [&](size_t index) -> Status {
    try {
      threads.emplace_back(run_one, index);
    } catch (const std::system_error& error) {
      return resource_exhausted("the thread of replica " +
                                std::to_string(replicas_.local()[index]) + " cannot be started (" +
                                error.what() +
                                "); have fewer local_replicas, or raise the limits (ulimit -u -v)");
    }
    return {};
  };
  for (size_t index = 0; replicas > 1 && index < replicas; ++index)
    if (const Status started = start(index); !started.ok()) rendezvous.finish(index, started);
  if (replicas == 1) run_one(0);
  threads.clear();  // Joins them.
  return rendezvous.first_failure();
}

Result<std::vector<Tensor>> Strategy::reduce(ReduceOp op, const Leaves& leaves,
                                             const std::optional<std::vector<int64_t>>& axes,
                                             const std::string& structure,
                                             const CallOptions& options) const {
  const std::string call =
      describe_call("reduce(" + std::string(name_of(op)) + ", axis=" + list_of(axes) + ")",
                    structure, leaves.size());
  if (Status status = require_cross_replica("reduce()"); !status.ok()) return status;
  return axes ? replicas_.reduce_over(call, op, *axes, leaves, options)
              : replicas_.all_reduce(call, op, leaves, options);
}

Result<std::vector<Tensor>> Strategy::gather(const Leaves& leaves, int64_t axis,
                                             const std::string& structure,
                                             const CallOptions& options) const {
  const std::string call =
      describe_call("gather(axis=" + std::to_string(axis) + ")", structure, leaves.size());
  if (Status status = require_cross_replica("gather()"); !status.ok()) return status;
  return replicas_.gather(call, axis, leaves, options);
}

Result<std::vector<Tensor>> Strategy::broadcast_parameters(const std::vector<Tensor>& values,
                                                           int root, const std::string& structure,
                                                           const CallOptions& options) const {
  const std::string call = describe_call("broadcast_parameters(root=" + std::to_string(root) + ")",
                                         structure, values.size());
  if (Status status = require_cross_replica("broadcast_parameters()"); !status.ok()) return status;
  Leaves leaves;
  for (const Tensor& value : values) leaves.emplace_back(replicas_.local().size(), value);
  return replicas_.broadcast(call, root, leaves, options);
}

InputContext Strategy::input_context() const {
  return {replicas_.world_size(), replicas_.rank(), num_replicas_in_sync()};
}

std::vector<ValueContext> Strategy::value_contexts() const {
  std::vector<ValueContext> contexts;
  for (const int id : replicas_.local()) contexts.push_back({id, num_replicas_in_sync()});
  return contexts;
}

int Strategy::num_logical_devices() const {
  return assignment_ ? assignment_->num_cores_per_replica() : 1;
}

Result<std::string> Strategy::device_name(int replica, int logical_device) const {
  if (assignment_) return assignment_->device_name(replica, logical_device, kJob);
  if (replica >= 0 && replica < num_replicas_in_sync() && logical_device == 0)
    return Topology::host_name(replicas_.rank_of(replica), kJob);
  return Status(Code::out_of_range, "replica " + std::to_string(replica) + ", logical device " +
                                        std::to_string(logical_device) + " does not exist");
}

}  // namespace tutti::distribute
