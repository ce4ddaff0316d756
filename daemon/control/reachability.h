// Whether a peer that this agent always needs can be reached: the coordinator, or etcd. Logs when
// that changes, and while it cannot, once a minute. Thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"

namespace tutti {

class Reachability {
 public:
  // `peer`: "the coordinator 10.0.0.7:7601", for the log.
  explicit Reachability(std::string peer) : peer_(std::move(peer)) {}

  void reached();
  // Also after each further attempt. Logs the first time in a minute that it fails with this code;
  // texts may differ each time, as by ephemeral ports and the member that was asked.
  void lost(const Status& why, TimePoint now = Clock::now());
  bool is_reached() const;
  Millis lost_for() const;  // 0: it is reached.
  std::string why() const;  // Empty: it is reached, or still connecting.
  // "connected", "unreachable for 12 s: " and why.
  std::string text() const;

 private:
  Millis lost_for_locked() const;

  const std::string peer_;
  mutable std::mutex mutex_;  // Guards what follows.
  bool is_reached_ = false;
  std::string why_;
  TimePoint since_ = Clock::now();
  TimePoint minute_{};       // Its begin,
  std::set<Code> logged_{};  // and the codes that were logged in it.
};

}  // namespace tutti
