#include <cpuid.h>

#include "daemon/kernel/variants.h"

namespace tutti {
namespace {

// Not every compiler's __builtin_cpu_supports knows it.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

Kernels usable_kernels() {
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512) return {{fold_avx512, fold_avx2, fold_baseline}, 3};
  if (avx2) return {{fold_avx2, fold_baseline}, 2};
  return {{fold_baseline}, 1};
}

}  // namespace tutti
