#include "client/operations/rank_folding.h"

namespace tutti::client {

RankFolding::RankFolding(const Connection& connection, const GroupBoard& board)
    : connection_(connection), board_(board), matched_(board.make_match()) {}

void RankFolding::reserve_counts(size_t counts) {
  const std::lock_guard lock(mutex_);
  matched_.op.reserve_counts(counts);
}

bool RankFolding::fold_blocks(uint64_t number, uint32_t blocks_max) {
  if (!board_.is_local()) return fold_shared(number, blocks_max);
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

bool RankFolding::fold_shared(uint64_t number, uint32_t blocks_max) {
  if (board_.shared(number) == 0) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || is_stopped_) return false;
  const board::FoldWord op = board_.fold_word(number);
  const board::FoldWord held{board::FoldState::held, board_.local_rank(), op.area, op.slot};
  uint32_t folded = 0;
  for (; folded < blocks_max; ++folded) {
    const auto claim = board_.run<board::ClaimFold>(number, NoContext(), board_.local_rank(), op);
    if (!claim.claimed()) break;
    SharedFold& fold = board_.view().folds().folds[claim.index()];
    const FoldHead head = fold.head;
    if (!board::run_shared(head, fold.places, board_.fold_memory(), kernel_)) {
      // The worker finds the block free, which it did not free, and ends the epoch.
      board_.view().folds().words[claim.index()].store(pack(board::FoldWord()));
      connection_.ring_worker();
      return false;
    }
    board_.run<board::FinishFold>(number, Doorbell{connection_}, claim.index(), held,
                                  head.first % kSharedFolds, head.number);
  }
  return folded != 0;
}

// Looks at all words: the worker may have died before it announced what it had published.
bool RankFolding::withdraw_shared(uint64_t number) const {
  const board::FoldWord op = board_.fold_word(number);
  bool held = false;
  for (uint32_t index = 0; !board_.is_local() && index < kSharedFolds; ++index) {
    const auto taken = board_.run<board::TakeFoldBack>(number, NoContext(), index, op, 0u, 0u);
    held |= taken.seen().state == board::FoldState::held && taken.seen().is_of(op);
  }
  return held;
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
