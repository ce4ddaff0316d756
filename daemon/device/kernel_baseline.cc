#include "daemon/device/half.h"
#include "daemon/device/kernel_loops.h"

namespace tutti {

void reduce_baseline(const ReduceJob& job) { run_kernel<PortableHalves>(job); }

}  // namespace tutti
