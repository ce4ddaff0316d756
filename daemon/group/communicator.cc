#include "daemon/group/communicator.h"

#include <algorithm>
#include <unordered_map>

namespace tutti {

namespace {
constexpr size_t kRecipesMost = 256;
}

Communicator::Communicator(std::vector<int> members, const std::vector<Host>& hosts, int self)
    : members_(std::move(members)), host_of_(members_.size()), next_seq_(members_.size()) {
  std::unordered_map<int, int> home;  // Of each rank of the job.
  for (int host = 0; host < static_cast<int>(hosts.size()); ++host)
    for (const int rank : hosts[host].ranks) home[rank] = host;
  std::vector<std::vector<int>> here(hosts.size());
  for (int rank = 0; rank < size(); ++rank) {
    host_of_[rank] = home.at(members_[rank]);
    here[host_of_[rank]].push_back(rank);
  }
  for (int host = 0; host < static_cast<int>(hosts.size()); ++host) {
    if (here[host].empty()) continue;
    if (host == self) {
      self_in_topology_ = static_cast<int>(topology_.size());
      local_ = here[host];
    }
    topology_.push_back(std::move(here[host]));
    places_.push_back(host);
  }
}

std::optional<int> Communicator::rank_of(int job_rank) const {
  const auto found = std::ranges::find(members_, job_rank);
  if (found == members_.end()) return std::nullopt;
  return static_cast<int>(found - members_.begin());
}

bool Communicator::passed_by_all(uint64_t seq, const std::set<int>& gone) const {
  return std::ranges::all_of(
      local_, [&](int rank) { return next_seq_[rank] > seq || gone.contains(members_[rank]); });
}

std::shared_ptr<const Recipe> Communicator::recipe(Collective collective, int root,
                                                   const Strategies& strategies) {
  Plan plan{collective, root, strategies, topology_};
  if (recipes_.size() >= kRecipesMost) recipes_.clear();  // Operations under way keep theirs.
  std::shared_ptr<const Recipe>& cached = recipes_[plan];
  if (cached == nullptr)
    cached = std::make_shared<const Recipe>(Recipe{plan, moves_of(plan, self_in_topology_)});
  return cached;
}

}  // namespace tutti
