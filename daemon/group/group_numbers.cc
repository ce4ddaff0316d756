#include "daemon/group/group_numbers.h"

#include <algorithm>

#include "daemon/base/group_number.h"
#include "daemon/group/communicator.h"

namespace tutti {

Result<GroupNumbers::Asked> GroupNumbers::subgroup(int rank, const std::vector<uint32_t>& ranks) {
  const Result<Ranks> members = subgroup_members(job_ranks_, rank, ranks);
  if (!members.ok()) return members.status();
  const auto known = asked_.find(*members);
  const std::map<int, uint32_t> none;
  const std::map<int, uint32_t>& asked = known == asked_.end() ? none : known->second;
  const auto own = asked.find(rank);
  const uint32_t nth = own == asked.end() ? 0 : own->second;
  const bool is_new = std::ranges::all_of(
      asked, [&](const auto& other) { return other.first == rank || other.second <= nth; });
  if (Status s = add(is_new); !s.ok()) return s;
  asked_[*members][rank] = nth + 1;
  return Asked{group_number(*members, nth), *members};
}

Result<GroupNumbers::Asked> GroupNumbers::channel(int rank, const std::vector<uint32_t>& ranks,
                                                  uint64_t channel) {
  const Result<Ranks> members = subgroup_members(job_ranks_, rank, ranks);
  if (!members.ok()) return members.status();
  if (members->size() != 2)
    return invalid_argument("messages are between two ranks, not " +
                            std::to_string(members->size()));
  const uint32_t number = channel_number(*members, channel);
  if (Status s = add(!channels_.contains(number)); !s.ok()) return s;
  channels_.insert(number);
  return Asked{number, *members};
}

Status GroupNumbers::add(bool is_new) {
  if (is_new && groups_ + 1 >= kGroupsMax)
    return resource_exhausted("this epoch has " + std::to_string(kGroupsMax) +
                              " groups already, of which each sub-group is one, and each pair of "
                              "ranks of which one sends to the other; make sub-groups once and "
                              "keep them");
  groups_ += is_new;
  return {};
}

}  // namespace tutti
