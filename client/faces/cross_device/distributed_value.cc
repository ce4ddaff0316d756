// PerReplica, Mirrored and destinations: distributed_value.h.
#include "client/faces/cross_device/distributed_value.h"

namespace tutti::cross_device {
namespace {

std::vector<DeviceName> devices_of(const std::vector<Component>& components) {
  std::vector<DeviceName> devices;
  for (const Component& component : components) devices.push_back(component.device);
  return devices;
}

}  // namespace

PerReplica::PerReplica(std::vector<Value> values) {
  for (Value& value : values) {
    const auto index = static_cast<int>(components.size());
    components.push_back({std::move(value), {.index = index}});
  }
}

Destinations::Destinations(const PerReplica& value) : devices(devices_of(value.components)) {}
Destinations::Destinations(const Mirrored& value) : devices(devices_of(value.components)) {}

}  // namespace tutti::cross_device
