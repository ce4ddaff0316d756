// The hosts of a job, and the groups of its ranks: members, numbers and hosts of each. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/base/roster.h"
#include "daemon/base/status.h"

namespace tutti {

// A host of the roster: its name, its worker's address, its ranks.
struct Host {
  std::string name;
  std::string address;
  std::vector<int> ranks;
};
// In the order of their lowest ranks; the leader is the first.
std::vector<Host> hosts_of(const Roster& roster);
// "the worker of host b (ranks 2, 3)".
std::string describe_worker(const Host& host);

// Checks the list of a sub-group that `rank` asks for. INVALID_ARGUMENT if a rank does not exist or
// is listed twice, or if `rank` is not in it.
Result<std::vector<int>> subgroup_members(size_t job_ranks, int rank,
                                          const std::vector<uint32_t>& ranks);

// Whether these are ranks of a job of that size, each once, and at least one.
bool could_be_group(const std::vector<int>& members, size_t job_ranks);

// One group of ranks.
class Communicator {
 public:
  // `members`: ranks of the job in the group's order, each once and in some host. `self`: this
  // host's place in `hosts`.
  Communicator(std::vector<int> members, const std::vector<Host>& hosts, int self);

  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  // The rank in the group of a rank of the job.
  std::optional<int> rank_of(int job_rank) const;
  // The index, among the epoch's hosts, of the host of a rank of the group.
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_here() const { return local_; }  // Of the group, ascending.
  // The ranks of the group by host, for hosts that have any.
  const std::vector<std::vector<int>>& topology() const { return topology_; }
  // The indices of those hosts among the epoch's.
  const std::vector<int>& hosts() const { return hosts_; }
  bool has_host(int host) const;
  // This host's place in topology() and hosts(); -1: it has no member.
  int self_in_topology() const { return self_in_topology_; }

 private:
  std::vector<int> members_;
  std::vector<int> host_of_;
  std::vector<int> local_;
  std::vector<std::vector<int>> topology_;
  std::vector<int> hosts_;
  int self_in_topology_ = -1;
};

}  // namespace tutti
