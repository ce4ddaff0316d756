#include "client/operations/rank_folding.h"

namespace tutti::client {

RankFolding::RankFolding(const GroupBoard& board) : board_(board), matched_(board.make_match()) {}

void RankFolding::reserve_counts(size_t counts) {
  const std::lock_guard lock(mutex_);
  matched_.op.reserve_counts(counts);
}

bool RankFolding::fold_blocks(uint64_t number, uint32_t blocks_max) {
  const uint64_t claimed = board_.slot(number).claimed.load(std::memory_order_acquire);
  if (board::unpack_count(claimed).generation != board::generation_of(number)) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || is_stopped_) return false;
  uint32_t folded = 0;
  number_ = number;
  for (; folded < blocks_max; ++folded) {
    const auto claim = board_.run<board::ClaimBlock>(number, NoContext(), board_.local_rank());
    if (!claim.claimed() || !fold_claimed(number, claim)) break;
  }
  number_ = kNone;
  return folded != 0;
}

// Requests do not change while this rank holds a block. False: they are not what was agreed,
// because the board was overwritten.
bool RankFolding::fold_claimed(uint64_t number, const board::ClaimBlock<Memory>& claim) {
  if (matched_number_ != number && !board_.match_requests(number, matched_)) return false;
  matched_number_ = number;
  if (claim.block() >= matched_.op.blocks) return false;
  run_block(matched_.op, claim.block(), kernel_);
  if (matched_.op.any_staged)
    board_.slot(number).block_folded[claim.block() % kWindowBlocks].store(
        pack(board::Count{board::generation_of(number), claim.block() + 1}),
        std::memory_order_release);
  board_.run<board::FinishBlock>(number, NoContext(), board_.local_rank(), claim.blocks());
  return true;
}

void RankFolding::fold_alone(board::MatchedOp& op) const {
  for (uint32_t block = 0; block < op.blocks; ++block) run_block(op, block, kernel_);
}

void RankFolding::stop() {
  is_stopped_ = true;
  const std::lock_guard lock(mutex_);
}

}  // namespace tutti::client
