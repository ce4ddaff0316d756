// One group of ranks: who they are and where they live. Pure.
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

// The number of the nth group of these ranks of the job (FNV-1a): all its members compute the same.
// Never 0, which is the whole job.
uint32_t group_number(const std::vector<int>& members, uint32_t nth);

// The sub-group that `rank` asks for, of a job of so many ranks. INVALID_ARGUMENT where a rank does
// not exist or is listed twice, or `rank` is not in it.
Result<std::vector<int>> subgroup_members(size_t job_ranks, int rank,
                                          const std::vector<uint32_t>& ranks);

// Ranks of a job of so many, each once.
bool could_be_group(const std::vector<int>& members, size_t job_ranks);

class Communicator {
 public:
  // `members`: ranks of the job in the group's order, each once and in some host. `self`: this
  // host's place in `hosts`.
  Communicator(std::vector<int> members, const std::vector<Host>& hosts, int self);

  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  // The group's rank of a rank of the job.
  std::optional<int> rank_of(int job_rank) const;
  // Which of the epoch's hosts a rank of the group lives on.
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  const std::vector<int>& local_ranks() const { return local_; }  // Of the group, ascending.
  // Hosts with members, their ranks of the group.
  const std::vector<std::vector<int>>& topology() const { return topology_; }
  // Which of the epoch's hosts those are.
  const std::vector<int>& places() const { return places_; }
  bool is_on(int host) const;
  int self_in_topology() const { return self_in_topology_; }  // -1: no member here.

 private:
  std::vector<int> members_;
  std::vector<int> host_of_;
  std::vector<int> local_;
  std::vector<std::vector<int>> topology_;
  std::vector<int> places_;
  int self_in_topology_ = -1;
};

}  // namespace tutti
