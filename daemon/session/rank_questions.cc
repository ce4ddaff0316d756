#include "daemon/session/rank_questions.h"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/session/board_words.h"
#include "daemon/session/offer.h"

namespace tutti {
namespace {

constexpr auto kAsked = static_cast<uint32_t>(SubgroupRequestState::asked);

void set_answered(std::atomic<uint32_t>& state) {
  state.store(static_cast<uint32_t>(SubgroupRequestState::answered), std::memory_order_release);
  board::wake_all(state);
}

}  // namespace

void RankQuestions::poll() {
  for (uint32_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    BoardSubgroupRequest& request = ops_.view().subgroup_request(local_rank);
    if (request.state.load(std::memory_order_acquire) == kAsked && ops_.is_attached(local_rank) &&
        !std::exchange(ranks_[local_rank].asked, true))
      take_subgroup_request(local_rank, request);
    BoardOffer& offer = ops_.view().offer(local_rank);
    if (offer.state.load(std::memory_order_acquire) == kAsked && ops_.is_attached(local_rank) &&
        !std::exchange(ranks_[local_rank].offered, true))
      take_offer(local_rank, std::atomic_ref(offer.offer_offset).load());
  }
}

void RankQuestions::take_subgroup_request(uint32_t local_rank,
                                          const BoardSubgroupRequest& request) {
  Result<std::vector<uint32_t>> ranks =
      read_ranks(local_rank, std::atomic_ref(const_cast<uint32_t&>(request.ranks)).load(),
                 std::atomic_ref(const_cast<uint64_t&>(request.list_offset)).load());
  const uint64_t channel = std::atomic_ref(const_cast<uint64_t&>(request.channel)).load();
  if (ranks.ok())
    return events_.on_subgroup_request(ops_.rank_of(local_rank), *std::move(ranks), channel);
  const Status why = ops_.blame(local_rank, ranks.status(), " asked for subgroup: ");
  answer_subgroup(local_rank, why, why);
}

Result<std::vector<uint32_t>> RankQuestions::read_ranks(uint32_t local_rank, uint32_t count,
                                                        uint64_t offset) const {
  const uint32_t world_size = ops_.world_size();
  const Mapping& memory = *ops_.mapping(local_rank);
  if (count == 0 || count > world_size)
    return invalid_argument("a sub-group of a job of " + std::to_string(world_size) +
                            " cannot have " + std::to_string(count) + " ranks");
  const uint64_t bytes = count * sizeof(uint32_t);
  if (!in_arena(offset, bytes, memory.bytes()))
    return invalid_argument("the list of ranks lies outside the segment");
  std::vector<uint32_t> ranks(count);
  std::memcpy(ranks.data(), memory.base() + offset, bytes);
  std::vector<bool> seen(world_size);
  for (const uint32_t rank : ranks) {
    if (rank >= world_size || seen[rank])
      return invalid_argument("rank " + std::to_string(rank) + (rank < world_size ? " twice" : "") +
                              " in a sub-group of a job of " + std::to_string(world_size));
    seen[rank] = true;
  }
  return ranks;
}

void RankQuestions::answer_subgroup(uint32_t local_rank, const Result<uint32_t>& group,
                                    const Result<uint32_t>& area) {
  BoardSubgroupRequest& request = ops_.view().subgroup_request(local_rank);
  ranks_[local_rank].asked = false;
  write_failure(request.failure, 0, area.status());
  request.group = group.ok() ? *group : 0;
  request.area = area.ok() ? *area : 0;
  set_answered(request.state);
}

// Descriptors of a refused offer serve no other.
void RankQuestions::take_offer(uint32_t local_rank, uint64_t offset) {
  const auto& take_descriptors = ranks_[local_rank].take_descriptors;
  std::vector<Fd> descriptors = take_descriptors ? take_descriptors() : std::vector<Fd>();
  if (!ops_.is_attached(local_rank)) return;
  Result<OfferedMemory> offer = read_offer(ops_.mapping(local_rank), offset, descriptors);
  if (offer.ok()) return events_.on_offer(ops_.rank_of(local_rank), *std::move(offer));
  answer_offer(local_rank, ops_.blame(local_rank, offer.status(), " offers memory: "));
}

void RankQuestions::answer_offer(uint32_t local_rank, const Status& status) {
  BoardOffer& offer = ops_.view().offer(local_rank);
  ranks_[local_rank].offered = false;
  write_failure(offer.failure, 0, status);
  set_answered(offer.state);
}

}  // namespace tutti
