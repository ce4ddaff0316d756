// Proves schedules over symbols, without data: runs all hosts' steps together and tracks what each
// value is made of, and whose start each host knows of.
#pragma once

#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// The steps of every host, by its place in the plan.
using Schedule = std::vector<std::vector<Step>>;

Schedule schedule_of(const Plan& plan);

// OK, or INTERNAL with the first fault found: a deadlock, a stray or unmatched message, a chunk
// that differs between the two ends, a contribution lost or doubled, a value sent complete but
// unfinished or finished twice, a chunk overwritten while a send of it may still be under way, two
// hosts whose values are different expressions, a host that is through before another has started,
// data broadcast to a host that may not have started, or a cost other than cost_of() states.
Status check(const Plan& plan, const Schedule& schedule);

}  // namespace tutti
