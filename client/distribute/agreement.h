// What the ranks compare before data moves, so that a mistake of one is an error of all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/distribute/group_calls.h"

namespace tutti::distribute {

// Compares what the ranks call. OK if none has an error of its own and all give the same text.
// Otherwise every rank gets the same error: the first rank's own one, or INVALID_ARGUMENT with the
// texts of two ranks that differ, of long ones the first word that does. Costs one small
// all_gather, and two more after a mistake. Without a group: `own`. Errors also as the group's
// operations.
Status agree(tutti_group* group, const Status& own, const std::string& text,
             const CallOptions& options = {});

// The texts of all ranks, by rank, of each at most 64 KiB.
Result<std::vector<std::string>> all_gather_texts(tutti_group* group, const std::string& own,
                                                  const CallOptions& options = {});

// "rank 0 calls X, rank 1 calls Y", of long texts what surrounds their first difference.
std::string quote_both(const std::string& who, const std::string& text, const std::string& whom,
                       const std::string& other);

// FNV-1a: the same in every build, unlike std::hash.
int64_t hash_of(std::string_view text);

// `prefix` and 16 digits that follow from the text: a name of a job.
std::string job_name(const std::string& prefix, std::string_view text);

}  // namespace tutti::distribute
