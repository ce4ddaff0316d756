// Tensors and indexed slices: tensor.h.
#include "client/faces/base/tensor.h"

#include <cstring>

#include "client/faces/base/reduce_op.h"
#include "daemon/kernel/kernel.h"

namespace tutti::faces {
namespace {

void drop(std::byte[]) {}  // Of memory that is the caller's.

Shape row_shape(const Tensor& values) { return {values.shape().begin() + 1, values.shape().end()}; }

Status check_slices(const IndexedSlices& slices) {
  const Tensor& indices = slices.indices;
  if (indices.dtype() != Dtype::i32 && indices.dtype() != Dtype::i64)
    return invalid_argument("the indices of slices are i32 or i64, not " +
                            std::string(name_of(indices.dtype())));
  if (slices.values.shape().empty() || indices.shape().size() != 1 ||
      indices.shape()[0] != slices.values.shape()[0])
    return invalid_argument("slices need one index for each row: values " +
                            to_string(slices.values.shape()) + ", indices " +
                            to_string(indices.shape()));
  if (!slices.dense_shape) return {};
  const Shape& dense = *slices.dense_shape;
  if (dense.empty() || Shape(dense.begin() + 1, dense.end()) != row_shape(slices.values))
    return invalid_argument("slices of values " + to_string(slices.values.shape()) +
                            " are no rows of dense_shape " + to_string(dense));
  return {};
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ",") + std::to_string(size);
  return "[" + text + "]";
}

Result<size_t> count_of(const Shape& shape, Dtype dtype) {
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return invalid_argument("shape " + to_string(shape) + " has a negative size");
    empty = empty || size == 0;
  }
  size_t bytes = size_of(dtype);
  for (const int64_t size : shape) {
    if (empty) return size_t{0};
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes) || bytes > PTRDIFF_MAX)
      return invalid_argument("shape " + to_string(shape) + " is too large");
  }
  return bytes / size_of(dtype);
}

Tensor Tensor::allocate(Dtype dtype, Shape shape) {
  const size_t count = *count_of(shape, dtype);
  auto data = std::make_shared_for_overwrite<std::byte[]>(count * size_of(dtype));
  return {dtype, std::move(shape), count, std::move(data)};
}

Tensor Tensor::view(Dtype dtype, Shape shape, const void* data) {
  const size_t count = *count_of(shape, dtype);
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return {dtype, std::move(shape), count, std::shared_ptr<std::byte[]>(bytes, drop)};
}

Tensor Tensor::clone() const {
  Tensor copy = allocate(dtype_, shape_);
  copy.assign(*this);
  return copy;
}

void Tensor::assign(const Tensor& from) {
  require(from.dtype_ == dtype_ && from.shape_ == shape_, "a tensor of another kind is assigned");
  copy_bytes(data(), from.data(), bytes());
}

std::string describe(const Tensor& tensor) {
  return std::string(name_of(tensor.dtype())) + to_string(tensor.shape());
}

const Tensor& elements_of(const Value& value) {
  const auto* slices = std::get_if<IndexedSlices>(&value);
  return slices != nullptr ? slices->values : std::get<Tensor>(value);
}

std::string describe(const Value& value) {
  const Tensor& elements = elements_of(value);
  const auto* slices = std::get_if<IndexedSlices>(&value);
  if (slices == nullptr) return describe(elements);
  std::string rows = "[rows";
  for (const int64_t size : row_shape(elements)) rows += "," + std::to_string(size);
  const std::string text = "sparse " + std::string(name_of(elements.dtype())) + rows + "] by " +
                           std::string(name_of(slices->indices.dtype()));
  return slices->dense_shape ? text + " of " + to_string(*slices->dense_shape) : text;
}

Value clone(const Value& value) {
  if (const auto* dense = std::get_if<Tensor>(&value)) return dense->clone();
  const auto& slices = std::get<IndexedSlices>(value);
  return IndexedSlices{slices.values.clone(), slices.indices.clone(), slices.dense_shape};
}

Status check_value(const Value& value) {
  const Status summed = check_reducible(ReduceOp::sum, elements_of(value).dtype());
  if (!summed.ok()) return summed;
  const auto* slices = std::get_if<IndexedSlices>(&value);
  return slices != nullptr ? check_slices(*slices) : Status();
}

}  // namespace tutti::faces
