// Values between the C ABI and C++: c_values.h.
#include "client/cross_device/c_values.h"

#include "client/frameworks/last_error.h"
#include "client/frameworks/require_given.h"

namespace tutti::cross_device {
namespace {

tutti_tensor_view view_of(const Tensor& tensor) {
  return {tensor.data(), tensor.shape().data(), tensor.shape().size(),
          static_cast<int32_t>(tensor.dtype())};
}

Shape shape_of(const int64_t* sizes, size_t rank) {
  return rank == 0 ? Shape() : Shape(sizes, sizes + rank);
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

Result<PerReplica> per_replica_of(const tutti_component* components, size_t count) {
  if (components == nullptr && count != 0)
    return invalid_argument("the value's components are NULL; give as many as `count` says");
  PerReplica value;
  for (size_t i = 0; i < count; ++i) {
    Result<Value> component = value_of(components[i]);
    if (!component.ok()) return component.status();
    Result<DeviceName> device = parse_device(text_of(components[i].device));
    if (!device.ok()) return device.status();
    value.components.push_back({*std::move(component), *std::move(device)});
  }
  return value;
}

tutti_component view_of(const Value& value, const char* device) {
  tutti_component view{view_of(elements_of(value)), 0, {}, nullptr, 0, device};
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

}  // namespace tutti::cross_device

tutti_mirrored::tutti_mirrored(std::vector<tutti::cross_device::Mirrored> results)
    : values(std::move(results)) {
  for (const tutti::cross_device::Mirrored& value : values) {
    std::vector<std::string>& names = devices.emplace_back();
    for (const auto& component : value.components) names.push_back(to_string(component.device));
  }
}

size_t tutti_mirrored_size(const tutti_mirrored* results) {
  return results == nullptr ? 0 : results->values.size();
}

size_t tutti_mirrored_components(const tutti_mirrored* results, size_t value) {
  return value < tutti_mirrored_size(results) ? results->values[value].components.size() : 0;
}

static tutti::Status no_component(const tutti_mirrored& results, size_t value, size_t component) {
  return {tutti::Code::out_of_range,
          "value " + std::to_string(value) + " has no component " + std::to_string(component) +
              ": the results are " + std::to_string(results.values.size()) +
              " values, this one of " + std::to_string(tutti_mirrored_components(&results, value)) +
              " components"};
}

tutti_code tutti_mirrored_get(const tutti_mirrored* results, size_t value, size_t component,
                              tutti_component* view) {
  return tutti::frameworks::guarded([&]() -> tutti::Status {
    const tutti::Status given =
        tutti::frameworks::require_given({{"results", results}, {"view", view}});
    if (!given.ok()) return given;
    if (component >= tutti_mirrored_components(results, value))
      return no_component(*results, value, component);
    *view = tutti::cross_device::view_of(results->values[value].components[component].value,
                                         results->devices[value][component].c_str());
    return {};
  });
}

void tutti_mirrored_free(tutti_mirrored* results) { delete results; }
