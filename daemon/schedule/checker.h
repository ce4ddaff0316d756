// Proves schedules over symbols, without data: runs all ranks' steps together and tracks what each
// value is made of.
#pragma once

#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// The steps of every rank, by rank.
using Schedule = std::vector<std::vector<Step>>;

Schedule schedule_of(const Plan& plan);

// OK, or INTERNAL with the first fault found: a deadlock, a stray or unmatched message, a chunk
// that differs between the two ends, a contribution lost or doubled, a value sent complete but
// unfinished or finished twice, a chunk overwritten while a send of it may still be under way, two
// ranks whose values are different expressions, or a cost other than cost_of() states.
Status check(const Plan& plan, const Schedule& schedule);

// The same proof over the merged moves of every host (by host), each host taking its list in order.
// Of the cost the chunks sent are compared, not the rounds: a host takes one move at a time, so its
// ranks are no longer apart.
Status check_moves(const Plan& plan, const std::vector<std::vector<Move>>& moves);

}  // namespace tutti
