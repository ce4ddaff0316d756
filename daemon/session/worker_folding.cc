#include "daemon/session/worker_folding.h"

namespace tutti {
namespace {

// Blocks of one operation that are folded in one turn of the loop.
constexpr int kBlocksPerTurn = 8;

}  // namespace

void WorkerFolding::add(const BoardOp& op) {
  const Place place{op.group->shared.index, op.slot_index()};
  const auto known = jobs_.find(place);
  if (known != jobs_.end() && known->second.number == op.number) return;
  Job job{op.number, {}};
  if (!ops_.match(op, job.matched)) return;
  const bool idle = jobs_.empty();
  jobs_.insert_or_assign(place, std::move(job));
  if (idle) fold_next();
}

void WorkerFolding::fold_next() {
  while (!jobs_.empty()) {
    auto next = jobs_.upper_bound(last_);
    if (next == jobs_.end()) next = jobs_.begin();
    last_ = next->first;
    if (fold_blocks(ops_.read(*ops_.groups()[last_.first], last_.second), next->second)) break;
    jobs_.erase(next);
  }
  if (!jobs_.empty()) ops_.post([this] { fold_next(); });
}

// False: no block is left to claim. The number of blocks is taken from the matched requests, not
// from shared memory.
bool WorkerFolding::fold_blocks(const BoardOp& op, Job& job) {
  if (op.word.phase != board::Phase::folding || op.number != job.number) return false;
  for (int block = 0; block < kBlocksPerTurn; ++block) {
    const auto claim = ops_.run<board::ClaimBlock>(op, board::kWorkerSeat);
    if (!claim.claimed() || claim.block() >= job.matched.blocks) return false;
    run_block(job.matched, claim.block(), kernel_);
    ops_.run<board::FinishBlock>(op, board::kWorkerSeat, claim.blocks());
  }
  return true;
}

}  // namespace tutti
