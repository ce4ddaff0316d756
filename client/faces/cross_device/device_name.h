// Names of devices, in TensorFlow's form. All values are in host memory: a device is a place to
// which a value belongs, by which values and destinations are matched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/faces/base/base.h"

namespace tutti::cross_device {

using namespace faces;
using faces::to_string;  // Besides that of a device.

struct DeviceName {
  std::string job;  // "": not given.
  int task = -1;    // The host in a process with values of several, the rank in a group; -1: none.
  std::string type = "CPU";
  int index = 0;
  auto operator<=>(const DeviceName&) const = default;
};

// Reads "/job:worker/replica:0/task:1/device:GPU:3"; each part but the type may be missing, and
// "device:" too, as in "GPU:3", and the number of a CPU or GPU, as in "cpu". The replica is
// ignored. INVALID_ARGUMENT with the form for anything else, also for an empty text.
Result<DeviceName> parse_device(std::string_view text);

// "/job:worker/task:1/device:GPU:3", without the parts that are not given.
std::string to_string(const DeviceName& device);

// The devices of the texts. The first error, if there is one.
Result<std::vector<DeviceName>> parse_devices(const std::vector<std::string>& texts);

}  // namespace tutti::cross_device
