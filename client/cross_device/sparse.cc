// Sums and means of indexed slices: sparse.h.
#include "client/cross_device/sparse.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "client/cross_device/fold.h"
#include "client/cross_device/row_sums.h"
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

Tensor concatenate(const std::vector<const Tensor*>& parts) {
  int64_t rows = 0;
  for (const Tensor* part : parts) rows += part->shape()[0];
  Tensor whole = Tensor::allocate(parts[0]->dtype(), with_rows(*parts[0], rows));
  std::byte* at = whole.data();
  for (const Tensor* part : parts) {
    copy_bytes(at, part->data(), part->bytes());
    at += part->bytes();
  }
  return whole;
}

}  // namespace

IndexedSlices concatenate(const std::vector<IndexedSlices>& parts) {
  std::vector<const Tensor*> values;
  std::vector<const Tensor*> indices;
  std::optional<Shape> dense_shape;
  for (const IndexedSlices& part : parts) {
    values.push_back(&part.values);
    indices.push_back(&part.indices);
    if (!dense_shape) dense_shape = part.dense_shape;
  }
  return {concatenate(values), concatenate(indices), dense_shape};
}

TensorGather::TensorGather(const Tensor& own, const std::vector<int64_t>& rows)
    : own_(own), rows_(rows) {
  const auto total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const auto most = static_cast<size_t>(*std::ranges::max_element(rows));
  whole_ = Tensor::allocate(own.dtype(), with_rows(own, total));
  padded_.resize(most * row_bytes(own));
  all_.resize(padded_.size() * rows.size());
}

Status TensorGather::run(const Communicator& communicator) {
  const size_t width = padded_.size();
  if (width == 0) return {};
  copy_bytes(padded_.data(), own_.data(), own_.bytes());
  const Status done = communicator.all_gather(padded_.data(), all_.data(), width);
  if (!done.ok()) return done;
  std::byte* at = whole_.data();
  for (size_t rank = 0; rank < rows_.size(); ++rank) {
    const size_t bytes = static_cast<size_t>(rows_[rank]) * row_bytes(own_);
    copy_bytes(at, all_.data() + rank * width, bytes);
    at += bytes;
  }
  return {};
}

Status RowGather::run(const Communicator& communicator) {
  const Status gathered = values_.run(communicator);
  return gathered.ok() ? indices_.run(communicator) : gathered;
}

IndexedSlices divide(const IndexedSlices& slices, uint32_t divisor) {
  Tensor quotient = Tensor::allocate(slices.values.dtype(), slices.values.shape());
  fold({slices.values}, flat(1), divisor, {quotient});
  return {quotient, slices.indices, slices.dense_shape};
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
