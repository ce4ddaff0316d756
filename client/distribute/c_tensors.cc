#include "client/distribute/c_tensors.h"

namespace tutti::distribute {

Result<TensorView> view_of(const tutti_distribute_tensor& tensor) {
  if (tensor.dtype < 0 || tensor.dtype >= kDtypes)
    return invalid_argument("dtype " + std::to_string(tensor.dtype) + " is none");
  if (tensor.rank < 0 || (tensor.rank > 0 && tensor.shape == nullptr))
    return invalid_argument("a tensor without a shape was passed");
  TensorView view = {static_cast<const std::byte*>(tensor.data), static_cast<Dtype>(tensor.dtype),
                     Shape(tensor.shape, tensor.shape + tensor.rank)};
  if (Status status = validate_shape(view.shape, view.dtype); !status.ok()) return status;
  if (view.data == nullptr && view.count() > 0)
    return invalid_argument("NULL was passed for the memory of a tensor");
  return view;
}

Result<std::vector<TensorView>> views_of(const tutti_distribute_tensor* tensors, size_t count) {
  if (tensors == nullptr && count > 0) return invalid_argument("NULL was passed for tensors");
  std::vector<TensorView> views;
  for (size_t i = 0; i < count; ++i) {
    Result<TensorView> view = view_of(tensors[i]);
    if (!view.ok()) return view.status();
    views.push_back(*std::move(view));
  }
  return views;
}

Status give(Result<std::vector<Tensor>> tensors, tutti_distribute_tensors** results) {
  if (!tensors.ok()) return tensors.status();
  *results = new tutti_distribute_tensors{*std::move(tensors)};
  return {};
}

}  // namespace tutti::distribute

using tutti::distribute::Tensor;

size_t tutti_distribute_tensors_count(const tutti_distribute_tensors* tensors) {
  return tensors == nullptr ? 0 : tensors->tensors.size();
}

void tutti_distribute_tensors_at(const tutti_distribute_tensors* tensors, size_t index,
                                 tutti_distribute_tensor* tensor) {
  if (index >= tutti_distribute_tensors_count(tensors) || tensor == nullptr) return;
  const Tensor& found = tensors->tensors[index];
  *tensor = {found.data(), static_cast<int32_t>(found.dtype()),
             static_cast<int32_t>(found.shape().size()), found.shape().data()};
}

void tutti_distribute_tensors_free(tutti_distribute_tensors* tensors) { delete tensors; }
