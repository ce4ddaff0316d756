#include "daemon/device/kernel.h"

namespace tutti {

Kernel choose_kernel() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return reduce_baseline;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return reduce_avx512;
  return reduce_avx2;
}

}  // namespace tutti
