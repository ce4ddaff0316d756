// What one value's reduction needs and where it goes, checked, before anything is computed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/faces/cross_device/distributed_value.h"
#include "client/faces/cross_device/options.h"

namespace tutti::cross_device {

// This process in its group; one of one without a group.
struct Place {
  int rank = 0;
  int size = 1;
  bool in_group = false;
};

// Who gets a result.
struct Targets {
  std::vector<DeviceName> devices;  // Of this process, each once.
  std::vector<int> ranks;           // With such devices, ascending.
};

// INVALID_ARGUMENT: there is none, or one on a rank that the group does not have.
Result<Targets> find_targets(const Destinations& destinations, const Place& place);

// The groups of hierarchical copy: the devices of one host (task) form a group, in the order in
// which the hosts first occur. If all are on one host: the first ceil(n / 2) and the others, so
// that no device is left out where n is odd.
Grouping hierarchical(const std::vector<DeviceName>& devices);

struct ReductionPlan {
  ReduceOp op = ReduceOp::sum;
  Targets targets;
  std::vector<DeviceName> devices;      // Of the components.
  std::vector<Tensor> dense;            // One of each component, of one dtype and shape; or
  std::optional<IndexedSlices> sparse;  // the rows of all components.

  Dtype dtype() const { return sparse ? sparse->values.dtype() : dense[0].dtype(); }
  int64_t replicas() const { return static_cast<int64_t>(devices.size()); }
  int64_t rows() const { return sparse ? sparse->values.shape()[0] : 0; }
  // Whether the components are on exactly the destinations.
  bool in_place() const;
  // "MEAN of f32 [2,3] for ranks 0,2": what all ranks must agree on.
  std::string describe() const;
};

// A value is sparse if all its components are; if some are, they are made dense.
//
// INVALID_ARGUMENT: no components, or of different dtypes or shapes, or bools; integers and MEAN,
// unless the value is the only component of a single process and stays where it is; a component on
// another rank's device; see also find_targets().
Result<ReductionPlan> plan_reduction(ReduceOp op, const PerReplica& value,
                                     const Destinations& destinations, const Place& place);

}  // namespace tutti::cross_device
