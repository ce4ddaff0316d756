#include "client/input_copy.h"

#include <algorithm>
#include <array>

#include "daemon/kernel/kernel.h"

namespace tutti::client {
namespace {

constexpr size_t kFactors = 1024;  // So few that they stay in the first cache.

// Multiplies piece by piece with an array of equal factors, by the kernel that folds products.
template <class T>
void scale(Dtype dtype, std::byte* to, const std::byte* from, size_t count, double factor) {
  const PlainArithmetic plain;
  const Kernel kernel = choose_kernel();
  std::array<T, kFactors> factors;  // NOLINT: filled as far as it is used.
  std::fill_n(factors.begin(), std::min(count, kFactors), static_cast<T>(factor));
  for (size_t done = 0; done < count; done += kFactors) {
    const size_t offset = done * size_of(dtype);
    const std::array<Operand, 2> sources = {
        {{from + offset, dtype}, {factors.data(), accumulator_of(dtype)}}};
    const Target target{to + offset, dtype};
    kernel({.targets = &target,
            .target_count = 1,
            .sources = sources.data(),
            .source_count = sources.size(),
            .count = std::min(count - done, kFactors),
            .op = Op::prod,
            .divisor = 1,
            .past_cache = false});
  }
}

}  // namespace

void InputCopy::operator()(std::byte* to, const std::byte* from, size_t bytes) const {
  const size_t count = bytes / size_of(dtype_);
  if (!scales())
    copy_bytes(to, from, bytes);
  else if (dtype_ == Dtype::f64)
    scale<double>(dtype_, to, from, count, factor_);
  else
    scale<float>(dtype_, to, from, count, factor_);
}

}  // namespace tutti::client
