// Values that have a component on each of several devices: tf.distribute's PerReplica and Mirrored.
#pragma once

#include <string>
#include <vector>

#include "client/faces/base/base.h"
#include "client/faces/cross_device/device_name.h"

namespace tutti::cross_device {

struct Component {
  Value value;
  DeviceName device;
};

// One component for each replica of this process, in their order; they may differ.
struct PerReplica {
  std::vector<Component> components;

  PerReplica() = default;
  explicit PerReplica(std::vector<Component> given) : components(std::move(given)) {}
  // Component i on /device:CPU:i.
  explicit PerReplica(std::vector<Value> values);
};

// Equal components on the devices of this process; none where another process has the destination.
// No two share memory.
struct Mirrored {
  std::vector<Component> components;
};

// Where a result goes. A device without a task is one of this process, in a group of each.
struct Destinations {
  std::vector<DeviceName> devices;

  explicit Destinations(std::vector<DeviceName> given) : devices(std::move(given)) {}
  // The devices of the components.
  explicit Destinations(const PerReplica& value);
  explicit Destinations(const Mirrored& value);
};

}  // namespace tutti::cross_device
