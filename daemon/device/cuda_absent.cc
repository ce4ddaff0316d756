// In place of cuda_device.cc where Tutti is built without CUDA.
#include "daemon/device/device.h"

namespace tutti {

int cuda_device_count() { return 0; }

Result<std::unique_ptr<Device>> make_cuda_device(int) {
  return unavailable(
      "this build of Tutti has no CUDA; build it where nvcc is found, with -DTUTTI_CUDA=ON");
}

}  // namespace tutti
