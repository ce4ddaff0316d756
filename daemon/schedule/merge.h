// Inside the room: the merge behind moves_of, over any steps that keep the contract.
#pragma once

#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// `steps` are those of `ranks`, in that order: the ranks of one host of a world of `world_size`.
std::vector<Move> merge(const std::vector<int>& ranks, std::vector<std::vector<Step>> steps,
                        int world_size, int chunks);

}  // namespace tutti
