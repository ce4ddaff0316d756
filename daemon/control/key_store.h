// A store of keys that the agents of a mesh share: etcd (etcd_store.h).
// What electing a coordinator and saving its states need of one, and no more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/membership/election.h"

namespace tutti {

// All calls block, for a bounded time but for watch(). Any thread. UNAVAILABLE and
// DEADLINE_EXCEEDED: try again; it may have happened all the same. CANCELLED: after cancel().
class KeyStore {
 public:
  using Lease = Keys::Lease;
  using Entry = Keys::Entry;
  using Write = Keys::Write;
  using Fence = Keys::Fence;
  struct Watcher {
    std::function<void()> on_open;  // Later changes are reported.
    // In the order in which they happen. Removed keys have no value.
    std::function<void(const std::string& key, const std::optional<std::string>& value)> on_change;
  };

  virtual ~KeyStore() = default;

  // The lease ends `ttl` after its last sign of life, or somewhat later.
  virtual Result<Lease> grant(Millis ttl) = 0;
  virtual Status keep_alive(Lease lease) = 0;  // NOT_FOUND: it has ended.
  virtual Status revoke(Lease lease) = 0;      // With the keys that it has.

  // Makes the key where there is none. Returns what is there then.
  virtual Result<Entry> create(const std::string& key, const std::string& value, Lease lease) = 0;
  // Does all or nothing, and returns its revision. ABORTED: a fence does not hold. At most 64
  // writes, of 1 MiB in all. One that fails otherwise may happen at any later time.
  virtual Result<int64_t> write(const std::vector<Fence>& fences,
                                const std::vector<Write>& writes) = 0;
  // All keys that begin with `prefix`, in their order.
  virtual Result<std::vector<Entry>> list(const std::string& prefix) = 0;

  // Reports changes of keys that begin with `prefix`, until the connection breaks or cancel().
  virtual Status watch(const std::string& prefix, const Watcher& watcher) = 0;

  // Later calls, but for watch(), end by then: DEADLINE_EXCEEDED. TimePoint::max(): no limit but
  // their own.
  virtual void set_deadline(TimePoint deadline) = 0;
  // Ends all calls, those in progress and later ones.
  virtual void cancel() = 0;
  virtual std::string name() const = 0;  // "etcd at 10.0.0.1:2379,10.0.0.2:2379".
};

}  // namespace tutti
