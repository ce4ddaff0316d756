// Which devices each replica of a computation gets, as tf.tpu.experimental.DeviceAssignment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/faces/distribute/topology.h"

namespace tutti::distribute {

// In which order build() hands out devices.
enum class DeviceOrderMode {
  automatic,  // `ring` where that is possible, else `mesh`.
  ring,       // Neighbouring replicas, and neighbours within one, are next to each other in a ring.
  mesh,       // Replicas count along the core first, then x, y, z; within one the core is fastest.
};

struct BuildOptions {
  // Devices of a replica, and their distance, by axis; else all 1.
  std::optional<std::vector<int>> computation_shape = std::nullopt;
  std::optional<std::vector<int>> computation_stride = std::nullopt;
  int num_replicas = 1;
  DeviceOrderMode device_order_mode = DeviceOrderMode::automatic;
};

class DeviceAssignment {
 public:
  // Coordinates by replica and by logical core within the replica.
  using CoreAssignment = std::vector<std::vector<Coordinates>>;

  // INVALID_ARGUMENT: no replicas, replicas without or with different numbers of cores, coordinates
  // outside of the mesh or of a missing device. Replicas may share devices.
  static Result<DeviceAssignment> create(Topology topology, CoreAssignment core_assignment);

  // Replicas packed into the mesh. A replica takes a block of shape * stride; a block of stride s
  // has s replicas side by side along each axis.
  //
  // The replicas form a grid that is as near to a cube as possible: axes are filled in ascending
  // order of the replicas that fit, of equal ones the core first, then x, y, z; each gets the
  // smallest number whose power reaches what is left. The order is a ring where a replica
  // has all cores of its chips, strides are 1 and the mesh is full.
  //
  // If the mesh has missing devices, the devices are dealt in the order of tasks, without regard to
  // the shape and `device_order_mode`.
  //
  // INVALID_ARGUMENT: shape or stride has not 4 positive numbers; the block does not fit in the
  // mesh; num_replicas is below 1 or above what fits; `ring` where it is not possible; missing
  // devices and a stride, or more devices wanted than there are.
  static Result<DeviceAssignment> build(Topology topology, const BuildOptions& options = {});

  const Topology& topology() const { return topology_; }
  int num_replicas() const { return static_cast<int>(cores_.size()); }
  int num_cores_per_replica() const { return static_cast<int>(cores_[0].size()); }
  const CoreAssignment& core_assignment() const { return cores_; }

  // OUT_OF_RANGE: no such replica or logical core; so for the next three.
  Result<Coordinates> coordinates(int replica, int logical_core) const;
  // The device's number within its task.
  Result<int> device_ordinal(int replica = 0, int logical_core = 0) const;
  // Names as Topology::device_name() and Topology::host_name().
  Result<std::string> device_name(int replica = 0, int logical_core = 0,
                                  const std::optional<std::string>& job = {}) const;
  Result<std::string> host_name(int replica = 0, int logical_core = 0,
                                const std::optional<std::string>& job = {}) const;
  // The replicas whose `logical_core` is on `task`, ascending. INVALID_ARGUMENT: none.
  Result<std::vector<int>> lookup_replicas(int task, int logical_core) const;

 private:
  DeviceAssignment(Topology topology, CoreAssignment cores)
      : topology_(std::move(topology)), cores_(std::move(cores)) {}
  Result<DeviceId> device(int replica, int logical_core) const;

  Topology topology_;
  CoreAssignment cores_;
  std::map<std::pair<int, int>, std::vector<int>> replicas_;  // By task and logical core.
};

}  // namespace tutti::distribute
