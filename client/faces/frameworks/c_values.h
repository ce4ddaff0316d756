// Values between the C ABI and C++.
#pragma once

#include <string>
#include <vector>

#include "client/faces/base/base.h"
#include "client/faces/frameworks/c_api.h"

// What a call returned.
struct tutti_results {
  struct Component {
    tutti::faces::Value value;
    std::string device;
  };
  std::vector<std::vector<Component>> values;
};

namespace tutti::frameworks {

// "" for NULL, which no text of a binding may be.
std::string text_of(const char* text);

// A view of the caller's memory. INVALID_ARGUMENT: no dtype, or a wrong shape or pointer.
Result<faces::Tensor> tensor_of(const tutti_tensor_view& view);
Result<std::vector<faces::Tensor>> tensors_of(const tutti_tensor_view* views, size_t count);
Result<faces::Value> value_of(const tutti_component& component);

// Hands results to the caller, tensors as values of one component; an error as it is.
Status give(Result<std::vector<faces::Tensor>> tensors, tutti_results** results);
Status give(Result<faces::Tensor> tensor, tutti_results** results);

}  // namespace tutti::frameworks
