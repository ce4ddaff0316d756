#include "daemon/membership/last_epochs.h"

namespace tutti {

std::string LastEpochs::add(const std::string& job, LastEpoch epoch) {
  take(job);
  entries_.emplace_front(job, epoch);
  where_[job] = entries_.begin();
  if (entries_.size() <= jobs_max_) return {};
  std::string forgotten = std::move(entries_.back().first);
  where_.erase(forgotten);
  entries_.pop_back();
  return forgotten;
}

LastEpoch LastEpochs::take(const std::string& job) {
  const auto found = where_.find(job);
  if (found == where_.end()) return {};
  const LastEpoch epoch = found->second->second;
  entries_.erase(found->second);
  where_.erase(found);
  return epoch;
}

}  // namespace tutti
