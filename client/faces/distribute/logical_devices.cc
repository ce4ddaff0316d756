#include "client/faces/distribute/logical_devices.h"

namespace tutti::distribute {
namespace {

Status validate_partition(const Shape& shape, const std::vector<int64_t>& parts, int devices) {
  if (parts.size() != shape.size())
    return invalid_argument("partition_dimensions has " + std::to_string(parts.size()) +
                            " numbers, but the tensor has the shape " + to_string(shape) +
                            "; give one for each axis");
  int64_t product = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (parts[axis] < 1)
      return invalid_argument("partition_dimensions=" + to_string(parts) +
                              " must be positive; use 1 for an axis that is not split");
    if (shape[axis] % parts[axis] != 0)
      return invalid_argument("the tensor's shape " + to_string(shape) + " is not divisible by " +
                              "partition_dimensions=" + to_string(parts) + " at axis " +
                              std::to_string(axis));
    product = parts[axis] > devices ? int64_t{devices} + 1 : product * parts[axis];
    if (product > devices) break;
  }
  if (product == devices) return {};
  return invalid_argument("the product of partition_dimensions=" + to_string(parts) +
                          " must be the number of logical devices of a replica, " +
                          std::to_string(devices));
}

}  // namespace

Status validate_logical_device(int logical_device, int logical_devices) {
  if (logical_device >= 0 && logical_device < logical_devices) return {};
  return invalid_argument("logical_device_id=" + std::to_string(logical_device) +
                          " is out of range: a replica has " + std::to_string(logical_devices) +
                          " logical devices, from 0");
}

Result<std::vector<Tensor>> split_to_logical_devices(
    const Tensor& tensor, const std::vector<int64_t>& partition_dimensions, int logical_devices) {
  const Status status = validate_partition(tensor.shape(), partition_dimensions, logical_devices);
  if (!status.ok()) return status;
  Shape sides = tensor.shape();
  for (size_t axis = 0; axis < sides.size(); ++axis) sides[axis] /= partition_dimensions[axis];
  std::vector<Tensor> parts;
  for (int64_t device = 0; device < logical_devices; ++device) {
    Shape begin(sides.size());
    int64_t rest = device;
    for (size_t axis = sides.size(); axis-- > 0; rest /= partition_dimensions[axis])
      begin[axis] = rest % partition_dimensions[axis] * sides[axis];
    parts.push_back(slice_of(tensor, begin, sides));
  }
  return parts;
}

}  // namespace tutti::distribute
