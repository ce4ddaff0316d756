// What the settings of slices, links and early frames need of each other, in one place. Pure.
//
// A link holds what its sender may have under way: early_bytes of operations that have not started,
// and the slices of those that have. A receiver that kept less would stop to read where it waits
// for a frame behind them. What a host keeps of operations that it has not started is bounded by
// what its links hold, and by nothing else: another bound could only end a job whose hosts do what
// their settings say.
#pragma once

#include "daemon/base/settings.h"
#include "daemon/engine/engine.h"
#include "daemon/group/group.h"
#include "daemon/transport/transport.h"
#include "daemon/tuning/tuning.h"

namespace tutti {

// A power of two, so that windows hold whole slices; at most half a frame, because partial sums of
// 16-bit floats take twice the bytes of their tensors.
uint64_t slice_bytes(const Settings& settings);

EngineLimits engine_limits(const Settings& settings);
// Links hold link_queue_bytes, and more where the other settings need it.
LinkLimits link_limits(const Settings& settings);
Pipeline pipeline(const Settings& settings);

EpochOptions epoch_options(const Settings& settings);

}  // namespace tutti
