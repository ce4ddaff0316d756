#include "daemon/control/reachability.h"

#include <spdlog/spdlog.h>

namespace tutti {
namespace {

constexpr Millis kLogEvery{60'000};

std::string seconds_of(Millis time) { return std::to_string(time.count() / 1'000) + " s"; }

}  // namespace

void Reachability::reached() {
  const std::lock_guard lock(mutex_);
  if (is_reached_) return;
  if (!why_.empty())
    spdlog::info("{} answers again, after {}", peer_, seconds_of(lost_for_locked()));
  is_reached_ = true;
  why_.clear();
}

void Reachability::lost(const std::string& why) {
  const std::lock_guard lock(mutex_);
  const TimePoint now = Clock::now();
  if (is_reached_) since_ = now;
  if (is_reached_ || why != why_ || now >= logged_ + kLogEvery) {
    spdlog::warn("cannot reach {}: {}; tries again, for {} so far", peer_, why,
                 seconds_of(is_reached_ ? Millis(0) : lost_for_locked()));
    logged_ = now;
  }
  is_reached_ = false;
  why_ = why;
}

bool Reachability::is_reached() const {
  const std::lock_guard lock(mutex_);
  return is_reached_;
}

Millis Reachability::lost_for() const {
  const std::lock_guard lock(mutex_);
  return is_reached_ ? Millis(0) : lost_for_locked();
}

std::string Reachability::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

Millis Reachability::lost_for_locked() const {
  return std::chrono::duration_cast<Millis>(Clock::now() - since_);
}

std::string Reachability::text() const {
  const std::lock_guard lock(mutex_);
  if (is_reached_) return "connected";
  return "unreachable for " + seconds_of(lost_for_locked()) + ": " +
         (why_.empty() ? "still connecting" : why_);
}

}  // namespace tutti
