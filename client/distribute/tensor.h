// Tensors in host memory, contiguous and row-major: views of the caller's memory, and owned ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti::distribute {

using Shape = std::vector<int64_t>;

// The number of elements; 1 for a scalar, whose shape is empty. Sides are not negative.
int64_t count_of(const Shape& shape);

// Memory that its owner keeps for as long as the view is used.
struct TensorView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::f32;
  Shape shape;

  int64_t count() const { return count_of(shape); }
  size_t bytes() const { return static_cast<size_t>(count()) * size_of(dtype); }
};

// OK for sides from 0 on whose product fits in memory, else INVALID_ARGUMENT.
Status validate_shape(const Shape& shape, Dtype dtype);

class Tensor {
 public:
  Tensor() = default;  // A tensor of no elements.
  // The contents are undefined. `shape` must be valid.
  Tensor(Dtype dtype, Shape shape);
  static Tensor copy_of(const TensorView& view);

  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t count() const { return count_of(shape_); }
  size_t bytes() const { return view().bytes(); }
  std::byte* data() { return memory_.get(); }
  const std::byte* data() const { return memory_.get(); }
  TensorView view() const { return {memory_.get(), dtype_, shape_}; }
  // Copies `from`, of the same dtype and shape, into this tensor.
  void assign(const TensorView& from);

 private:
  Dtype dtype_ = Dtype::f32;
  Shape shape_ = {0};
  std::unique_ptr<std::byte[]> memory_;
};

// A value of every replica of this process, in the order of their ids.
using PerReplica = std::vector<TensorView>;
// Several, as the leaves of a nested structure.
using Leaves = std::vector<PerReplica>;

// "[2,3]".
std::string to_string(const Shape& shape);
// "f32[2,3]".
std::string to_string(Dtype dtype, const Shape& shape);

// The axis counted from 0; a negative one counts from the end. INVALID_ARGUMENT: out of range.
Result<size_t> axis_from_start(int64_t axis, const Shape& shape);

}  // namespace tutti::distribute
