#include "daemon/kernel/kernel.h"

namespace tutti {

Kernel choose_kernel() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return fold_baseline;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return fold_avx512;
  return fold_avx2;
}

}  // namespace tutti
