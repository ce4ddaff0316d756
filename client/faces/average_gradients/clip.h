// Norms of gradients, and scaling to a norm.
#pragma once

#include <optional>
#include <vector>

#include "client/faces/base/base.h"

namespace tutti::average_gradients {

using namespace faces;

// The Euclidean norm of all elements, in f64; of slices, of their values. Floats only.
double norm_of(const std::vector<const Value*>& values);

// A copy, scaled by clip_norm / norm if `norm` is above `clip_norm`; all NaN if it is not finite.
Value scale_to(const Value& value, double clip_norm, double norm);

// Scales the values that are there to a global norm of at most `clip_norm`.
void clip_by_global_norm(std::vector<std::optional<Value>>& values, double clip_norm);

}  // namespace tutti::average_gradients
