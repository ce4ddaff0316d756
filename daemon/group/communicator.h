// One group of ranks: who they are, where they live, how far each local one has come, and the plans
// made for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "daemon/engine/engine.h"
#include "daemon/group/links.h"

namespace tutti {

class Communicator {
 public:
  // `members`: ranks of the job in the group's order. `self`: this host's place in `hosts`.
  Communicator(std::vector<int> members, const std::vector<Host>& hosts, int self);

  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  // The group's rank of a rank of the job.
  std::optional<int> rank_of(int job_rank) const;
  // Which of the epoch's hosts a rank of the group lives on.
  int host_of(int rank) const { return host_of_[rank]; }
  const std::vector<int>& local_ranks() const { return local_; }  // Of the group, ascending.
  const std::vector<std::vector<int>>& topology() const { return topology_; }
  // Which of the epoch's hosts those are.
  const std::vector<int>& places() const { return places_; }

  uint64_t next_seq(int rank) const { return next_seq_[rank]; }
  void take_seq(int rank, uint64_t number) {
    next_seq_[rank] = std::max(next_seq_[rank], number + 1);
  }
  // Every local rank that is not among the gone (ranks of the job) is past this operation.
  bool passed_by_all(uint64_t seq, const std::set<int>& gone) const;

  std::shared_ptr<const Recipe> recipe(Collective collective, int root,
                                       const Strategies& strategies);

 private:
  std::vector<int> members_;
  std::vector<int> host_of_;
  std::vector<int> local_;
  std::vector<std::vector<int>> topology_;  // Hosts with members, their ranks of the group.
  std::vector<int> places_;
  int self_in_topology_ = -1;
  std::vector<uint64_t> next_seq_;  // By rank of the group; local ones move.
  std::map<Plan, std::shared_ptr<const Recipe>> recipes_;
};

}  // namespace tutti
