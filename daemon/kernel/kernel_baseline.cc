#include "daemon/kernel/half.h"
#include "daemon/kernel/kernel_loops.h"

namespace tutti {

void fold_baseline(const FoldJob& job) { run_kernel<PortableHalves>(job); }

}  // namespace tutti
