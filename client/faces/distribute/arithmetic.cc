#include "client/faces/distribute/arithmetic.h"

#include <cstring>

namespace tutti::distribute {
namespace {

// Unsigned, so that integers wrap around.
template <class T>
void subtract_as(const Tensor& a, const Tensor& b, const Tensor& out) {
  const PlainArithmetic plain;
  const T* from = reinterpret_cast<const T*>(a.data());
  const T* less = reinterpret_cast<const T*>(b.data());
  T* difference = reinterpret_cast<T*>(out.data());
  for (size_t i = 0; i < a.count(); ++i) difference[i] = static_cast<T>(from[i] - less[i]);
}

Tensor sum_over_axis(const Tensor& source, size_t axis) {
  Shape shape = source.shape();
  size_t before = 1;
  for (size_t i = 0; i < axis; ++i) before *= static_cast<size_t>(shape[i]);
  std::vector<Operand> rows(static_cast<size_t>(shape[axis]));
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(axis));
  const Tensor sum = Tensor::allocate(accumulator_of(source.dtype()), std::move(shape));
  if (rows.empty()) std::memset(sum.data(), 0, sum.bytes());
  if (rows.empty() || sum.count() == 0) return sum;
  const size_t row = sum.count() / before;
  const std::byte* next = source.data();
  for (size_t i = 0; i < before; ++i) {
    for (Operand& operand : rows) {
      operand = {next, source.dtype()};
      next += row * size_of(source.dtype());
    }
    const Target target = {sum.data() + i * row * size_of(sum.dtype()), sum.dtype()};
    fold_elements(rows, {&target, 1}, row, 1);
  }
  return sum;
}

}  // namespace

Result<size_t> axis_from_start(int64_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  if (axis >= -rank && axis < rank) return static_cast<size_t>(axis < 0 ? axis + rank : axis);
  return invalid_argument("axis=" + std::to_string(axis) +
                          " is out of range for a value of shape " + to_string(shape) +
                          ", which has " + std::to_string(rank) + " axes");
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  const Dtype dtype = a.dtype();
  const Dtype wide = accumulator_of(dtype);
  if (wide != dtype)  // 16-bit floats.
    return sum_of({subtract(sum_of({a}, wide), sum_of({b}, wide))}, dtype);
  Tensor difference = Tensor::allocate(dtype, a.shape());
  if (dtype == Dtype::f32)
    subtract_as<float>(a, b, difference);
  else if (dtype == Dtype::f64)
    subtract_as<double>(a, b, difference);
  else if (size_of(dtype) == 1)
    subtract_as<uint8_t>(a, b, difference);
  else if (size_of(dtype) == 2)
    subtract_as<uint16_t>(a, b, difference);
  else if (size_of(dtype) == 4)
    subtract_as<uint32_t>(a, b, difference);
  else
    subtract_as<uint64_t>(a, b, difference);
  return difference;
}

Tensor sum_over(const Tensor& source, const std::vector<size_t>& axes) {
  if (axes.empty()) return sum_of({source}, accumulator_of(source.dtype()));
  Tensor sum = sum_over_axis(source, axes.back());
  for (size_t i = axes.size() - 1; i-- > 0;) sum = sum_over_axis(sum, axes[i]);
  return sum;
}

Tensor slice_of(const Tensor& value, const Shape& begin, const Shape& sides) {
  if (sides.empty()) return value.clone();
  Tensor slice = Tensor::allocate(value.dtype(), sides);
  const size_t last = sides.size() - 1;
  const int64_t rows = sides[last] == 0 ? 0 : static_cast<int64_t>(slice.count()) / sides[last];
  const size_t row = static_cast<size_t>(sides[last]) * size_of(value.dtype());
  for (int64_t number = 0; number < rows; ++number) {
    int64_t rest = number;
    int64_t from = begin[last];
    int64_t stride = value.shape()[last];
    for (size_t axis = last; axis-- > 0;) {
      from += (begin[axis] + rest % sides[axis]) * stride;
      rest /= sides[axis];
      stride *= value.shape()[axis];
    }
    copy_bytes(slice.data() + static_cast<size_t>(number) * row,
               value.data() + static_cast<size_t>(from) * size_of(value.dtype()), row);
  }
  return slice;
}

}  // namespace tutti::distribute
