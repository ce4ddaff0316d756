// In place of cuda_kernels.cc where Tutti is built without nvcc.
#include "daemon/device/cuda_kernels.h"

namespace tutti {

std::span<const char> cuda_kernels() { return {}; }

}  // namespace tutti
