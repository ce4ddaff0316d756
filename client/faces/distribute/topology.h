// The devices of a job as points of a 4-dimensional mesh, as tf.tpu.experimental.Topology: which
// task has the device at which coordinates, and in which order a ring visits them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti::distribute {

constexpr size_t kMeshRank = 4;
// Positions of a mesh, present or missing; more are refused.
constexpr int64_t kMeshPositionsMax = int64_t{1} << 24;

// x, y, z and the core within the chip. On GPU nodes, for example, node, 0, NVLink island, GPU.
using Coordinates = std::array<int, kMeshRank>;

// A device by its task (host process) and its number within the task, both from 0.
struct DeviceId {
  int task = 0;
  int device = 0;
  auto operator<=>(const DeviceId&) const = default;
};

// The indices of `devices` in ascending order of task, then device. Equal devices keep their order.
std::vector<int> order_by_task(const std::vector<DeviceId>& devices);

// How often a closed tour goes from one task to another: for 2 tasks at least 2.
int count_task_changes(const std::vector<DeviceId>& tour);

class Topology {
 public:
  // `mesh_shape`: 4 sizes. `device_coordinates`: [task][device][4], as many devices in each task.
  // INVALID_ARGUMENT: not 4 positive sizes, or a mesh of more than kMeshPositionsMax; no device;
  // tasks with different numbers of devices; a point that has not 4 coordinates, is not in the
  // mesh, or has two devices. `device_type` is for names only, as "GPU" or "TPU".
  static Result<Topology> create(
      const std::vector<int>& mesh_shape,
      const std::vector<std::vector<std::vector<int>>>& device_coordinates,
      std::string device_type = "GPU");

  const Coordinates& mesh_shape() const { return mesh_shape_; }
  const std::string& device_type() const { return device_type_; }
  int num_tasks() const { return static_cast<int>(devices_.size()) / devices_per_task_; }
  int devices_per_task() const { return devices_per_task_; }
  // Coordinates of devices, all of task 0 first.
  const std::vector<Coordinates>& devices() const { return devices_; }
  // Coordinates without a device, ascending.
  const std::vector<Coordinates>& missing_devices() const { return missing_; }

  // OUT_OF_RANGE: no such task or device.
  Result<Coordinates> coordinates(DeviceId device) const;
  // INVALID_ARGUMENT: not in the mesh, or a missing device.
  Result<DeviceId> device_at(const Coordinates& at) const;

  // "/job:J/task:T/device:GPU:D"; without job "/task:T/device:GPU:D".
  std::string device_name(DeviceId device, const std::optional<std::string>& job = {}) const;
  // "/job:J/task:T/device:CPU:0", too: the host of a task.
  static std::string host_name(int task, const std::optional<std::string>& job = {});

  // All devices in an order for a ring. It goes through the mesh as a snake, so that
  // neighbours are adjacent; if that changes tasks more often than a ring over the tasks has to,
  // the devices of each task are put together, in the order in which the snake first meets them.
  std::vector<DeviceId> ring_order() const;

 private:
  Topology() = default;
  Status add(const std::vector<int>& point);
  void find_missing();
  size_t position(const Coordinates& at) const;
  bool contains(const Coordinates& at) const;
  DeviceId id(int index) const { return {index / devices_per_task_, index % devices_per_task_}; }

  Coordinates mesh_shape_ = {};
  std::string device_type_;
  int devices_per_task_ = 0;
  std::vector<Coordinates> devices_;
  std::vector<int> index_at_;  // Index in `devices_` by position(); -1: missing.
  std::vector<Coordinates> missing_;
};

// "(0,1,0,3)".
std::string to_string(const Coordinates& at);

}  // namespace tutti::distribute
