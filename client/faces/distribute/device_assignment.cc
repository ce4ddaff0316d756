#include "client/faces/distribute/device_assignment.h"

#include "client/faces/distribute/replica_grid.h"

namespace tutti::distribute {
namespace {

Status validate_shape(const DeviceAssignment::CoreAssignment& cores) {
  if (cores.empty() || cores[0].empty())
    return invalid_argument("core_assignment is empty; list [replica][logical core][4]");
  for (size_t replica = 1; replica < cores.size(); ++replica)
    if (cores[replica].size() != cores[0].size())
      return invalid_argument("core_assignment: replica " + std::to_string(replica) + " has " +
                              std::to_string(cores[replica].size()) + " cores, replica 0 has " +
                              std::to_string(cores[0].size()) + "; give each equally many");
  return {};
}

}  // namespace

Result<DeviceAssignment> DeviceAssignment::create(Topology topology,
                                                  CoreAssignment core_assignment) {
  if (Status status = validate_shape(core_assignment); !status.ok()) return status;
  DeviceAssignment made(std::move(topology), std::move(core_assignment));
  for (int replica = 0; replica < made.num_replicas(); ++replica)
    for (int core = 0; core < made.num_cores_per_replica(); ++core) {
      const Result<DeviceId> found = made.device(replica, core);
      if (!found.ok())
        return invalid_argument("core_assignment of replica " + std::to_string(replica) +
                                ", core " + std::to_string(core) + ": " + found.status().message());
      made.replicas_[{found->task, core}].push_back(replica);
    }
  return made;
}

Result<DeviceAssignment> DeviceAssignment::build(Topology topology, const BuildOptions& options) {
  Result<CoreAssignment> cores = assign_cores(topology, options);
  if (!cores.ok()) return cores.status();
  return create(std::move(topology), *std::move(cores));
}

Result<Coordinates> DeviceAssignment::coordinates(int replica, int logical_core) const {
  if (replica >= 0 && replica < num_replicas() && logical_core >= 0 &&
      logical_core < num_cores_per_replica())
    return cores_[static_cast<size_t>(replica)][static_cast<size_t>(logical_core)];
  return Status(Code::out_of_range, "replica " + std::to_string(replica) + ", logical core " +
                                        std::to_string(logical_core) + " is not among " +
                                        std::to_string(num_replicas()) + " replicas of " +
                                        std::to_string(num_cores_per_replica()) + " cores");
}

Result<DeviceId> DeviceAssignment::device(int replica, int logical_core) const {
  const Result<Coordinates> at = coordinates(replica, logical_core);
  if (!at.ok()) return at.status();
  return topology_.device_at(*at);
}

Result<int> DeviceAssignment::device_ordinal(int replica, int logical_core) const {
  const Result<DeviceId> found = device(replica, logical_core);
  if (!found.ok()) return found.status();
  return found->device;
}

Result<std::string> DeviceAssignment::device_name(int replica, int logical_core,
                                                  const std::optional<std::string>& job) const {
  const Result<DeviceId> found = device(replica, logical_core);
  if (!found.ok()) return found.status();
  return topology_.device_name(*found, job);
}

Result<std::string> DeviceAssignment::host_name(int replica, int logical_core,
                                                const std::optional<std::string>& job) const {
  const Result<DeviceId> found = device(replica, logical_core);
  if (!found.ok()) return found.status();
  return Topology::host_name(found->task, job);
}

Result<std::vector<int>> DeviceAssignment::lookup_replicas(int task, int logical_core) const {
  const auto found = replicas_.find({task, logical_core});
  if (found != replicas_.end()) return found->second;
  return invalid_argument("no replica has its logical core " + std::to_string(logical_core) +
                          " on task " + std::to_string(task));
}

}  // namespace tutti::distribute
