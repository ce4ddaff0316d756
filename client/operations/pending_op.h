// One operation of a rank, from its call to its end.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "client/operations/group_board.h"
#include "client/rank/memory_in_use.h"
#include "proto/types.h"

namespace tutti::client {

// How long after the deadline a worker is waited for that looks at the board, but has no core to
// end the operation in time: it knows who is to blame.
inline constexpr Millis kBusyGrace{2'000};

// What a wait returns that was shorter than the operation.
Status still_running(int64_t timeout_ms);

// For an operation on a board that is not what the ranks and the worker wrote.
Status overwritten() noexcept;

// An operation that was submitted. OpQueue owns the fields, except `copies` and `copy_last`, which
// the submitter fills before the arrival.
struct PendingOp {
  PendingOp() = default;
  PendingOp(const PendingOp&) = delete;
  PendingOp& operator=(const PendingOp&) = delete;

  // A result to copy to ordinary memory.
  struct CopyOut {
    void* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };

  uint64_t number = 0;
  bool has_arrived = false;               // It has a number and a slot on the board.
  std::atomic<bool> has_outcome = false;  // `outcome` is final, and the rank is done with the slot.
  bool is_released = false;               // The result is copied out, the blocks are released.
  Status outcome;
  uint64_t bytes = 0;       // Of its tensors, for the counters.
  uint64_t arrived_ns = 0;  // By trace::now_ns().
  uint64_t record = 0;      // Its index in the flight recorder.
  Collective collective = Collective::barrier;
  Millis timeout{0};
  // A thread still copies through the window and writes to the board for it: only that thread may
  // settle it.
  std::atomic<bool> is_staging = false;
  uint32_t copied_out = UINT32_MAX;  // Number of blocks copied out, of a staged operation.
  // When waiting began, and when the worker may be called next. Several threads may wait for it.
  std::atomic<TimePoint> started = TimePoint();  // Epoch of the clock: unset.
  std::atomic<TimePoint> next_call = TimePoint();
  // After the deadline: when the worker was last known to look at the board, by its count of looks.
  std::atomic<TimePoint> heard = TimePoint();
  std::atomic<uint64_t> looks = 0;
  std::vector<uint64_t> blocks;  // Held blocks of the segment.
  std::vector<CopyOut> copies;
  std::function<Status()> copy_last;  // Called once, after the copies; empty: nothing.
  std::mutex release_mutex;
  Status copied;  // Outcome of copy_last.
  // For an operation on GPUs: whether one may still touch its memory, by what the board says of it,
  // or has yet to copy the result out.
  // It has no outcome meanwhile, until kAnswerGrace after its deadline. Called with the queue's
  // lock; empty: never.
  enum class OnBoard : uint8_t { under_way, done, failed };
  std::function<bool(OnBoard)> is_on_gpus;
  MemoryUse memory;  // The caller's. Last: others ask by it whether the operation has ended.
};

// As the board has a time.
int64_t nanoseconds(TimePoint time);
// Starts the clock of an operation, unless it runs. Operations that end at once never read it.
void start_clock(const GroupBoard& board, PendingOp& op);
// Whether the deadline of an operation whose clock runs has passed.
bool is_late(const PendingOp& op);
// Whether the worker may yet end the operation. One that is only slow to do so, because others use
// its core, is not given up while it looks at the board: it will name who is to blame.
bool is_in_time(const PendingOp& op);
// Takes note of whether the worker, which was called before, has looked at the board since.
void listen_to_worker(const GroupBoard& board, PendingOp& op, TimePoint now);

}  // namespace tutti::client
