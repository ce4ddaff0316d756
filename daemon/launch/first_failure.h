// Which rank's failure came first in the job. The order in which processes end does not say it: a
// rank that raises leaves the job first and ends its process later, perhaps after ranks that failed
// because it left. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

namespace v1 {
class StatusReply;
}

// How ranks left the job, as the worker of rank 0's host tells it: a rank comes after the one whose
// going made it go.
struct JobRecord {
  bool joined = false;      // The job came to run, or may have: whoever failed will be listed.
  std::vector<int> gone;    // The first to go first.
  bool is_aborted = false;  // By something else; nobody is listed after that.
  int culprit = -1;         // Of the abort; -1: no rank.
};

// What the agent of rank 0's host says of the job; a job of another size is not this one.
JobRecord record_of(const v1::StatusReply& reply, const std::string& job, size_t world_size);

// `codes`: by rank, how its process ended; nullopt: it runs. `failed`: the ranks that ended with
// another code than 0, in that order, at least one. nullopt: a rank that went before these may
// still fail, or their going is not in the record yet. `now`: an answer with what is known.
std::optional<int> first_failure(std::span<const std::optional<int>> codes,
                                 std::span<const int> failed, const JobRecord& record, bool now);

}  // namespace tutti
