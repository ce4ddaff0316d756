// The operations of one rank on one group. Each gets a number, arrives on the board
// (proto/board.h) and is waited for.
//
// A rank that waits folds blocks, calls the worker if other ranks are late, and sleeps if there is
// nothing to do. Safe from any thread: numbers are given under a lock, and one thread of a rank
// folds at a time.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/operations/op_recorder.h"
#include "client/operations/pending_op.h"
#include "client/operations/rank_folding.h"
#include "client/rank/connection.h"
#include "daemon/board/board.h"

namespace tutti::client {

// How long after its deadline a call waits for a free slot: those before it end meanwhile.
inline constexpr Millis kSlotGrace{200};
// Refused calls that wait for a free slot. With one more the order of calls is lost, and so is the
// connection.
inline constexpr size_t kOwedMax = 4096;
// How long ranks wait for other ranks before they call the worker, and between two such calls.
inline constexpr Millis kCallWorkerAfter{50};

class OpQueue final : public GroupOperations {
 public:
  // `local_ranks`: of the group's members on this host, in the order of the group. `size`: the
  // number of all members.
  OpQueue(Connection& connection, uint32_t area, std::vector<uint32_t> local_ranks, uint32_t size);

  // Gives the operation the next number and arrives on the board with the request. `op` must stay
  // where it is until it has an outcome. Small operations may be done on return. Blocks while
  // kBoardSlots operations are under way, on this or another rank. DEADLINE_EXCEEDED, while the
  // connection is usable: none of them ended within the timeout. Then the call has no place in the
  // order: see keep_place().
  Status submit(const Request& request, PendingOp& op);
  // Gives a call that is refused its place in the order, without waiting: the next number, now or
  // once a slot is free, but before that of any later call. Nobody waits for `op`.
  void keep_place(const Request& refused, const std::shared_ptr<PendingOp>& op);
  // Whether submit() would not wait for a free slot, unless another thread comes first.
  bool has_free_slot();
  // Blocks until the operation has an outcome, copies its result out, releases its blocks and
  // returns the outcome. `timeout_ms` < 0: until its own timeout. DEADLINE_EXCEEDED without an
  // outcome: it may be waited for again.
  Status wait(PendingOp& op, int64_t timeout_ms);
  // Like wait(), but neither copies nor releases: see release().
  Status await_outcome(PendingOp& op, int64_t timeout_ms);
  // Does what a waiting rank does, once, without blocking. True: there is an outcome.
  bool poll(PendingOp& op);
  // Copies the result of an operation with an outcome out and releases its blocks. Idempotent. Not
  // OK: the result could not be copied.
  Status release(PendingOp& op);
  // Nobody waits for the operation any more: releases its blocks once it has an outcome.
  void abandon(const std::shared_ptr<PendingOp>& op);
  // Forgets `op`, which may be destroyed then, even if it has no outcome. Its slot stays in use
  // until the operation ends.
  void detach(PendingOp& op);
  void cancel(TimePoint limit) override;
  void settle_finished() override;
  // Whether this rank has left: what ends from then on may have ended before.
  bool is_cancelled() const { return is_cancelled_; }
  bool holds_memory() const override { return abandoned_count_ != 0; }

  // ---- For staged operations, see staged_op.h ----

  // Folds at most `blocks_max` blocks of an operation that ranks fold. False: none was available.
  bool fold_blocks(uint64_t number, uint32_t blocks_max = UINT32_MAX) {
    return folding_.fold_blocks(number, blocks_max);
  }
  // Announces that the window holds the first `blocks` blocks. `calls_worker`: the worker may start
  // on them, if the group spans hosts.
  void set_ready(uint64_t number, uint32_t blocks, bool calls_worker);
  // Waits a little, when the caller has nothing to do. False: the operation has an outcome.
  bool pause(PendingOp& op, Backoff& backoff);

  const GroupBoard& group_board() const { return board_; }

 private:
  class Host;
  using Memory = board::SlotMemory<Host>;

  // A call that keeps its place in the order, and has yet to arrive there.
  struct Owed {
    Request request;
    std::shared_ptr<PendingOp> op;
  };

  Status try_submit(const Request& request, PendingOp& op, std::optional<uint32_t>& unsettled);
  Status submit_owed(std::optional<uint32_t>& unsettled);
  Status arrive(const Request& request, PendingOp& op, std::optional<uint32_t>& unsettled);
  void after_arrival(board::Arrive<Memory>& arrival, Memory& memory, uint64_t number,
                     bool is_background);
  void await_free_slot(TimePoint& next_call);

  board::Decision decide(uint64_t number);
  void reserve_counts(size_t counts);
  void fold_alone(uint64_t number, Memory& memory);
  bool complete_if_folded(uint64_t number);
  void call_worker(uint64_t number);

  bool check_outcome(PendingOp& op);
  void make_progress(PendingOp& op);
  bool spin_once(PendingOp& op, Backoff& backoff);
  void sleep(const PendingOp& op, Millis timeout);

  bool settle(PendingOp& op);
  bool settle_unless_staging(PendingOp& op) { return !op.window.is_staging && settle(op); }
  void set_settled(PendingOp& op);
  void advance_settled();
  void add_abandoned(const std::shared_ptr<PendingOp>& op);
  void release_abandoned();

  Connection& connection_;
  const GroupBoard board_;
  OpRecorder recorder_;
  RankFolding folding_;

  std::mutex mutex_;  // Guards what follows, and the operations.
  uint64_t next_ = 0;
  uint64_t settled_ = 0;         // All operations below are settled.
  uint64_t published_ = 0;       // settled_ as the board has it, without an operation being folded.
  uint64_t settled_by_all_ = 0;  // Lower bound of all members' `settled`.
  std::array<PendingOp*, kBoardSlots> ops_{};  // Not settled, by number.
  std::bitset<kBoardSlots> detached_;          // Detached and not settled, by number.
  std::deque<Owed> owed_;                      // In the order of the calls.
  std::vector<std::shared_ptr<PendingOp>> abandoned_;
  std::atomic<size_t> abandoned_count_ = 0;
  Match deciding_;

  std::atomic<bool> is_cancelled_ = false;
  std::atomic<TimePoint> held_until_ = TimePoint::max();  // No outcome is held back for longer.
};

}  // namespace tutti::client
