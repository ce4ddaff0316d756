#include "client/faces/distribute/topology.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "client/faces/distribute/ring.h"

namespace tutti::distribute {
namespace {

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return "(" + text + ")";
}

Status validate_mesh(const std::vector<int>& shape) {
  const auto positive = [](int size) { return size >= 1; };
  if (shape.size() != kMeshRank || !std::ranges::all_of(shape, positive))
    return invalid_argument("mesh_shape=" + list(shape) +
                            " must have 4 positive sizes, x, y, z and "
                            "core; use 1 for a dimension that is not needed");
  int64_t positions = 1;
  for (const int size : shape) {
    positions *= size;
    if (positions > kMeshPositionsMax)
      return invalid_argument("mesh_shape=" + list(shape) + " has more than " +
                              std::to_string(kMeshPositionsMax) + " positions; use a smaller mesh");
  }
  return {};
}

Status validate_tasks(const std::vector<std::vector<std::vector<int>>>& tasks) {
  if (tasks.empty() || tasks[0].empty())
    return invalid_argument("device_coordinates has no device; list [task][device][4]");
  for (size_t task = 1; task < tasks.size(); ++task)
    if (tasks[task].size() != tasks[0].size())
      return invalid_argument("device_coordinates: task " + std::to_string(task) + " has " +
                              std::to_string(tasks[task].size()) + " devices, task 0 has " +
                              std::to_string(tasks[0].size()) + "; give each task equally many");
  return {};
}

// Each task with its place among the tasks, in the order of their first device.
std::map<int, size_t> tasks_of(const std::vector<DeviceId>& tour) {
  std::map<int, size_t> tasks;
  for (const DeviceId& device : tour) tasks.try_emplace(device.task, tasks.size());
  return tasks;
}

}  // namespace

std::string to_string(const Coordinates& at) { return list({at.begin(), at.end()}); }

std::vector<int> order_by_task(const std::vector<DeviceId>& devices) {
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int i) { return devices[static_cast<size_t>(i)]; });
  return order;
}

int count_task_changes(const std::vector<DeviceId>& tour) {
  int changes = 0;
  for (size_t i = 0; i < tour.size(); ++i)
    if (tour[i].task != tour[(i + 1) % tour.size()].task) ++changes;
  return changes;
}

Result<Topology> Topology::create(
    const std::vector<int>& mesh_shape,
    const std::vector<std::vector<std::vector<int>>>& device_coordinates, std::string device_type) {
  if (Status status = validate_mesh(mesh_shape); !status.ok()) return status;
  if (Status status = validate_tasks(device_coordinates); !status.ok()) return status;
  Topology topology;
  std::ranges::copy(mesh_shape, topology.mesh_shape_.begin());
  topology.device_type_ = std::move(device_type);
  topology.devices_per_task_ = static_cast<int>(device_coordinates[0].size());
  const auto positions =
      std::accumulate(mesh_shape.begin(), mesh_shape.end(), int64_t{1}, std::multiplies<>());
  topology.index_at_.assign(static_cast<size_t>(positions), -1);
  for (const auto& task : device_coordinates)
    for (const std::vector<int>& point : task)
      if (Status status = topology.add(point); !status.ok()) return status;
  topology.find_missing();
  return topology;
}

Status Topology::add(const std::vector<int>& point) {
  const DeviceId added = id(static_cast<int>(devices_.size()));
  const auto refuse = [&](const std::string& why) {
    return invalid_argument("device_coordinates of task " + std::to_string(added.task) +
                            ", device " + std::to_string(added.device) + ": " + list(point) + why);
  };
  if (point.size() != kMeshRank) return refuse(" must have 4 numbers, x, y, z and core");
  Coordinates at;
  std::ranges::copy(point, at.begin());
  if (!contains(at)) return refuse(" is not in mesh_shape=" + to_string(mesh_shape_));
  int& index = index_at_[position(at)];
  if (index >= 0)
    return refuse(" has a device already, of task " + std::to_string(id(index).task) +
                  "; give each device its own point");
  index = static_cast<int>(devices_.size());
  devices_.push_back(at);
  return {};
}

void Topology::find_missing() {
  for (size_t i = 0; i < index_at_.size(); ++i) {
    if (index_at_[i] >= 0) continue;
    Coordinates at;
    size_t rest = i;
    for (size_t axis = kMeshRank; axis-- > 0; rest /= static_cast<size_t>(mesh_shape_[axis]))
      at[axis] = static_cast<int>(rest % static_cast<size_t>(mesh_shape_[axis]));
    missing_.push_back(at);
  }
}

// Row-major: the core counts fastest.
size_t Topology::position(const Coordinates& at) const {
  size_t position = 0;
  for (size_t axis = 0; axis < kMeshRank; ++axis)
    position = position * static_cast<size_t>(mesh_shape_[axis]) + static_cast<size_t>(at[axis]);
  return position;
}

bool Topology::contains(const Coordinates& at) const {
  for (size_t axis = 0; axis < kMeshRank; ++axis)
    if (at[axis] < 0 || at[axis] >= mesh_shape_[axis]) return false;
  return true;
}

Result<Coordinates> Topology::coordinates(DeviceId device) const {
  const bool there = device.task >= 0 && device.task < num_tasks() && device.device >= 0 &&
                     device.device < devices_per_task_;
  if (there) {
    const int index = device.task * devices_per_task_ + device.device;
    return devices_[static_cast<size_t>(index)];
  }
  return Status(Code::out_of_range, "task " + std::to_string(device.task) + ", device " +
                                        std::to_string(device.device) +
                                        " is not in the topology of " +
                                        std::to_string(num_tasks()) + " tasks with " +
                                        std::to_string(devices_per_task_) + " devices each");
}

Result<DeviceId> Topology::device_at(const Coordinates& at) const {
  if (!contains(at))
    return invalid_argument("coordinates " + to_string(at) +
                            " are not in mesh_shape=" + to_string(mesh_shape_));
  const int index = index_at_[position(at)];
  if (index >= 0) return id(index);
  return invalid_argument("coordinates " + to_string(at) +
                          " have no device; missing_devices() lists such points");
}

std::string Topology::device_name(DeviceId device, const std::optional<std::string>& job) const {
  return (job ? "/job:" + *job : "") + "/task:" + std::to_string(device.task) +
         "/device:" + device_type_ + ":" + std::to_string(device.device);
}

std::string Topology::host_name(int task, const std::optional<std::string>& job) {
  return (job ? "/job:" + *job : "") + "/task:" + std::to_string(task) + "/device:CPU:0";
}

std::vector<DeviceId> Topology::ring_order() const {
  std::vector<DeviceId> tour;
  for (const Chip& chip : ring_of({mesh_shape_[0], mesh_shape_[1], mesh_shape_[2]}))
    for (int core = 0; core < mesh_shape_[3]; ++core) {
      const int index = index_at_[position({chip[0], chip[1], chip[2], core})];
      if (index >= 0) tour.push_back(id(index));
    }
  const std::map<int, size_t> tasks = tasks_of(tour);
  if (tasks.size() > 1 && count_task_changes(tour) > static_cast<int>(tasks.size()))
    std::ranges::stable_sort(tour, {}, [&](DeviceId device) { return tasks.at(device.task); });
  return tour;
}

}  // namespace tutti::distribute
