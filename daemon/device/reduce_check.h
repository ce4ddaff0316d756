// The checks of a reduction that all devices share.
#pragma once

#include <span>

#include "daemon/device/device.h"

namespace tutti {

// INVALID_ARGUMENT: no source or target, targets of several types, a type or operation outside the
// tables, types that cannot meet, or a division of integers.
Status check_reduce(std::span<const Target> targets, std::span<const Operand> sources,
                    const Reduction& how);

}  // namespace tutti
