// Whether a peer that this agent always needs can be reached: the coordinator, or etcd. Logs when
// that changes, and while it cannot, once in a while. Thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "daemon/base/loop.h"

namespace tutti {

class Reachability {
 public:
  // `peer`: "the coordinator 10.0.0.7:7601", for the log.
  explicit Reachability(std::string peer) : peer_(std::move(peer)) {}

  void reached();
  void lost(const std::string& why);  // Also after each further attempt.
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
  TimePoint logged_{};  // When the log said last that it cannot be reached.
};

}  // namespace tutti
