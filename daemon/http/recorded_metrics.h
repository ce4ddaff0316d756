// What the flight recorder of a job says of its ranks, as metrics. Pure.
#pragma once

#include <cstdint>
#include <map>

#include "daemon/http/families.h"
#include "daemon/trace/trace.h"

namespace tutti {

// `job`: the labels of the job, to which those of each rank are added.
void add_recorded(Families& families, const trace::Trace& trace, const Labels& job, bool per_rank);

// By rank: how much later than the first rank of this node it called, in seconds, the median of
// the operations that several of them have called. Clocks of other nodes differ.
std::map<uint32_t, double> lateness_of(const trace::Trace& trace);

}  // namespace tutti
