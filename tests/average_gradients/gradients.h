// Towers of small gradients, and what their means hold.
#pragma once

#include "client/faces/average_gradients/average_gradients.h"
#include "tests/cross_device/values.h"

namespace tutti::average_gradients {

using cross_device::dense;
using cross_device::fails;
using cross_device::floats;
using cross_device::IndexedSlices;
using cross_device::Numbers;
using cross_device::numbers_of;
using cross_device::Shape;
using cross_device::slices;
using cross_device::Tensor;
using cross_device::tensor_of;

using Means = std::vector<std::optional<Value>>;

inline Tensor scalar(double number, Dtype dtype = Dtype::f32) {
  return tensor_of(dtype, {}, {number});
}
inline Gradient gradient(Value value, std::string variable = "") {
  return {std::move(value), std::move(variable)};
}
inline Gradient none(std::string variable = "") { return {{}, std::move(variable)}; }

// Towers with one variable, 'w'.
inline std::vector<Tower> towers_of(const std::vector<std::optional<Value>>& values) {
  std::vector<Tower> towers;
  for (const std::optional<Value>& value : values) towers.push_back({{value, "w"}});
  return towers;
}

inline Numbers numbers_at(const Means& means, size_t index) {
  return numbers_of(elements_of(*means.at(index)));
}
inline const IndexedSlices& slices_at(const Means& means, size_t index) {
  return std::get<IndexedSlices>(*means.at(index));
}

}  // namespace tutti::average_gradients
