#include "client/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

#include "proto/board.h"

namespace tutti::client {
namespace {

// Looks of a spinner, a few microseconds in all. Then, or at once where nobody may spin, yields:
// they cost little where nothing else would run, and else let it run. Together they outlast the
// waking of a peer, or two ranks could wake each other for ever, each falling asleep just before
// the other is there.
constexpr uint32_t kSpins = 200;
constexpr uint32_t kYields = 400;
constexpr uint32_t kYieldsForWorker = 8;
// A yield that nobody took up takes less.
constexpr std::chrono::nanoseconds kQuickYield{1200};

uint32_t with_state(uint32_t word, SlotState state) {
  return slot_word(state, word >> kSlotStateBits);
}

void wake_all(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX); }

}  // namespace

void sleep_while_pending(std::atomic<uint32_t>& state, int64_t timeout_us,
                         const std::function<bool()>& idle) {
  uint32_t word = state.load();
  const uint32_t asleep = with_state(word, SlotState::asleep);
  while (word != asleep) {  // Another thread's wait may end, and the slot serve another request.
    if (word != with_state(asleep, SlotState::pending)) return;
    if (state.compare_exchange_weak(word, asleep)) break;
  }
  if (!idle()) return stir(state);
  const timespec limit{.tv_sec = timeout_us / 1'000'000, .tv_nsec = timeout_us % 1'000'000 * 1000};
  syscall(SYS_futex, &state, FUTEX_WAIT, asleep, &limit);
}

void complete(Completion& completion, uint64_t number) {
  const uint32_t folded = board_slot_word(SlotState::folded, number);
  uint32_t word = board_slot_word(SlotState::pending, number);
  while (!completion.state.compare_exchange_weak(word, folded)) {
    const bool is_open =
        state_of(word) == SlotState::pending || state_of(word) == SlotState::asleep;
    if (!is_open || with_state(word, SlotState::folded) != folded) return;
  }
  if (state_of(word) == SlotState::asleep) wake_all(completion.state);
}

void stir(std::atomic<uint32_t>& state) {
  uint32_t word = state.load();
  if (state_of(word) != SlotState::asleep) return;
  if (state.compare_exchange_strong(word, with_state(word, SlotState::pending))) wake_all(state);
}

bool has_cores_for(uint32_t ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return false;
  return static_cast<uint32_t>(CPU_COUNT(&cores)) >= ranks;
}

bool Rest::pause(Awaited awaited) {
  const uint32_t yields = awaited == Awaited::worker ? kYieldsForWorker : kYields;
  if (turns_ >= kSpins + yields) return false;
  const bool may_spin = cores_.enough && !cores_.shared.load(std::memory_order_relaxed);
  if (!may_spin && turns_ < kSpins) turns_ = kSpins;
  if (turns_++ >= kSpins) yield();
  return true;
}

// The first of a wait tells whether the core is shared.
void Rest::yield() {
  if (turns_ != kSpins + 1) return static_cast<void>(sched_yield());
  const auto before = std::chrono::steady_clock::now();
  sched_yield();
  cores_.shared.store(std::chrono::steady_clock::now() - before > kQuickYield,
                      std::memory_order_relaxed);
}

}  // namespace tutti::client
