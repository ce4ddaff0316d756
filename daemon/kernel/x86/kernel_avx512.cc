#include "daemon/kernel/kernel_loops.h"
#include "daemon/kernel/x86/f16c.h"

namespace tutti {

void fold_avx512(const FoldJob& job) { run_kernel<F16cHalves>(job); }

}  // namespace tutti
