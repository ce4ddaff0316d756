#include "client/backoff.h"

#include <sched.h>

#include <chrono>

namespace tutti::client {
namespace {

// Looks of a spinner, a few microseconds in all. Then, or at once where nobody may spin, yields:
// they cost little where nothing else would run, and else let it run. Together they outlast the
// waking of a peer, or two ranks could wake each other for ever, each falling asleep just before
// the other is there.
constexpr uint32_t kSpins = 200;
constexpr uint32_t kYields = 400;
// A yield that nobody took up takes less.
constexpr std::chrono::nanoseconds kQuickYield{1200};
// All yields of a wait: where others take them up, each may last as long as a slice of theirs.
constexpr std::chrono::milliseconds kYielding{2};

}  // namespace

bool has_cores_for(uint32_t ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return false;
  return static_cast<uint32_t>(CPU_COUNT(&cores)) >= ranks;
}

bool Backoff::pause(Awaited awaited) {
  if (awaited == Awaited::worker && !cores_.spare) return false;
  if (turns_ >= kSpins + kYields) return false;
  const bool may_spin = cores_.enough && !cores_.shared.load(std::memory_order_relaxed);
  if (!may_spin && turns_ < kSpins) turns_ = kSpins;
  if (turns_++ >= kSpins) yield();
  return true;
}

// The first of a wait tells whether the core is shared.
void Backoff::yield() {
  const bool first = turns_ == kSpins + 1;
  if (first) began_ = Clock::now();
  sched_yield();
  const auto yielded = Clock::now() - began_;
  if (first) cores_.shared.store(yielded > kQuickYield, std::memory_order_relaxed);
  if (yielded > kYielding) turns_ = kSpins + kYields;
}

}  // namespace tutti::client
