// The rules by which DeviceAssignment::build() packs replicas into a mesh. Pure.
#pragma once

#include "client/faces/distribute/device_assignment.h"

namespace tutti::distribute {

// The coordinates of each replica's cores. Rules and errors: DeviceAssignment::build().
Result<DeviceAssignment::CoreAssignment> assign_cores(const Topology& topology,
                                                      const BuildOptions& options);

// The sides of a grid for `replicas`, at least 1, of which `limits` fit along each axis; their
// product is at least `replicas`, which must not exceed the product of `limits`.
Coordinates replica_grid(int64_t replicas, const Coordinates& limits);

}  // namespace tutti::distribute
