// Sums and means of indexed slices: sparse.h.
#include "client/faces/cross_device/sparse.h"

#include <cstring>
#include <numeric>

#include "client/faces/base/base.h"
#include "client/faces/cross_device/row_sums.h"
#include "daemon/kernel/kernel.h"

namespace tutti::cross_device {
namespace {

Shape with_rows(const Tensor& tensor, int64_t rows) {
  Shape shape = tensor.shape();
  shape[0] = rows;
  return shape;
}

// Also of tensors without rows.
size_t row_bytes(const Tensor& tensor) {
  size_t bytes = size_of(tensor.dtype());
  for (size_t axis = 1; axis < tensor.shape().size(); ++axis)
    bytes *= static_cast<size_t>(tensor.shape()[axis]);
  return bytes;
}

std::vector<size_t> bytes_of(const Tensor& own, const std::vector<int64_t>& rows) {
  std::vector<size_t> bytes;
  for (const int64_t count : rows) bytes.push_back(static_cast<size_t>(count) * row_bytes(own));
  return bytes;
}

}  // namespace

IndexedSlices concatenate(const std::vector<IndexedSlices>& parts) {
  std::vector<Tensor> values;
  std::vector<Tensor> indices;
  std::optional<Shape> dense_shape;
  for (const IndexedSlices& part : parts) {
    values.push_back(part.values);
    indices.push_back(part.indices);
    if (!dense_shape) dense_shape = part.dense_shape;
  }
  return {faces::concatenate(values, 0), faces::concatenate(indices, 0), dense_shape};
}

TensorGather::TensorGather(const Tensor& own, const std::vector<int64_t>& rows)
    : own_(own), bytes_(bytes_of(own, rows)), gather_(bytes_) {
  const auto total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  whole_ = Tensor::allocate(own.dtype(), with_rows(own, total));
}

Status TensorGather::run(const Communicator& communicator) {
  copy_bytes(gather_.own(), own_.data(), own_.bytes());
  const Status done = gather_.run(communicator);
  if (!done.ok()) return done;
  std::byte* at = whole_.data();
  for (size_t rank = 0; rank < bytes_.size(); ++rank) {
    copy_bytes(at, gather_.of(rank), bytes_[rank]);
    at += bytes_[rank];
  }
  return {};
}

Status RowGather::run(const Communicator& communicator) {
  const Status gathered = values_.run(communicator);
  return gathered.ok() ? indices_.run(communicator) : gathered;
}

IndexedSlices divide(const IndexedSlices& slices, uint32_t divisor) {
  return {sum_of({slices.values}, slices.values.dtype(), divisor), slices.indices,
          slices.dense_shape};
}

Result<Tensor> densify(const IndexedSlices& slices) {
  if (!slices.dense_shape)
    return invalid_argument("slices without dense_shape cannot be made dense; give dense_shape");
  const Dtype dtype = slices.values.dtype();
  if (const Result<size_t> count = count_of(*slices.dense_shape, dtype); !count.ok())
    return count.status();
  Tensor dense = Tensor::allocate(dtype, *slices.dense_shape);
  std::memset(dense.data(), 0, dense.bytes());
  RowSums sums(slices);
  for (size_t at = 0; at < sums.size(); ++at) {
    const int64_t index = sums.index(at);
    if (index < 0 || index >= dense.shape()[0])
      return invalid_argument("index " + std::to_string(index) + " is outside of dense_shape " +
                              to_string(dense.shape()));
    sums.write(at, 1, dense.data() + static_cast<size_t>(index) * row_bytes(slices.values));
  }
  return dense;
}

}  // namespace tutti::cross_device
