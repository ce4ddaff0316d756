#include "tests/membership/simulated_keys.h"

#include <algorithm>

namespace tutti::simulated {
namespace {

template <class... Handlers>
struct Cases : Handlers... {
  using Handlers::operator()...;
};

Keys::Answer refusal(Status why) { return {.status = std::move(why), .entries = {}}; }
Keys::Answer lease_is_over() { return refusal(not_found("the lease has ended")); }

}  // namespace

Keys::Answer KeyValues::apply(const Keys::Request& request, TimePoint now) {
  return std::visit(Cases{[&](const Keys::Grant&) { return grant(now); },
                          [&](const Keys::KeepAlive& of) { return keep_alive(of.lease, now); },
                          [&](const Keys::Create& what) { return create(what); },
                          [&](const Keys::Transaction& what) { return transact(what); },
                          [&](const Keys::List& what) { return list(what.prefix); }},
                    request);
}

Keys::Answer KeyValues::grant(TimePoint now) {
  leases_[++last_lease_] = now + ttl_;
  return {.status = {}, .lease = last_lease_, .entries = {}};
}

Keys::Answer KeyValues::keep_alive(Keys::Lease lease, TimePoint now) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return lease_is_over();
  found->second = now + ttl_;
  return {};
}

Keys::Answer KeyValues::create(const Keys::Create& what) {
  const auto found = entries_.find(what.key);
  if (found != entries_.end()) return {.status = {}, .entries = {found->second}};
  if (!may_use(what.lease)) return lease_is_over();
  ++revision_;
  put({what.key, what.value, what.lease});
  return {.status = {}, .entries = {entries_.at(what.key)}};
}

Keys::Answer KeyValues::transact(const Keys::Transaction& what) {
  for (const Keys::Fence& fence : what.fences)
    if (!holds(fence)) return refusal(aborted(fence.key + " is not what it was"));
  for (const Keys::Write& write : what.writes)
    if (!may_use(write.lease)) return lease_is_over();
  ++revision_;
  for (const Keys::Write& write : what.writes)
    if (write.value)
      put(write);
    else
      entries_.erase(write.key);
  return {.status = {}, .entries = {}, .revision = revision_};
}

Keys::Answer KeyValues::list(const std::string& prefix) const {
  Keys::Answer found;
  for (auto at = entries_.lower_bound(prefix);
       at != entries_.end() && at->first.starts_with(prefix); ++at)
    found.entries.push_back(at->second);
  return found;
}

bool KeyValues::holds(const Keys::Fence& fence) const {
  const auto found = entries_.find(fence.key);
  const Keys::Entry entry = found == entries_.end() ? Keys::Entry() : found->second;
  return fence.modified ? entry.modified == *fence.modified
                        : entry.created == fence.created && fence.created != 0;
}

void KeyValues::put(const Keys::Write& write) {
  Keys::Entry& entry = entries_[write.key];
  if (entry.created == 0) entry.created = revision_;
  entry.modified = revision_;
  entry.key = write.key;
  entry.value = *write.value;
  entry.lease = write.lease;
}

bool KeyValues::expire(TimePoint now) {
  size_t before = entries_.size();
  for (auto next = leases_.begin(); next != leases_.end();) {
    const auto lease = next++;
    if (lease->second <= now) revoke(lease->first);
  }
  return entries_.size() != before;
}

void KeyValues::revoke(Keys::Lease lease) {
  ++revision_;
  std::erase_if(entries_, [&](const auto& e) { return e.second.lease == lease; });
  leases_.erase(lease);
}

std::string KeyValues::value_of(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? "" : std::to_string(found->second.created) + found->second.value;
}

void KeyValues::renew_all(TimePoint now) {
  for (auto& [lease, until] : leases_) until = now + ttl_;
}

}  // namespace tutti::simulated
