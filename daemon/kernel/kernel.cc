#include "daemon/kernel/kernel.h"

namespace tutti {

Kernel choose_kernel() { return usable_kernels().at[0]; }

}  // namespace tutti
