// The kernels of cuda_reduce.cu as the driver loads them.
#pragma once

#include <span>

namespace tutti {

// Empty where Tutti was built without nvcc.
std::span<const char> cuda_kernels();

}  // namespace tutti
