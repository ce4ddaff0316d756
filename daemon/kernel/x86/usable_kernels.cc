#include "daemon/kernel/variants.h"

namespace tutti {

Kernels usable_kernels() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512) return {{fold_avx512, fold_avx2, fold_baseline}, 3};
  if (avx2) return {{fold_avx2, fold_baseline}, 2};
  return {{fold_baseline}, 1};
}

}  // namespace tutti
