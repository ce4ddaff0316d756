// The mean of one variable's gradients: mean.h.
#include "client/faces/average_gradients/mean.h"

#include <cstring>

#include "client/faces/base/base.h"
#include "client/faces/cross_device/row_sums.h"
#include "client/faces/cross_device/sparse.h"

namespace tutti::average_gradients {
namespace {

template <class Index>
Tensor indices_of(const cross_device::RowSums& sums, Dtype dtype) {
  Tensor indices = Tensor::allocate(dtype, {static_cast<int64_t>(sums.size())});
  for (size_t at = 0; at < sums.size(); ++at) {
    const auto index = static_cast<Index>(sums.index(at));
    std::memcpy(indices.data() + at * sizeof(index), &index, sizeof(index));
  }
  return indices;
}

// The sum of the rows of each index, divided, in ascending order of the indices. Rows of one index
// are summed in their order; 16-bit floats in f32, rounded once.
IndexedSlices sum_duplicates(const IndexedSlices& slices, uint32_t divisor) {
  cross_device::RowSums sums(slices);
  const Dtype dtype = slices.indices.dtype();
  Shape shape = slices.values.shape();
  shape[0] = static_cast<int64_t>(sums.size());
  IndexedSlices result{
      Tensor::allocate(slices.values.dtype(), shape),
      dtype == Dtype::i32 ? indices_of<int32_t>(sums, dtype) : indices_of<int64_t>(sums, dtype),
      slices.dense_shape};
  const size_t row_bytes = sums.size() == 0 ? 0 : result.values.bytes() / sums.size();
  for (size_t at = 0; at < sums.size(); ++at)
    sums.write(at, divisor, result.values.data() + at * row_bytes);
  return result;
}

}  // namespace

int64_t divisor_of(const Options& options, int64_t present, int64_t towers) {
  return options.none == NonePolicy::skip ? present : towers;
}

Value mean_of(const std::vector<Value>& values, Dtype dtype, int64_t divisor,
              const Options& options) {
  const auto by = static_cast<uint32_t>(divisor);
  if (const auto* slices = std::get_if<IndexedSlices>(&values[0]))
    return options.sum_duplicates ? sum_duplicates(*slices, by) : cross_device::divide(*slices, by);
  std::vector<Tensor> tensors;
  for (const Value& value : values) tensors.push_back(std::get<Tensor>(value));
  return sum_of(tensors, dtype, by);
}

}  // namespace tutti::average_gradients
