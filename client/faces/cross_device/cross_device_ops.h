// tf.distribute's cross-device operations: reductions and copies of values that have a component on
// each of several devices, in one process or in a group with one process a rank.
//
// In a group every rank passes the components of its own devices, and all ranks make the same calls
// in the same order. They first agree on what they are about to do: if one of them says otherwise,
// or refuses its arguments, all get INVALID_ARGUMENT with both sides, and the next call works. A
// rank that does not come makes the others fail with DEADLINE_EXCEEDED after
// CommunicationOptions::timeout_seconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/faces/base/base.h"
#include "client/faces/cross_device/distributed_value.h"
#include "client/faces/cross_device/options.h"
#include "client/faces/cross_device/reduction_plan.h"

namespace tutti::cross_device {

// How a class reduces dense values.
struct Method {
  std::string_view name;
  // As an all-reduce where values and destinations are on the same devices.
  bool all_reduce = false;
  std::optional<int64_t> num_packs = std::nullopt;     // Of a batch; none: one for each tensor.
  std::optional<DeviceName> reduce_to = std::nullopt;  // Instead of the first destination.
};

// Threads may share an object, but not its group: all ranks must make a group's calls in one order.
// The group is not owned.
class CrossDeviceOps {
 public:
  using Pair = std::pair<PerReplica, Destinations>;

  // The sum or mean of all components, of all ranks in a group, on every destination. Every copy
  // has the same bits, in every run. MEAN divides the sum by the number of components. 16-bit
  // floats are summed in f32 and rounded once; integers wrap, and have no MEAN. Sparse values: the
  // rows of all components in order, duplicates kept; MEAN divides them by the components' number.
  //
  // INVALID_ARGUMENT: see plan_reduction(), CommunicationOptions::check() and above.
  // DEADLINE_EXCEEDED, UNAVAILABLE and others in a group: see tutti.h.
  Result<Mirrored> reduce(ReduceOp op, const PerReplica& value, const Destinations& destinations,
                          const CommunicationOptions& options = {}) const;
  // The same for each pair of value and destinations, in order. In a group the dense values of a
  // dtype are reduced in packs. Results do not depend on the packs.
  Result<std::vector<Mirrored>> batch_reduce(ReduceOp op, const std::vector<Pair>& pairs,
                                             const CommunicationOptions& options = {}) const;
  // A copy of the value on every destination; in a group, of that of rank `root`. There the other
  // ranks pass a value of the same shape and dtype, the contents of which do not matter.
  // INVALID_ARGUMENT: the root is no rank; see also find_targets(), CommunicationOptions::check()
  // and, for sparse values, check_value(). In a group also errors as reduce().
  Result<Mirrored> broadcast(const Value& value, const Destinations& destinations, int root = 0,
                             const CommunicationOptions& options = {}) const;

  tutti_group* group() const { return group_; }

 protected:
  CrossDeviceOps(Method method, tutti_group* group) : method_(std::move(method)), group_(group) {}

 private:
  Place place() const;
  Result<std::vector<Mirrored>> run(std::string_view verb,
                                    const Result<std::vector<ReductionPlan>>& plans,
                                    const CommunicationOptions& options) const;

  Method method_;
  tutti_group* group_;
};

// Hierarchical copy: sums within each group of devices, then of the groups' sums, then copies back.
//
// In one process the groups are those of hierarchical() (reduction_plan.h). In a group of processes
// they are the hosts on which the ranks run: ranks of a host are summed in the order of their
// numbers, then the hosts. Where values and destinations are on different devices, as
// ReductionToOneDevice.
class HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  // Packs of a batch; std::nullopt: no packing. INVALID_ARGUMENT: not above 0.
  static Result<HierarchicalCopyAllReduce> create(std::optional<int64_t> num_packs = 1,
                                                  tutti_group* group = nullptr);

 private:
  using CrossDeviceOps::CrossDeviceOps;
};

// Sums everything on one device, from left to right, and copies the result to the destinations. In
// a group that device's rank gets the sum first.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  // "": the first destination. INVALID_ARGUMENT: no device.
  static Result<ReductionToOneDevice> create(const std::string& reduce_to_device = "",
                                             tutti_group* group = nullptr);

 private:
  using CrossDeviceOps::CrossDeviceOps;
};

}  // namespace tutti::cross_device
