// Norms of gradients: clip.h.
#include "client/faces/average_gradients/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "client/faces/base/base.h"

namespace tutti::average_gradients {
namespace {

// The same elements as f32, where they are 16-bit floats.
Tensor widened(const Tensor& tensor) {
  const Dtype wide = accumulator_of(tensor.dtype());
  return wide == tensor.dtype() ? tensor : sum_of({tensor}, wide);
}

// The scale is a power of two near the largest magnitude, so that squares neither overflow nor
// vanish, and every other result has the same bits as without it.
template <class T>
double norm_of_elements(const Tensor& tensor) {
  const T* elements = reinterpret_cast<const T*>(tensor.data());
  double largest = 0;  // Passes over NaN.
  for (size_t i = 0; i < tensor.count(); ++i)
    largest = std::fmax(largest, std::abs(static_cast<double>(elements[i])));
  const bool scales = largest > 0 && std::isfinite(largest);
  const int exponent = scales ? std::clamp(std::ilogb(largest), -1000, 1000) : 0;
  const double scale = std::ldexp(1, -exponent);
  double sum = 0;
  for (size_t i = 0; i < tensor.count(); ++i) {
    const double element = static_cast<double>(elements[i]) * scale;
    sum += element * element;
  }
  return std::ldexp(std::sqrt(sum), exponent);
}

template <class T>
void scale(const Tensor& in, const Tensor& out, double factor, double divisor) {
  const T* from = reinterpret_cast<const T*>(in.data());
  T* to = reinterpret_cast<T*>(out.data());
  for (size_t i = 0; i < in.count(); ++i)
    to[i] = static_cast<T>(static_cast<double>(from[i]) / divisor * factor);
}

// Each element / divisor * factor, in f64; then rounded once or, of 16-bit floats, twice. The
// quotient comes first because it cannot overflow: no element is above its norm.
Tensor scaled(const Tensor& tensor, double factor, double divisor) {
  const Tensor wide = widened(tensor);
  Tensor product = Tensor::allocate(wide.dtype(), wide.shape());
  if (wide.dtype() == Dtype::f64)
    scale<double>(wide, product, factor, divisor);
  else
    scale<float>(wide, product, factor, divisor);
  return wide.dtype() == tensor.dtype() ? product : sum_of({product}, tensor.dtype());
}

}  // namespace

double norm_of(const std::vector<const Value*>& values) {
  double norm = 0;
  for (const Value* value : values) {
    const Tensor wide = widened(elements_of(*value));
    norm = std::hypot(norm, wide.dtype() == Dtype::f64 ? norm_of_elements<double>(wide)
                                                       : norm_of_elements<float>(wide));
  }
  return norm;
}

Value scale_to(const Value& value, double clip_norm, double norm) {
  if (norm <= clip_norm) return clone(value);
  const double factor = std::isfinite(norm) ? clip_norm : std::numeric_limits<double>::quiet_NaN();
  Tensor elements = scaled(elements_of(value), factor, norm);
  const auto* slices = std::get_if<IndexedSlices>(&value);
  if (slices == nullptr) return elements;
  return IndexedSlices{std::move(elements), slices->indices.clone(), slices->dense_shape};
}

void clip_by_global_norm(std::vector<std::optional<Value>>& values, double clip_norm) {
  std::vector<const Value*> there;
  for (const std::optional<Value>& value : values)
    if (value) there.push_back(&*value);
  const double norm = norm_of(there);
  if (norm <= clip_norm) return;
  for (std::optional<Value>& value : values)
    if (value) value = scale_to(*value, clip_norm, norm);
}

}  // namespace tutti::average_gradients
