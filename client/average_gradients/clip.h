// Norms of gradients, and scaling to a norm.
#pragma once

#include <optional>
#include <vector>

#include "client/cross_device/tensor.h"

namespace tutti::average_gradients {

// The Euclidean norm of all elements, in f64; of slices, of their values. Floats only.
double norm_of(const std::vector<const cross_device::Value*>& values);

// A copy, scaled by clip_norm / norm if `norm` is above `clip_norm`; all NaN if it is not finite.
cross_device::Value scale_to(const cross_device::Value& value, double clip_norm, double norm);

// Scales the values that are there to a global norm of at most `clip_norm`.
void clip_by_global_norm(std::vector<std::optional<cross_device::Value>>& values, double clip_norm);

}  // namespace tutti::average_gradients
