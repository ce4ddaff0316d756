// Tensors in host memory, and sparse ones as indexed slices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti::faces {

// The size along each axis; of a scalar none.
using Shape = std::vector<int64_t>;

// "[2,3]".
std::string to_string(const Shape& shape);

// The number of elements of a shape. INVALID_ARGUMENT: a negative size, or more bytes of `dtype`
// than an address space has.
Result<size_t> count_of(const Shape& shape, Dtype dtype);

// Elements in C order. Copies of a Tensor share the elements; clone() does not.
class Tensor {
 public:
  Tensor() : Tensor(Dtype::f32, {0}, 0, nullptr) {}
  // New memory with undefined contents. The shape must be one that count_of() accepts.
  static Tensor allocate(Dtype dtype, Shape shape);
  // The caller's memory, which must outlive the tensor. It is only read, unless the tensor is where
  // something is written to. The shape as above.
  static Tensor view(Dtype dtype, Shape shape, const void* data);

  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * size_of(dtype_); }
  std::byte* data() const { return data_.get(); }
  // The elements. T is float for f32, double for f64, else another type of the dtype's size; const
  // for a view of constant memory.
  template <class T>
  std::span<T> as() const {
    const bool is_real = is_floating(dtype_) && size_of(dtype_) > 2;
    require(sizeof(T) == size_of(dtype_) && std::is_floating_point_v<T> == is_real,
            "elements are read as a type of their dtype");
    return {reinterpret_cast<T*>(data()), count_};
  }
  Tensor clone() const;
  // Copies the elements of `from`, of the same dtype and shape.
  void assign(const Tensor& from);

 private:
  Tensor(Dtype dtype, Shape shape, size_t count, std::shared_ptr<std::byte[]> data)
      : dtype_(dtype), shape_(std::move(shape)), count_(count), data_(std::move(data)) {}

  Dtype dtype_;
  Shape shape_;
  size_t count_;
  std::shared_ptr<std::byte[]> data_;
};

inline std::byte* element_at(const Tensor& tensor, size_t index) {
  return tensor.data() + index * size_of(tensor.dtype());
}

// Rows of a tensor: values[i] is a part of row indices[i]. A row may occur several times, which
// stands for the sum of its parts.
struct IndexedSlices {
  Tensor values;                                    // [rows, ...]
  Tensor indices;                                   // [rows], i32 or i64.
  std::optional<Shape> dense_shape = std::nullopt;  // Of the whole tensor.
};

using Value = std::variant<Tensor, IndexedSlices>;

inline bool is_sparse(const Value& value) { return std::holds_alternative<IndexedSlices>(value); }
// The tensor, or the values of the slices.
const Tensor& elements_of(const Value& value);
// "f32[2,3]", or "sparse f32[rows,3] by i64 of [5,3]".
std::string describe(const Tensor& tensor);
std::string describe(const Value& value);
Value clone(const Value& value);

// INVALID_ARGUMENT: values and indices do not belong together, or the dtype cannot be summed.
Status check_value(const Value& value);

}  // namespace tutti::faces
