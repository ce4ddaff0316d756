// Determines which rank of a job failed first. The order in which the processes end does not tell:
// a rank that raises an error leaves the job at once, but its process may end after those of ranks
// that failed because it left. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

namespace v1 {
class StatusReply;
}

// How ranks left a job, as recorded by the worker on rank 0's host. A rank is listed after the rank
// whose departure caused its own.
struct JobRecord {
  bool joined = false;        // The ranks joined, or may have: failed ranks will be listed.
  std::vector<int> departed;  // In the order of departure.
  bool is_aborted = false;    // By another cause; ranks that leave later are not listed.
  int culprit = -1;           // Rank to blame for the abort; -1: none.
};

// Reads the record of `job` from the status of rank 0's agent. A job of that name with another
// world size is ignored.
JobRecord record_of(const v1::StatusReply& reply, const std::string& job, size_t world_size);

// Returns the rank that failed first, or nullopt while it is undecided: a rank that left earlier
// still runs and may fail, or the departure of the failed ranks is not in the record yet.
// `codes`: exit codes by rank, nullopt for a running process. `failed`: the ranks with a nonzero
// code, in the order in which their processes ended, at least one. `must_decide`: returns the best
// answer so far.
std::optional<int> first_failure(std::span<const std::optional<int>> codes,
                                 std::span<const int> failed, const JobRecord& record,
                                 bool must_decide);

}  // namespace tutti
