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

void Reachability::lost(const Status& why, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (is_reached_) since_ = now;
  if (is_reached_ || now >= minute_ + kLogEvery) {
    minute_ = now;
    logged_.clear();
  }
  is_reached_ = false;
  why_ = why.message();
  if (!logged_.insert(why.code()).second) return;
  const Millis time = std::chrono::duration_cast<Millis>(now - since_);
  const std::string text = why_.starts_with(peer_) ? why_ : "cannot reach " + peer_ + ": " + why_;
  spdlog::warn("{}; tries again, for {} so far", text, seconds_of(time));
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
