// Values between the C ABI and C++.
#pragma once

#include <string>
#include <vector>

#include "client/cross_device/c_api.h"
#include "client/cross_device/distributed_value.h"

namespace tutti::cross_device {

// "" for NULL, which no text of a binding may be.
std::string text_of(const char* text);

// A view of the caller's memory. INVALID_ARGUMENT: no dtype, or a wrong shape or pointer.
Result<Tensor> tensor_of(const tutti_tensor_view& view);
Result<Value> value_of(const tutti_component& component);
Result<PerReplica> per_replica_of(const tutti_component* components, size_t count);

// The view of a value, valid as long as the value and, for `device`, the text.
tutti_component view_of(const Value& value, const char* device);

}  // namespace tutti::cross_device

// What a call returned, and the texts of its devices.
struct tutti_mirrored {
  explicit tutti_mirrored(std::vector<tutti::cross_device::Mirrored> results);

  std::vector<tutti::cross_device::Mirrored> values;
  std::vector<std::vector<std::string>> devices;
};
