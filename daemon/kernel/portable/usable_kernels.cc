#include "daemon/kernel/variants.h"

namespace tutti {

Kernels usable_kernels() { return {{fold_baseline}, 1}; }

}  // namespace tutti
