// Slices whose indices are distinct: sum_duplicates.h.
#include "client/average_gradients/sum_duplicates.h"

#include <cstring>

#include "client/cross_device/row_sums.h"

namespace tutti::average_gradients {
namespace {

using cross_device::IndexedSlices;
using cross_device::RowSums;
using cross_device::Shape;
using cross_device::Tensor;

template <class Index>
Tensor indices_of(const RowSums& sums, Dtype dtype) {
  Tensor indices = Tensor::allocate(dtype, {static_cast<int64_t>(sums.size())});
  for (size_t at = 0; at < sums.size(); ++at) {
    const auto index = static_cast<Index>(sums.index(at));
    std::memcpy(indices.data() + at * sizeof(index), &index, sizeof(index));
  }
  return indices;
}

}  // namespace

IndexedSlices sum_duplicates(const IndexedSlices& slices, uint32_t divisor) {
  RowSums sums(slices);
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

}  // namespace tutti::average_gradients
