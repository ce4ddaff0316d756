// What the settings of slices, links and early frames need of each other, in one place. Pure.
//
// A link holds what its sender may have under way: early_bytes of operations that have not started,
// and the slices of those that have. A receiver that kept less would stop reading while the frame
// that it waits for is queued behind others. So what its links hold is the only limit on frames of
// operations that a host has not started.
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
// `cores`: of this process.
LinkLimits link_limits(const Settings& settings, size_t cores);
Pipeline pipeline(const Settings& settings);

EpochOptions epoch_options(const Settings& settings);

}  // namespace tutti
