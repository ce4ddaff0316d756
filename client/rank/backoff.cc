#include "client/rank/backoff.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "daemon/base/cpu_quota.h"

namespace tutti::client {
namespace {

// Turns of spinning, a few microseconds in all, then turns of yielding, which let other processes
// run. Together they last longer than it takes to wake a peer. Otherwise two ranks could wake each
// other for ever, each falling asleep just before the other is awake.
constexpr uint32_t kSpins = 200;
constexpr uint32_t kYields = 400;
// A yield during which no other process ran is shorter.
constexpr std::chrono::nanoseconds kQuickYield{1200};
// Limit for all yields of a wait: each may last as long as another process's time slice.
constexpr std::chrono::milliseconds kYieldingMax{2};

}  // namespace

bool has_cores_for(uint32_t ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return false;
  return std::min(static_cast<size_t>(CPU_COUNT(&cores)), cpu_quota()) >= ranks;
}

bool Backoff::pause(Awaited awaited) {
  if (awaited == Awaited::worker && !cores_.spare) return false;
  if (turns_ >= kSpins + kYields) return false;
  const bool may_spin = cores_.enough && !cores_.shared.load(std::memory_order_relaxed);
  if (!may_spin && turns_ < kSpins) turns_ = kSpins;
  if (turns_++ >= kSpins) yield();
  return true;
}

// The first yield of a wait shows whether the core is shared.
void Backoff::yield() {
  const bool first = turns_ == kSpins + 1;
  if (first) began_ = Clock::now();
  sched_yield();
  const auto yielded = Clock::now() - began_;
  if (first) cores_.shared.store(yielded > kQuickYield, std::memory_order_relaxed);
  if (yielded > kYieldingMax) turns_ = kSpins + kYields;
}

}  // namespace tutti::client
