// The kernels, one a processor. Only those of the architecture built for are linked.
#pragma once

#include "daemon/kernel/kernel.h"

namespace tutti {

void fold_baseline(const FoldJob& job);  // What every processor of the architecture runs.
void fold_avx2(const FoldJob& job);
void fold_avx512(const FoldJob& job);
void fold_neon(const FoldJob& job);

}  // namespace tutti
