#include "daemon/device/kernel.h"

namespace tutti {

Kernel choose_kernel() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return reduce_avx512;
  return __builtin_cpu_supports("avx2") ? reduce_avx2 : reduce_baseline;
}

}  // namespace tutti
