// Tensors of small whole numbers, and what a result holds.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "client/faces/cross_device/cross_device_ops.h"
#include "tests/support/values.h"

namespace tutti::cross_device {

using Numbers = std::vector<double>;

inline Tensor tensor_of(Dtype dtype, Shape shape, const Numbers& numbers) {
  Tensor tensor = Tensor::allocate(dtype, std::move(shape));
  EXPECT_EQ(tensor.count(), numbers.size());
  tutti::testing::Bytes bytes(tensor.bytes());
  for (size_t i = 0; i < numbers.size(); ++i) tutti::testing::put(bytes, dtype, i, numbers[i]);
  std::ranges::copy(bytes, tensor.data());
  return tensor;
}

inline Tensor floats(const Numbers& numbers) {
  return tensor_of(Dtype::f32, {static_cast<int64_t>(numbers.size())}, numbers);
}

inline Numbers numbers_of(const Tensor& tensor) {
  const tutti::testing::Bytes bytes(tensor.data(), tensor.data() + tensor.bytes());
  Numbers numbers;
  for (size_t i = 0; i < tensor.count(); ++i)
    numbers.push_back(tutti::testing::get(bytes, tensor.dtype(), i));
  return numbers;
}

inline const Tensor& dense(const Value& value) { return std::get<Tensor>(value); }

// The slices of rows of `width` f32 at these i64 indices.
inline IndexedSlices slices(const std::vector<int64_t>& indices, const Numbers& values,
                            int64_t width, std::optional<Shape> dense_shape = {}) {
  const auto rows = static_cast<int64_t>(indices.size());
  const Numbers numbers(indices.begin(), indices.end());
  return {tensor_of(Dtype::f32, {rows, width}, values), tensor_of(Dtype::i64, {rows}, numbers),
          std::move(dense_shape)};
}

// One component for each number, on /device:CPU:i.
inline PerReplica per_replica(const Numbers& numbers, Dtype dtype = Dtype::f32) {
  std::vector<Value> values;
  for (const double number : numbers) values.emplace_back(tensor_of(dtype, {}, {number}));
  return PerReplica(std::move(values));
}

inline std::vector<DeviceName> devices(const std::vector<std::string>& texts) {
  Result<std::vector<DeviceName>> parsed = parse_devices(texts);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return *std::move(parsed);
}

// Whether all components have these bytes, which no two of them share.
inline ::testing::AssertionResult all_have(const Mirrored& result, const Numbers& expected) {
  for (const Component& component : result.components) {
    const Tensor& tensor = dense(component.value);
    if (!std::ranges::equal(numbers_of(tensor), expected))
      return ::testing::AssertionFailure() << to_string(component.device) << " has "
                                           << ::testing::PrintToString(numbers_of(tensor));
    for (const Component& other : result.components)
      if (&other != &component && tensor.bytes() != 0 && dense(other.value).data() == tensor.data())
        return ::testing::AssertionFailure() << "components share memory";
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult fails(const Status& status, Code code, const std::string& part) {
  if (status.code() == code && status.message().find(part) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.to_string();
}

}  // namespace tutti::cross_device
