// The state of the job's tuner as a report for the agent.
#pragma once

#include "daemon/group/group.h"
#include "proto/session.pb.h"

namespace tutti {

// Truncated to what fits a packet to the agent.
v1::Tuning tuning_report(const Tuner& tuner);

}  // namespace tutti
