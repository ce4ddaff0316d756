// Sums of rows by index: row_sums.h.
#include "client/faces/cross_device/row_sums.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tutti::cross_device {
namespace {

template <class Index>
std::vector<int64_t> read_indices(const Tensor& tensor) {
  std::vector<Index> indices(tensor.count());
  if (!indices.empty()) std::memcpy(indices.data(), tensor.data(), tensor.bytes());
  return {indices.begin(), indices.end()};
}

std::vector<int64_t> indices_of(const Tensor& tensor) {
  return tensor.dtype() == Dtype::i32 ? read_indices<int32_t>(tensor)
                                      : read_indices<int64_t>(tensor);
}

}  // namespace

RowSums::RowSums(const IndexedSlices& slices)
    : values_(slices.values),
      row_elements_(slices.values.count() / std::max<size_t>(slices.indices.count(), 1)),
      indices_(indices_of(slices.indices)),
      rows_(indices_.size()) {
  std::iota(rows_.begin(), rows_.end(), size_t{0});
  std::ranges::stable_sort(rows_, {}, [&](size_t row) { return indices_[row]; });
  for (size_t i = 0; i < rows_.size(); ++i)
    if (i == 0 || indices_[rows_[i]] != indices_[rows_[i - 1]]) begins_.push_back(i);
  begins_.push_back(rows_.size());
}

void RowSums::write(size_t at, uint32_t divisor, std::byte* row) {
  const Dtype dtype = values_.dtype();
  const size_t row_bytes = row_elements_ * size_of(dtype);
  operands_.clear();
  for (size_t i = begins_[at]; i < begins_[at + 1]; ++i)
    operands_.push_back({values_.data() + rows_[i] * row_bytes, dtype});
  const Target target{row, dtype};
  fold_elements(operands_, {&target, 1}, row_elements_, divisor);
}

}  // namespace tutti::cross_device
