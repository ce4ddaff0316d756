#include "daemon/session/worker_folding.h"

namespace tutti {
namespace {

// Blocks of one operation that are folded in one turn of the loop.
constexpr int kBlocksPerTurn = 8;

}  // namespace

void WorkerFolding::add(const BoardOp& op) {
  const SlotId slot{op.group->shared.index, op.slot_index()};
  const auto known = folding_.find(slot);
  if (known != folding_.end() && known->second.number == op.number) return;
  FoldingOp folding{op.number, {}};
  if (!ops_.match(op, folding.matched)) return;
  const bool idle = folding_.empty();
  folding_.insert_or_assign(slot, std::move(folding));
  if (idle) fold_next();
}

void WorkerFolding::fold_next() {
  while (!folding_.empty()) {
    auto next = folding_.upper_bound(last_);
    if (next == folding_.end()) next = folding_.begin();
    last_ = next->first;
    if (fold_blocks(ops_.read(*ops_.groups()[last_.first], last_.second), next->second)) break;
    folding_.erase(next);
  }
  if (!folding_.empty()) ops_.post([this] { fold_next(); });
}

// False: no block is left to claim. The number of blocks is taken from the matched requests, not
// from shared memory.
bool WorkerFolding::fold_blocks(const BoardOp& op, FoldingOp& folding) {
  if (op.word.phase != board::Phase::folding || op.number != folding.number) return false;
  for (int block = 0; block < kBlocksPerTurn; ++block) {
    const auto claim = ops_.run<board::ClaimBlock>(op, board::kWorkerLocalRank);
    if (!claim.claimed() || claim.block() >= folding.matched.blocks) return false;
    run_block(folding.matched, claim.block(), kernel_);
    ops_.run<board::FinishBlock>(op, board::kWorkerLocalRank, claim.blocks());
  }
  return true;
}

}  // namespace tutti
