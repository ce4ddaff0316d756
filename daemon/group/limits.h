// The limits that hosts must have in common, as the first message of each host to the leader.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/group/group.h"
#include "proto/group.pb.h"

namespace tutti {

struct HostLimits {
  std::string host;
  v1::Rates limits;
};

v1::Rates limits_of(const EpochOptions& options);
// FAILED_PRECONDITION if they differ. OK where `told` has no limits.
Status compare_limits(const std::string& job, const HostLimits& own, const HostLimits& told);

}  // namespace tutti
