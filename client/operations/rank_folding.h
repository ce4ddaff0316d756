// What one rank folds of the operations of a group. Safe from any thread; one thread of a rank
// folds at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "client/operations/group_board.h"
#include "daemon/board/board.h"

namespace tutti::client {

class RankFolding {
 public:
  RankFolding(const Connection& connection, const GroupBoard& board);
  RankFolding(const RankFolding&) = delete;
  RankFolding& operator=(const RankFolding&) = delete;

  // Makes room for blocks with counts of their own: folding allocates nothing.
  void reserve_counts(size_t counts);
  // Folds at most `blocks_max` blocks of an operation that ranks fold, or of folds that the worker
  // shares. False: none was available, or another thread folds.
  bool fold_blocks(uint64_t number, uint32_t blocks_max);
  // Takes back what the worker, which is lost, has shared of the operation. Whether other ranks
  // still fold for it.
  bool withdraw_shared(uint64_t number) const;
  // Folds all blocks of an operation that no other rank takes part in.
  void fold_alone(board::MatchedOp& op) const;
  // Nothing is folded from now on. Blocks while a thread folds.
  void stop();
  // The operation that a thread folds now: its slot, where the rank announces the block that it
  // holds, must not be given up. kNone: none.
  uint64_t number() const { return number_; }

  static constexpr uint64_t kNone = UINT64_MAX;

 private:
  struct NoContext {};  // Claims and counts of blocks need none.
  struct Doorbell {
    const Connection& connection;
    void ring() const { connection.ring_worker(); }
  };
  using Memory = board::SlotMemory<NoContext>;

  bool fold_shared(uint64_t number, uint32_t blocks_max);
  bool fold_claimed(uint64_t number, const board::ClaimBlock<Memory>& claim);

  const Connection& connection_;
  const GroupBoard& board_;
  const Kernel kernel_ = choose_kernel();
  std::atomic<uint64_t> number_ = kNone;
  std::atomic<bool> is_stopped_ = false;

  std::mutex mutex_;  // Held by the thread that folds; guards what follows.
  Match matched_;
  uint64_t matched_number_ = kNone;
};

}  // namespace tutti::client
