#include "client/distribute/tensor.h"

#include <limits>

#include "daemon/kernel/kernel.h"

namespace tutti::distribute {

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return count;
}

Status validate_shape(const Shape& shape, Dtype dtype) {
  int64_t most = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(size_of(dtype));
  for (const int64_t side : shape) {
    if (side < 0) return invalid_argument("shape " + to_string(shape) + " has a side below 0");
    if (side > 0) most /= side;
  }
  if (most > 0) return {};
  return invalid_argument("shape " + to_string(shape) + " has more elements than memory holds");
}

Tensor::Tensor(Dtype dtype, Shape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      memory_(std::make_unique_for_overwrite<std::byte[]>(bytes())) {}

Tensor Tensor::copy_of(const TensorView& view) {
  Tensor copy(view.dtype, view.shape);
  copy.assign(view);
  return copy;
}

void Tensor::assign(const TensorView& from) {
  require(from.dtype == dtype_ && from.shape == shape_, "a tensor of another kind is assigned");
  copy_bytes(data(), from.data, bytes());
}

std::string to_string(const Shape& shape) {
  std::string text;
  for (const int64_t side : shape) text += (text.empty() ? "" : ",") + std::to_string(side);
  return "[" + text + "]";
}

std::string to_string(Dtype dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + to_string(shape);
}

Result<size_t> axis_from_start(int64_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis >= -rank && axis < rank) return static_cast<size_t>(axis < 0 ? axis + rank : axis);
  return invalid_argument("axis=" + std::to_string(axis) +
                          " is out of range for a value of shape " + to_string(shape) +
                          ", which has " + std::to_string(rank) + " axes");
}

}  // namespace tutti::distribute
