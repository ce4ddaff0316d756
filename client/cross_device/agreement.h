// The check before a call that all ranks of a group make: they must say the same of it.
#pragma once

#include <string>
#include <vector>

#include "client/cross_device/communicator.h"

namespace tutti::cross_device {

// What a rank is about to do, in lines: "reduce SUM", "value 0: f32 [2,3] for all ranks". The lines
// are compared word for word.
using Description = std::vector<std::string>;

// Returns the `number` of every rank, by rank, once all ranks have called with the same
// description. Costs one small all_gather if they agree.
//
// INVALID_ARGUMENT on every rank where they do not: the message quotes the first line that differs
// on both sides. A rank that cannot make the call passes its error in place of a description; that
// rank gets it back, and the others get one of the same code that names the rank and quotes it. In
// both cases every rank has left the call, so that the next one works.
Result<std::vector<int64_t>> agree(const Communicator& communicator,
                                   const Result<Description>& description, int64_t number = 0);

// OK once it is on all ranks, which have agreed on the call before: for what a rank finds out only
// then, such as that it lacks memory for what the others send. Errors as agree().
Status confirm(const Communicator& communicator, const Status& own);

}  // namespace tutti::cross_device
