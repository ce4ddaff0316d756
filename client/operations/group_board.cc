#include "client/operations/group_board.h"

#include <algorithm>
#include <utility>

namespace tutti::client {

GroupBoard::GroupBoard(const HostMemory& memory, uint32_t area, std::vector<uint32_t> local_ranks,
                       uint32_t size)
    : memory_(memory),
      size_(size),
      local_ranks_(std::move(local_ranks)),
      group_area_{memory_.view().area(area), area, local_ranks_} {}

bool GroupBoard::is_under_way(uint64_t number) const {
  const board::SlotWord word = word_of(number);
  return word.generation == board::generation_of(number) && !is_over(word.phase);
}

bool GroupBoard::is_done(uint64_t number) const {
  const board::SlotWord word = word_of(number);
  return word.generation == board::generation_of(number) && word.phase == board::Phase::done;
}

std::byte* GroupBoard::results(uint64_t number, uint64_t bytes) const {
  const board::Count at = board::unpack_count(slot(number).results.load());
  if (at.generation != board::generation_of(number) || at.blocks == 0) return nullptr;
  const uint64_t offset = uint64_t{at.blocks - 1} * kResultsMultiple;
  return offset + bytes <= kWireBytes ? view().wire() + offset : nullptr;
}

bool GroupBoard::has_result(uint64_t number, uint32_t block) const {
  const uint32_t generation = board::generation_of(number);
  if (is_local())
    return slot(number).block_folded[block % kWindowBlocks].load(std::memory_order_acquire) ==
           pack(board::Count{generation, block + 1});
  const board::Count passed = board::unpack_count(slot(number).passed.load());
  return passed.generation == generation && block < passed.blocks;
}

uint32_t GroupBoard::shared(uint64_t number) const {
  const board::Count shared = board::unpack_count(slot(number).shared.load());
  return shared.generation == board::generation_of(number) ? shared.blocks : 0;
}

uint64_t GroupBoard::window_bytes() const {
  return is_local() ? kWindowBlocks * kBoardBlockBytes : view().header().window_bytes;
}

// Groups of one host do not need their worker.
bool GroupBoard::has_worker_slept(uint64_t looks, Millis waited) const {
  return !is_local() && waited >= kAnswerGrace && worker_looks() == looks;
}

uint64_t GroupBoard::settled_by_all() const {
  uint64_t least = UINT64_MAX;
  for (const uint32_t local_rank : local_ranks_)
    least = std::min(least, area().settled(local_rank).load(std::memory_order_acquire));
  return least;
}

Match GroupBoard::make_match() const {
  Match match;
  match.requests.resize(local_ranks_.size());
  match.op.members.reserve(local_ranks_.size());
  return match;
}

bool GroupBoard::match_requests(uint64_t number, Match& match) const {
  for (size_t i = 0; i < local_ranks_.size(); ++i)
    match.requests[i] = {board::copy_request(area().entry(number, local_ranks_[i]).request),
                         memory_.segment(local_ranks_[i])};
  board::MatchedOp& op = match.op;
  if (!board::match(match.requests, op)) return false;
  op.past_cache = op.disjoint && !op.any_staged && op.bytes > memory_.cache_bytes();
  return true;
}

}  // namespace tutti::client
