// A store of keys in simulated time, without threads: what etcd does of what Election asks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/membership/election.h"

namespace tutti::simulated {

class KeyValues {
 public:
  explicit KeyValues(Millis ttl) : ttl_(ttl) {}

  Keys::Answer apply(const Keys::Request& request, TimePoint now);
  // Ends the leases whose time is up. Returns whether a key went with one.
  bool expire(TimePoint now);
  void revoke(Keys::Lease lease);
  std::string value_of(const std::string& key) const;  // And when it was created; "": none.
  // Gives all leases their time again, as a store does that comes back.
  void renew_all(TimePoint now);
  const std::map<std::string, Keys::Entry>& entries() const { return entries_; }

 private:
  Keys::Answer grant(TimePoint now);
  Keys::Answer keep_alive(Keys::Lease lease, TimePoint now);
  Keys::Answer create(const Keys::Create& what);
  Keys::Answer transact(const Keys::Transaction& what);
  Keys::Answer list(const std::string& prefix) const;
  bool holds(const Keys::Fence& fence) const;
  bool may_use(Keys::Lease lease) const { return lease == 0 || leases_.contains(lease); }
  void put(const Keys::Write& write);

  const Millis ttl_;
  std::map<std::string, Keys::Entry> entries_;
  std::map<Keys::Lease, TimePoint> leases_;  // Until when they last.
  int64_t revision_ = 1;
  Keys::Lease last_lease_ = 0;
};

}  // namespace tutti::simulated
