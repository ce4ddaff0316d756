// The check before a call that all ranks of a group make: they must say the same of it, so that a
// mistake of one is an error of all, and no rank is a call ahead of the others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/faces/base/communicator.h"

namespace tutti::faces {

// What a rank is about to do, in lines: "reduce SUM", "value 0: f32[2,3] for all ranks". The lines
// are compared word for word.
using Description = std::vector<std::string>;

// Returns the `number` of every rank, by rank, once all ranks have called with the same
// description. Costs one small all_gather if they agree.
//
// INVALID_ARGUMENT on every rank where they do not: see disagreement(). A rank that cannot make the
// call passes its error in place of a description; that rank gets it back, and the others get one
// of the same code that names the rank and quotes it. In both cases every rank has left the call,
// so that the next one works.
Result<std::vector<int64_t>> agree(const Communicator& communicator,
                                   const Result<Description>& description, int64_t number = 0);

// OK once it is on all ranks, which have agreed on the call before: for what a rank finds out only
// then, such as that it lacks memory for what the others send. Errors as agree().
Status confirm(const Communicator& communicator, const Status& own);

// For a rank that cannot make the next call: the others, which make it, fail with `why` and this
// rank's number, and all ranks stay in step. Returns `why`, which is a failure; without a group at
// once.
Status refuse(tutti_group* group, const Status& why);

// "the ranks disagree about the call: rank 0 has 'sum', rank 2 has 'mean'; all ranks must make the
// same calls in the same order", with the first line that differs. `who`: "rank", "peer" and so on.
std::string disagreement(const std::string& who, int64_t first, const Description& its,
                         int64_t other, const Description& others);

// The text of every rank, by rank. INVALID_ARGUMENT: one is too long.
Result<std::vector<std::string>> gather_texts(const Communicator& communicator,
                                              const std::string& own);

// `prefix` and 16 digits that follow from the text: a name of a job.
std::string job_name(const std::string& prefix, std::string_view text);

}  // namespace tutti::faces
