// The mean of one variable's gradients, by the options.
#pragma once

#include <vector>

#include "client/faces/average_gradients/average_gradients.h"

namespace tutti::average_gradients {

// What the sum of `present` gradients of `towers` towers is divided by.
int64_t divisor_of(const Options& options, int64_t present, int64_t towers);

// The sum of the values, divided, as a new value of this dtype. Either tensors, or one of slices.
Value mean_of(const std::vector<Value>& values, Dtype dtype, int64_t divisor,
              const Options& options);

}  // namespace tutti::average_gradients
