#include "daemon/group/communicator.h"

#include <algorithm>

namespace tutti {

std::vector<Host> hosts_of(const Roster& roster) {
  std::vector<Host> hosts;
  for (int rank = 0; rank < static_cast<int>(roster.ranks.size()); ++rank) {
    const RosterRank& who = roster.ranks[static_cast<size_t>(rank)];
    auto host = std::ranges::find(hosts, who.host, &Host::name);
    if (host == hosts.end()) {
      hosts.push_back({who.host, who.address, {}});
      host = std::prev(hosts.end());
    }
    host->ranks.push_back(rank);
  }
  return hosts;
}

std::string describe_worker(const Host& host) {
  std::string ranks;
  for (const int rank : host.ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return "the worker of host " + host.name + " (ranks " + ranks + ")";
}

Result<std::vector<int>> subgroup_members(size_t job_ranks, int rank,
                                          const std::vector<uint32_t>& ranks) {
  std::vector<int> members;
  for (const uint32_t member : ranks) {
    if (member >= job_ranks)
      return invalid_argument("sub-group: there is no rank " + std::to_string(member) + " of " +
                              std::to_string(job_ranks));
    if (std::ranges::find(members, static_cast<int>(member)) != members.end())
      return invalid_argument("sub-group: rank " + std::to_string(member) + " is listed twice");
    members.push_back(static_cast<int>(member));
  }
  if (std::ranges::find(members, rank) == members.end())
    return invalid_argument("sub-group: rank " + std::to_string(rank) +
                            " makes a group it is not in");
  return members;
}

bool could_be_group(const std::vector<int>& members, size_t job_ranks) {
  std::vector<int> sorted = members;
  std::ranges::sort(sorted);
  return !sorted.empty() && sorted.front() >= 0 && sorted.back() < static_cast<int>(job_ranks) &&
         std::ranges::adjacent_find(sorted) == sorted.end();
}

Communicator::Communicator(std::vector<int> members, const std::vector<Host>& hosts, int self)
    : members_(std::move(members)), host_of_(members_.size()) {
  std::vector<int> home;  // Host of each rank of the job.
  for (int host = 0; host < static_cast<int>(hosts.size()); ++host)
    for (const int rank : hosts[static_cast<size_t>(host)].ranks) {
      home.resize(std::max(home.size(), static_cast<size_t>(rank) + 1), -1);
      home[static_cast<size_t>(rank)] = host;
    }
  std::vector<std::vector<int>> here(hosts.size());
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    host_of_[rank] = home.at(static_cast<size_t>(members_[rank]));
    here[static_cast<size_t>(host_of_[rank])].push_back(static_cast<int>(rank));
  }
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (here[host].empty()) continue;
    if (static_cast<int>(host) == self) {
      self_in_topology_ = static_cast<int>(topology_.size());
      local_ = here[host];
    }
    topology_.push_back(std::move(here[host]));
    hosts_.push_back(static_cast<int>(host));
  }
}

std::optional<int> Communicator::rank_of(int job_rank) const {
  const auto found = std::ranges::find(members_, job_rank);
  if (found == members_.end()) return std::nullopt;
  return static_cast<int>(found - members_.begin());
}

bool Communicator::has_host(int host) const {
  return std::ranges::find(hosts_, host) != hosts_.end();
}

}  // namespace tutti
