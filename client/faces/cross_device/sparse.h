// Sums and means of indexed slices: the parts of all replicas one after the other; and as tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "client/faces/base/base.h"

namespace tutti::cross_device {

using namespace faces;

// The rows of all parts in order, duplicates kept. `parts` is not empty, and describe() says the
// same of each but for dense_shape: that is taken from the first that has one.
IndexedSlices concatenate(const std::vector<IndexedSlices>& parts);

// The rows of all ranks' tensors by rank, on every rank. Takes its memory when it is constructed.
class TensorGather {
 public:
  // `rows`: of each rank. `own` must outlive it, as all that follow.
  TensorGather(const Tensor& own, const std::vector<int64_t>& rows);
  // All ranks call it.
  Status run(const Communicator& communicator);
  const Tensor& result() const { return whole_; }

 private:
  const Tensor& own_;
  std::vector<size_t> bytes_;  // By rank.
  BytesGather gather_;
  Tensor whole_;
};

// The same for the rows of all ranks' slices.
class RowGather {
 public:
  RowGather(const IndexedSlices& own, const std::vector<int64_t>& rows)
      : own_(own), values_(own.values, rows), indices_(own.indices, rows) {}
  Status run(const Communicator& communicator);
  IndexedSlices result() const { return {values_.result(), indices_.result(), own_.dense_shape}; }

 private:
  const IndexedSlices& own_;
  TensorGather values_;
  TensorGather indices_;
};

// Divides the values.
IndexedSlices divide(const IndexedSlices& slices, uint32_t divisor);

// The tensor of `dense_shape` for which the slices stand; rows of one index are summed as RowSums
// does. INVALID_ARGUMENT: dense_shape is not given or too large, or an index is outside of it.
Result<Tensor> densify(const IndexedSlices& slices);

}  // namespace tutti::cross_device
