// Sums of the rows of slices that have the same index.
#pragma once

#include <cstdint>
#include <vector>

#include "client/faces/base/base.h"

namespace tutti::cross_device {

using namespace faces;

class RowSums {
 public:
  // `slices` must be what check_value() accepts, and outlive this.
  explicit RowSums(const IndexedSlices& slices);

  // The number of distinct indices, and these in ascending order.
  size_t size() const { return begins_.size() - 1; }
  int64_t index(size_t at) const { return indices_[rows_[begins_[at]]]; }
  // Writes (sum of the rows of the index) / divisor as a row: of these rows from first to last, of
  // 16-bit floats in f32, rounded once. `divisor` is 1 for integers.
  void write(size_t at, uint32_t divisor, std::byte* row);

 private:
  const Tensor& values_;
  const size_t row_elements_;
  std::vector<int64_t> indices_;  // By row.
  std::vector<size_t> rows_;      // By index, then by number.
  std::vector<size_t> begins_;    // Of the indices among the rows, and their end.
  std::vector<Operand> operands_;
};

}  // namespace tutti::cross_device
