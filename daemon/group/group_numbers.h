// Which sub-groups and channels the ranks of a host have asked for, and their numbers. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/group/messages.h"

namespace tutti {

class GroupNumbers {
 public:
  explicit GroupNumbers(size_t job_ranks) : job_ranks_(job_ranks) {}

  struct Asked {
    uint32_t number = 0;
    Ranks members;
  };
  // As Epoch::subgroup() and Epoch::channel(). INVALID_ARGUMENT: the list is not valid.
  // RESOURCE_EXHAUSTED: there are kGroupsMax groups already; nothing is kept of the question. What
  // it returns counts as a group, also where that cannot be made.
  Result<Asked> subgroup(int rank, const std::vector<uint32_t>& ranks);
  Result<Asked> channel(int rank, const std::vector<uint32_t>& ranks, uint64_t channel);

 private:
  Status add(bool is_new);

  const size_t job_ranks_;
  // By members and job rank: how often the rank asked for such a group.
  std::map<Ranks, std::map<int, uint32_t>> asked_;
  std::set<uint32_t> channels_;
  size_t groups_ = 0;  // But that of the whole job.
};

}  // namespace tutti
