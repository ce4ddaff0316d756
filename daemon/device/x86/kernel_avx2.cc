#include "daemon/device/kernel_loops.h"
#include "daemon/device/x86/f16c.h"

namespace tutti {

void reduce_avx2(const ReduceJob& job) { run_kernel<F16cHalves>(job); }

}  // namespace tutti
