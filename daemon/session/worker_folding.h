// The operations that no rank waits for, folded by the worker on its loop.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "daemon/board/board.h"
#include "daemon/session/board_ops.h"

namespace tutti {

// Folds a few blocks in each turn of the loop, of one operation after the other: the loop stays
// responsive, and no operation waits for the end of another.
class WorkerFolding {
 public:
  explicit WorkerFolding(BoardOps& ops) : ops_(ops) {}

  // Folds what is left of an operation in phase `folding`. Idempotent. The ranks' requests are read
  // once, here.
  void add(const BoardOp& op);
  // Forgets all operations, whose memory goes.
  void clear() { folding_.clear(); }

 private:
  struct FoldingOp {
    uint64_t number = 0;
    board::MatchedOp matched;
  };
  using SlotId = std::pair<uint32_t, uint32_t>;  // Area and slot.

  void fold_next();
  bool fold_blocks(const BoardOp& op, FoldingOp& folding);

  BoardOps& ops_;
  std::map<SlotId, FoldingOp> folding_;
  SlotId last_;  // The folding that was folded last.
  const Kernel kernel_ = choose_kernel();
};

}  // namespace tutti
