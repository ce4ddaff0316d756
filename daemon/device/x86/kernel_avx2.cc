#include "daemon/device/kernel_loops.h"

namespace tutti {

void reduce_avx2(const ReduceJob& job) { run_kernel(job); }

}  // namespace tutti
