// Values between the C ABI and C++: c_values.h.
#include "client/faces/frameworks/c_values.h"

#include "client/faces/frameworks/last_error.h"

namespace tutti::frameworks {
namespace {

using namespace faces;

tutti_tensor_view view_of(const Tensor& tensor) {
  return {tensor.data(), tensor.shape().data(), tensor.shape().size(),
          static_cast<int32_t>(tensor.dtype())};
}

Shape shape_of(const int64_t* sizes, size_t rank) {
  return rank == 0 ? Shape() : Shape(sizes, sizes + rank);
}

// Valid as long as the component.
tutti_component view_of(const tutti_results::Component& component) {
  const Value& value = component.value;
  tutti_component view{view_of(elements_of(value)), 0, {}, nullptr, 0, component.device.c_str()};
  const auto* slices = std::get_if<IndexedSlices>(&value);
  if (slices == nullptr) return view;
  view.is_sparse = 1;
  view.indices = view_of(slices->indices);
  if (slices->dense_shape) {
    view.dense_shape = slices->dense_shape->data();
    view.dense_rank = slices->dense_shape->size();
  }
  return view;
}

Status no_component(const tutti_results& results, size_t value, size_t component) {
  return {Code::out_of_range, "value " + std::to_string(value) + " has no component " +
                                  std::to_string(component) + ": the results are " +
                                  std::to_string(results.values.size()) + " values, this one of " +
                                  std::to_string(tutti_results_components(&results, value)) +
                                  " components"};
}

}  // namespace

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

Result<Tensor> tensor_of(const tutti_tensor_view& view) {
  if (view.dtype < 0 || view.dtype >= kDtypes)
    return invalid_argument("dtype " + std::to_string(view.dtype) + " is unknown");
  if (view.shape == nullptr && view.rank != 0) return invalid_argument("the shape is NULL");
  const auto dtype = static_cast<Dtype>(view.dtype);
  Shape shape = shape_of(view.shape, view.rank);
  const Result<size_t> count = count_of(shape, dtype);
  if (!count.ok()) return count.status();
  if (*count != 0 && view.data == nullptr) return invalid_argument("the tensor's data is NULL");
  return Tensor::view(dtype, std::move(shape), view.data);
}

Result<std::vector<Tensor>> tensors_of(const tutti_tensor_view* views, size_t count) {
  if (views == nullptr && count > 0) return invalid_argument("NULL was passed for tensors");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    Result<Tensor> tensor = tensor_of(views[i]);
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

Result<Value> value_of(const tutti_component& component) {
  Result<Tensor> elements = tensor_of(component.elements);
  if (!elements.ok()) return elements.status();
  if (component.is_sparse == 0) return Value(*std::move(elements));
  Result<Tensor> indices = tensor_of(component.indices);
  if (!indices.ok()) return indices.status();
  IndexedSlices slices{*std::move(elements), *std::move(indices), {}};
  if (component.dense_shape != nullptr)
    slices.dense_shape = shape_of(component.dense_shape, component.dense_rank);
  return Value(std::move(slices));
}

Status give(Result<std::vector<Tensor>> tensors, tutti_results** results) {
  if (!tensors.ok()) return tensors.status();
  auto made = std::make_unique<tutti_results>();
  for (Tensor& tensor : *tensors) made->values.push_back({{std::move(tensor), ""}});
  *results = made.release();
  return {};
}

Status give(Result<Tensor> tensor, tutti_results** results) {
  if (!tensor.ok()) return tensor.status();
  return give(std::vector<Tensor>{*std::move(tensor)}, results);
}

}  // namespace tutti::frameworks

size_t tutti_results_size(const tutti_results* results) {
  return results == nullptr ? 0 : results->values.size();
}

size_t tutti_results_components(const tutti_results* results, size_t value) {
  return value < tutti_results_size(results) ? results->values[value].size() : 0;
}

tutti_code tutti_results_get(const tutti_results* results, size_t value, size_t component,
                             tutti_component* view) {
  using namespace tutti::frameworks;
  return guarded({{"results", results}, {"view", view}}, [&]() -> tutti::Status {
    if (component >= tutti_results_components(results, value))
      return no_component(*results, value, component);
    *view = view_of(results->values[value][component]);
    return {};
  });
}

void tutti_results_free(tutti_results* results) { delete results; }
