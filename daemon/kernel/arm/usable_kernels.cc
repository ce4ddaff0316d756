#include "daemon/kernel/variants.h"

namespace tutti {

// Every 64-bit ARM has NEON.
Kernels usable_kernels() { return {{fold_neon, fold_baseline}, 2}; }

}  // namespace tutti
