// The mean of one variable's gradients: mean.h.
#include "client/average_gradients/mean.h"

#include "client/average_gradients/sum_duplicates.h"
#include "client/cross_device/fold.h"
#include "client/cross_device/sparse.h"

namespace tutti::average_gradients {

using cross_device::IndexedSlices;
using cross_device::Tensor;

int64_t divisor_of(const Options& options, int64_t present, int64_t towers) {
  return options.none == NonePolicy::skip ? present : towers;
}

Value mean_of(const std::vector<Value>& values, Dtype dtype, int64_t divisor,
              const Options& options) {
  const auto by = static_cast<uint32_t>(divisor);
  if (const auto* slices = std::get_if<IndexedSlices>(&values[0]))
    return options.sum_duplicates ? sum_duplicates(*slices, by) : divide(*slices, by);
  std::vector<Tensor> tensors;
  for (const Value& value : values) tensors.push_back(std::get<Tensor>(value));
  Tensor mean = Tensor::allocate(dtype, tensors[0].shape());
  fold(tensors, cross_device::flat(tensors.size()), by, {mean});
  return mean;
}

}  // namespace tutti::average_gradients
