// One operation of a rank, from its call to its end.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "client/operations/group_board.h"
#include "client/operations/op_recorder.h"
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

// How long an operation has been waited for, and what was heard of the worker meanwhile. Several
// threads may wait for one operation.
struct WaitClock {
  Millis timeout{0};
  // When waiting began, and when the worker may be called next. Epoch of the clock: unset.
  std::atomic<TimePoint> started = TimePoint();
  std::atomic<TimePoint> next_call = TimePoint();
  // After the deadline: when the worker was last known to look at the board, by its count of looks.
  std::atomic<TimePoint> heard = TimePoint();
  std::atomic<uint64_t> looks = 0;

  bool is_running() const { return started.load() != TimePoint(); }
  TimePoint deadline() const { return started.load() + timeout; }
  // Whether it runs and the deadline has passed.
  bool is_late() const { return is_running() && Clock::now() > deadline(); }
};

// What an operation holds of the segment until it ends, and which results go from there to ordinary
// memory. The submitter fills it before the arrival.
struct OpResources {
  struct CopyOut {
    void* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };

  std::vector<uint64_t> blocks;
  std::vector<CopyOut> copies;
  std::function<Status()> copy_last;  // Called once, after the copies; empty: nothing.
};

// How far an operation is whose tensors pass through a window: see staged_op.h.
struct OpWindow {
  // A thread still copies through the window and writes to the board for it: only that thread may
  // settle the operation.
  std::atomic<bool> is_staging = false;
  uint32_t copied_out = UINT32_MAX;  // Number of blocks copied out; the maximum: it has no window.
};

// An operation that was submitted. OpQueue owns what no other is named for.
struct PendingOp {
  PendingOp() = default;
  PendingOp(const PendingOp&) = delete;
  PendingOp& operator=(const PendingOp&) = delete;

  uint64_t number = 0;
  bool has_arrived = false;               // It has a number and a slot on the board.
  std::atomic<bool> has_outcome = false;  // `outcome` is final, and the rank is done with the slot.
  Status outcome;
  OpRecord record;  // The submitter sets its `bytes`.
  WaitClock clock;
  OpWindow window;  // StagedOp's and Passing's.

  std::mutex release_mutex;  // Held by the one that releases the operation.
  bool is_released = false;  // The results are copied out, the blocks are released.
  Status copied;             // How copy_last ended.
  OpResources resources;

  // Set for operations on GPUs. True: a GPU may still use the memory, or has yet to copy the result
  // out; the outcome is withheld meanwhile, until kAnswerGrace after the deadline at most. Called
  // with the queue's lock.
  enum class OnBoard : uint8_t { under_way, done, failed };
  std::function<bool(OnBoard)> is_on_gpus;
  MemoryUse memory;  // The caller's. Last: others ask by it whether the operation has ended.
};

// As the board has a time.
int64_t nanoseconds(TimePoint time);
// Starts the clock of an operation, unless it runs. Operations that end at once never read it.
void start_clock(const GroupBoard& board, PendingOp& op);
// Whether the worker may yet end the operation. One that is only slow to do so, because others use
// its core, is not given up while it looks at the board: it will name who is to blame.
bool is_in_time(const WaitClock& clock);
// Takes note of whether the worker, which was called before, has looked at the board since.
void listen_to_worker(const GroupBoard& board, WaitClock& clock, TimePoint now);
// Whether the outcome must wait for GPUs, which it does until `limit` at the latest.
bool is_held(const PendingOp& op, PendingOp::OnBoard board, TimePoint limit);
// Copies the results to where they belong. Not OK: the last copy's error.
Status copy_out(OpResources& resources);

}  // namespace tutti::client
