#include "client/distribute/arithmetic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "daemon/kernel/kernel.h"

namespace tutti::distribute {
namespace {

Kernel kernel() {
  static const Kernel chosen = choose_kernel();
  return chosen;
}

void fold(std::span<const Operand> sources, Target target, int64_t count, uint32_t divisor = 1) {
  if (count == 0) return;
  const PlainArithmetic plain;
  kernel()({.targets = &target,
            .target_count = 1,
            .sources = sources.data(),
            .source_count = sources.size(),
            .count = static_cast<size_t>(count),
            .op = Op::sum,
            .divisor = divisor,
            .past_cache = false});
}

// Unsigned, so that integers wrap around; -b is then the complement.
template <class T>
void subtract_as(const TensorView& a, const TensorView& b, std::byte* out) {
  const PlainArithmetic plain;
  const T* from = reinterpret_cast<const T*>(a.data);
  const T* less = reinterpret_cast<const T*>(b.data);
  T* difference = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < a.count(); ++i) difference[i] = static_cast<T>(from[i] - less[i]);
}

// A shape around one of its axes.
struct Sides {
  int64_t before = 1, axis = 1, behind = 1;
};

Sides sides_of(const Shape& shape, size_t axis) {
  Sides sides;
  for (size_t i = 0; i < axis; ++i) sides.before *= shape[i];
  sides.axis = shape[axis];
  for (size_t i = axis + 1; i < shape.size(); ++i) sides.behind *= shape[i];
  return sides;
}

Tensor sum_over_axis(const TensorView& source, size_t axis) {
  const Sides sides = sides_of(source.shape, axis);
  Shape shape = source.shape;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  Tensor sum(accumulator_of(source.dtype), std::move(shape));
  if (sides.axis == 0) std::memset(sum.data(), 0, sum.bytes());
  const size_t row = static_cast<size_t>(sides.behind) * size_of(source.dtype);
  const size_t sum_row = static_cast<size_t>(sides.behind) * size_of(sum.dtype());
  std::vector<Operand> rows(static_cast<size_t>(sides.axis));
  if (rows.empty()) return sum;
  const std::byte* next = source.data;
  for (int64_t i = 0; i < sides.before; ++i) {
    for (Operand& operand : rows) {
      operand = {next, source.dtype};
      next += row;
    }
    fold(rows, {sum.data() + static_cast<size_t>(i) * sum_row, sum.dtype()}, sides.behind);
  }
  return sum;
}

}  // namespace

Tensor sum_of(std::span<const TensorView> sources, Dtype dtype, uint32_t divisor) {
  std::vector<Operand> operands;
  for (const TensorView& source : sources) operands.push_back({source.data, source.dtype});
  Tensor sum(dtype, sources[0].shape);
  fold(operands, {sum.data(), dtype}, sum.count(), divisor);
  return sum;
}

Tensor add(const TensorView& a, const TensorView& b) {
  const std::array<TensorView, 2> both = {a, b};
  return sum_of(both, a.dtype);
}

Tensor subtract(const TensorView& a, const TensorView& b) {
  const Dtype wide = accumulator_of(a.dtype);
  if (wide != a.dtype) {  // 16-bit floats.
    const Tensor wide_a = sum_of({&a, 1}, wide);
    const Tensor wide_b = sum_of({&b, 1}, wide);
    const Tensor difference = subtract(wide_a.view(), wide_b.view());
    return divide(difference.view(), 1, a.dtype);
  }
  Tensor difference(a.dtype, a.shape);
  if (a.dtype == Dtype::f32)
    subtract_as<float>(a, b, difference.data());
  else if (a.dtype == Dtype::f64)
    subtract_as<double>(a, b, difference.data());
  else if (size_of(a.dtype) == 1)
    subtract_as<uint8_t>(a, b, difference.data());
  else if (size_of(a.dtype) == 2)
    subtract_as<uint16_t>(a, b, difference.data());
  else if (size_of(a.dtype) == 4)
    subtract_as<uint32_t>(a, b, difference.data());
  else
    subtract_as<uint64_t>(a, b, difference.data());
  return difference;
}

Tensor divide(const TensorView& source, uint32_t divisor, Dtype dtype) {
  return sum_of({&source, 1}, dtype, divisor);
}

Tensor sum_over(const TensorView& source, const std::vector<size_t>& axes) {
  if (axes.empty()) return sum_of({&source, 1}, accumulator_of(source.dtype));
  Tensor sum = sum_over_axis(source, axes.back());
  for (size_t i = axes.size() - 1; i-- > 0;) sum = sum_over_axis(sum.view(), axes[i]);
  return sum;
}

Tensor concatenate(std::span<const TensorView> values, size_t axis) {
  Shape shape = values[0].shape;
  shape[axis] = std::accumulate(
      values.begin(), values.end(), int64_t{0},
      [&](int64_t length, const TensorView& value) { return length + value.shape[axis]; });
  Tensor joined(values[0].dtype, std::move(shape));
  std::byte* to = joined.data();
  const int64_t before = sides_of(joined.shape(), axis).before;
  for (int64_t i = 0; i < before; ++i)
    for (const TensorView& value : values) {
      const size_t run = value.bytes() / static_cast<size_t>(before);
      copy_bytes(to, value.data + static_cast<size_t>(i) * run, run);
      to += run;
    }
  return joined;
}

Tensor slice_of(const TensorView& value, const Shape& begin, const Shape& sides) {
  if (value.shape.empty()) return Tensor::copy_of(value);
  Tensor slice(value.dtype, sides);
  const size_t last = value.shape.size() - 1;
  const int64_t rows = sides[last] == 0 ? 0 : slice.count() / sides[last];
  const size_t row = static_cast<size_t>(sides[last]) * size_of(value.dtype);
  for (int64_t number = 0; number < rows; ++number) {
    int64_t rest = number;
    int64_t from = begin[last];
    int64_t stride = value.shape[last];
    for (size_t axis = last; axis-- > 0;) {
      from += (begin[axis] + rest % sides[axis]) * stride;
      rest /= sides[axis];
      stride *= value.shape[axis];
    }
    copy_bytes(slice.data() + static_cast<size_t>(number) * row,
               value.data + static_cast<size_t>(from) * size_of(value.dtype), row);
  }
  return slice;
}

}  // namespace tutti::distribute
