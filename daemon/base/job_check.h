// Checks of a join that the coordinator and every agent make.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// Returns INVALID_ARGUMENT unless the job's name has 1 to 128 bytes and no control characters, the
// world size is from 1 to 65535, and the rank is below it.
Status check_job(const std::string& job, uint32_t rank, uint32_t world_size);

}  // namespace tutti
