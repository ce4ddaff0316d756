// What the job's tuner knows, as agents report it.
#pragma once

#include "daemon/group/group.h"
#include "proto/session.pb.h"

namespace tutti {

// As much as a packet to the agent holds.
v1::Tuning tuning_report(const Tuner& tuner);

}  // namespace tutti
