// Plans of reductions: reduction_plan.h.
#include "client/faces/cross_device/reduction_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "client/faces/cross_device/sparse.h"

namespace tutti::cross_device {
namespace {

std::string replica(size_t index) { return "replica " + std::to_string(index); }

// All components alike but for rows and dense_shape.
Status check_alike(const std::vector<Value>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (const Status checked = check_value(values[i]); !checked.ok()) return checked;
    if (describe(values[i]) != describe(values[0]))
      return invalid_argument("the replicas' values differ: " + replica(0) + " has " +
                              describe(values[0]) + ", " + replica(i) + " has " +
                              describe(values[i]));
  }
  return {};
}

// Gives slices without a dense_shape that of the first that have one.
void complete_dense_shapes(std::vector<Value>& values) {
  std::optional<Shape> known;
  for (const Value& value : values)
    if (!known) known = std::get<IndexedSlices>(value).dense_shape;
  for (Value& value : values) {
    auto& slices = std::get<IndexedSlices>(value);
    if (!slices.dense_shape) slices.dense_shape = known;
  }
}

// The components, those that are sparse made dense unless all are.
Result<std::vector<Value>> of_one_kind(const PerReplica& value) {
  std::vector<Value> values;
  for (const Component& component : value.components) values.push_back(component.value);
  if (std::ranges::all_of(values, is_sparse)) {
    complete_dense_shapes(values);
    return values;
  }
  for (Value& one : values) {
    const auto* slices = std::get_if<IndexedSlices>(&one);
    if (slices == nullptr) continue;
    if (const Status checked = check_value(one); !checked.ok()) return checked;
    Result<Tensor> dense = densify(*slices);
    if (!dense.ok()) return dense.status();
    one = *std::move(dense);
  }
  return values;
}

Status check_devices(const std::vector<DeviceName>& devices, const Place& place) {
  for (const DeviceName& device : devices)
    if (place.in_group && device.task >= 0 && device.task != place.rank)
      return invalid_argument("a value is on " + to_string(device) + ", but this is rank " +
                              std::to_string(place.rank) + "; pass the values of this rank alone");
  return {};
}

Status check_mean(const ReductionPlan& plan, const Place& place) {
  if (plan.devices.size() == 1 && place.size == 1 && plan.in_place()) return {};
  return check_reducible(plan.op, plan.dtype());
}

void put(ReductionPlan& plan, std::vector<Value> values) {
  if (!is_sparse(values[0])) {
    for (Value& one : values) plan.dense.push_back(std::get<Tensor>(std::move(one)));
    return;
  }
  std::vector<IndexedSlices> parts;
  for (Value& one : values) parts.push_back(std::get<IndexedSlices>(std::move(one)));
  plan.sparse = concatenate(parts);
}

Grouping halves(size_t count) {
  Grouping grouping = flat(count);
  const size_t half = (count + 1) / 2;
  std::vector<size_t>& first = grouping[0];
  if (half < count) {
    grouping.emplace_back(first.begin() + static_cast<ptrdiff_t>(half), first.end());
    grouping[0].resize(half);
  }
  return grouping;
}

}  // namespace

Grouping hierarchical(const std::vector<DeviceName>& devices) {
  std::map<std::pair<std::string, int>, size_t> groups;  // By job and task.
  Grouping grouping;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto [found, added] =
        groups.try_emplace({devices[i].job, devices[i].task}, grouping.size());
    if (added) grouping.emplace_back();
    grouping[found->second].push_back(i);
  }
  return grouping.size() > 1 ? grouping : halves(devices.size());
}

Result<Targets> find_targets(const Destinations& destinations, const Place& place) {
  if (destinations.devices.empty()) return invalid_argument("destinations can not be empty");
  Targets targets;
  std::set<int> ranks;
  for (const DeviceName& device : destinations.devices) {
    if (place.in_group && device.task >= place.size)
      return invalid_argument("destination " + to_string(device) +
                              " is on no rank: the group has " + std::to_string(place.size));
    const bool everywhere = !place.in_group || device.task < 0;
    const bool here = everywhere || device.task == place.rank;
    if (here && std::ranges::find(targets.devices, device) == targets.devices.end())
      targets.devices.push_back(device);
    for (int rank = 0; everywhere && rank < place.size; ++rank) ranks.insert(rank);
    if (!everywhere) ranks.insert(device.task);
  }
  targets.ranks.assign(ranks.begin(), ranks.end());
  return targets;
}

bool ReductionPlan::in_place() const {
  return std::set(devices.begin(), devices.end()) ==
         std::set(targets.devices.begin(), targets.devices.end());
}

std::string ReductionPlan::describe() const {
  std::string text = std::string(name_of(op)) + " of " +
                     faces::describe(sparse ? Value(*sparse) : Value(dense[0])) + " for ranks ";
  for (const int rank : targets.ranks)
    text += (rank == targets.ranks[0] ? "" : ",") + std::to_string(rank);
  return text;
}

Result<ReductionPlan> plan_reduction(ReduceOp op, const PerReplica& value,
                                     const Destinations& destinations, const Place& place) {
  if (value.components.empty()) return invalid_argument("per_replica_value must be non-empty");
  ReductionPlan plan{.op = op};
  plan.devices = Destinations(value).devices;
  if (const Status checked = check_devices(plan.devices, place); !checked.ok()) return checked;
  Result<Targets> targets = find_targets(destinations, place);
  if (!targets.ok()) return targets.status();
  plan.targets = *std::move(targets);
  Result<std::vector<Value>> values = of_one_kind(value);
  if (!values.ok()) return values.status();
  if (const Status checked = check_alike(*values); !checked.ok()) return checked;
  put(plan, *std::move(values));
  if (const Status checked = check_mean(plan, place); !checked.ok()) return checked;
  return plan;
}

}  // namespace tutti::cross_device
