// Cross-device operations, their arguments and errors: cross_device_ops.h.
#include "client/faces/cross_device/cross_device_ops.h"

#include "client/faces/base/base.h"
#include "client/faces/cross_device/reduction.h"

namespace tutti::cross_device {
namespace {

// Copies for the devices of this process; the first is the value itself.
Mirrored mirror(const Value& value, const std::vector<DeviceName>& devices) {
  Mirrored mirrored;
  for (const DeviceName& device : devices)
    mirrored.components.push_back({mirrored.components.empty() ? value : clone(value), device});
  return mirrored;
}

Result<std::vector<ReductionPlan>> plan_all(ReduceOp op,
                                            const std::vector<CrossDeviceOps::Pair>& pairs,
                                            const CommunicationOptions& options,
                                            const Place& place) {
  if (const Status checked = options.check(); !checked.ok()) return checked;
  std::vector<ReductionPlan> plans;
  for (const auto& [value, destinations] : pairs) {
    Result<ReductionPlan> plan = plan_reduction(op, value, destinations, place);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

Status check_broadcast(const Value& value, int root, const Place& place,
                       const CommunicationOptions& options) {
  if (const Status checked = options.check(); !checked.ok()) return checked;
  if (root < 0 || root >= place.size)
    return invalid_argument("root " + std::to_string(root) + " is no rank of the " +
                            std::to_string(place.size));
  return is_sparse(value) ? check_value(value) : Status();
}

Result<Description> describe_broadcast(const Result<Value>& value, int root) {
  if (!value.ok()) return value.status();
  return Description{"broadcast of " + describe(*value) + " with values " +
                     to_string(elements_of(*value).shape()) + " from rank " + std::to_string(root)};
}

// Makes the copy of every rank that of the root.
Status broadcast_in_group(const Communicator& communicator, const Result<Value>& copy, int root) {
  const auto agreed = agree(communicator, describe_broadcast(copy, root));
  if (!agreed.ok()) return agreed.status();
  const Status sent = communicator.broadcast(elements_of(*copy), root);
  const auto* slices = std::get_if<IndexedSlices>(&*copy);
  if (!sent.ok() || slices == nullptr) return sent;
  return communicator.broadcast(slices->indices, root);
}

}  // namespace

Place CrossDeviceOps::place() const {
  if (group_ == nullptr) return {};
  return {tutti_rank(group_), tutti_world_size(group_), true};
}

Result<std::vector<Mirrored>> CrossDeviceOps::run(std::string_view verb,
                                                  const Result<std::vector<ReductionPlan>>& plans,
                                                  const CommunicationOptions& options) const {
  if (group_ != nullptr) return reduce_in_group(group_, method_, verb, plans, options);
  if (!plans.ok()) return plans.status();
  std::vector<Mirrored> results;
  for (const ReductionPlan& plan : *plans) results.push_back(reduce_here(method_, plan));
  return results;
}

Result<Mirrored> CrossDeviceOps::reduce(ReduceOp op, const PerReplica& value,
                                        const Destinations& destinations,
                                        const CommunicationOptions& options) const {
  const auto plans = no_throw([&] {
    return plan_all(op, {{value, destinations}}, options, place());
  });
  Result<std::vector<Mirrored>> results = run("reduce", plans, options);
  if (!results.ok()) return results.status();
  return std::move(results->front());
}

Result<std::vector<Mirrored>> CrossDeviceOps::batch_reduce(
    ReduceOp op, const std::vector<Pair>& pairs, const CommunicationOptions& options) const {
  const auto plans = no_throw([&] { return plan_all(op, pairs, options, place()); });
  return run("batch_reduce", plans, options);
}

Result<Mirrored> CrossDeviceOps::broadcast(const Value& value, const Destinations& destinations,
                                           int root, const CommunicationOptions& options) const {
  Targets targets;
  const Result<Value> copy = no_throw([&]() -> Result<Value> {
    const Status checked = check_broadcast(value, root, place(), options);
    if (!checked.ok()) return checked;
    Result<Targets> found = find_targets(destinations, place());
    if (!found.ok()) return found.status();
    targets = *std::move(found);
    return clone(value);
  });
  const Communicator communicator(group_, {milliseconds_of(options.timeout_seconds), ""});
  const Status sent = broadcast_in_group(communicator, copy, root);
  if (!sent.ok()) return sent;
  return mirror(*copy, targets.devices);
}

Result<HierarchicalCopyAllReduce> HierarchicalCopyAllReduce::create(
    std::optional<int64_t> num_packs, tutti_group* group) {
  if (num_packs && *num_packs <= 0)
    return invalid_argument("HierarchicalCopy requires num_packs > 0, but " +
                            std::to_string(*num_packs) + " is specified");
  Method method{.name = "HierarchicalCopyAllReduce", .all_reduce = true, .num_packs = num_packs};
  return HierarchicalCopyAllReduce(std::move(method), group);
}

Result<ReductionToOneDevice> ReductionToOneDevice::create(const std::string& reduce_to_device,
                                                          tutti_group* group) {
  Method method{.name = "ReductionToOneDevice"};
  if (!reduce_to_device.empty()) {
    Result<DeviceName> device = parse_device(reduce_to_device);
    if (!device.ok()) return device.status();
    const int size = group == nullptr ? 1 : tutti_world_size(group);
    if (group != nullptr && device->task >= size)
      return invalid_argument("reduce_to_device " + to_string(*device) + " is on no rank: the " +
                              "group has " + std::to_string(size));
    method.reduce_to = *std::move(device);
  }
  return ReductionToOneDevice(std::move(method), group);
}

}  // namespace tutti::cross_device
