#include "daemon/session/board_ops.h"

#include <algorithm>

#include "daemon/session/board_words.h"

namespace tutti {

BoardOps::BoardOps(Loop& loop, std::shared_ptr<const Mapping> board, HostRanks host)
    : loop_(loop),
      board_(std::move(board)),
      view_(board_->base(), static_cast<uint32_t>(host.ranks.size())),
      host_(std::move(host)),
      mappings_(host_.ranks.size()) {
  for (const HostRanks::Rank& rank : host_.ranks) attached_.push_back(!rank.ended);
}

uint32_t BoardOps::local_rank_of(uint32_t rank) const {
  const auto found = std::ranges::lower_bound(host_.ranks, rank, {}, &HostRanks::Rank::rank);
  require(found != host_.ranks.end() && found->rank == rank, "a rank is on the board of its host");
  return static_cast<uint32_t>(found - host_.ranks.begin());
}

std::string BoardOps::describe(uint32_t local_rank) const {
  const HostRanks::Rank& rank = host_.ranks[local_rank];
  return "rank " + std::to_string(rank.rank) + " (host " + host_.host + ", pid " +
         std::to_string(rank.pid) + ")";
}

Status BoardOps::blame(uint32_t local_rank, const Status& why, const std::string& did) const {
  return {why.code(), describe(local_rank) + did + why.message(), culprit(local_rank)};
}

void BoardOps::detach(uint32_t local_rank) {
  attached_[local_rank] = false;
  if (std::ranges::find(attached_, true) == attached_.end()) mappings_.assign(attached_.size(), {});
}

void BoardOps::settle_all(uint32_t local_rank) {
  for (const std::unique_ptr<HostGroup>& group : groups_)
    group->shared.area.settled(local_rank).store(UINT64_MAX);
}

Result<uint32_t> BoardOps::add_group(uint32_t number, std::span<const uint32_t> ranks) {
  if (const auto known = area_of_.find(number); known != area_of_.end()) return known->second;
  if (groups_.size() == kAreasMax)
    return resource_exhausted("an epoch has at most " + std::to_string(kAreasMax) + " groups");
  const auto area = static_cast<uint32_t>(groups_.size());
  auto group = std::make_unique<HostGroup>();
  group->number = number;
  group->size = static_cast<uint32_t>(ranks.size());
  for (uint32_t place = 0; place < ranks.size(); ++place) {
    const auto local_rank = std::ranges::find(host_.ranks, ranks[place], &HostRanks::Rank::rank);
    if (local_rank == host_.ranks.end()) continue;
    group->local_ranks.push_back(static_cast<uint32_t>(local_rank - host_.ranks.begin()));
    group->places.push_back(place);
  }
  group->shared = {view_.area(area), area, group->local_ranks};
  for (const auto& [local_rank, why] : gone_)
    group->shared.area.settled(local_rank).store(UINT64_MAX);
  groups_.push_back(std::move(group));
  area_of_.emplace(number, area);
  return area;
}

HostGroup* BoardOps::find_group(uint32_t number) const {
  const auto area = area_of_.find(number);
  return area == area_of_.end() ? nullptr : groups_[area->second].get();
}

std::optional<BoardOp> BoardOps::find(const EpochOp& op) const {
  HostGroup* known = find_group(op.group);
  if (known == nullptr) return std::nullopt;
  const BoardOp found = read(*known, static_cast<uint32_t>(op.number % kBoardSlots));
  return found.number == op.number ? std::optional(found) : std::nullopt;
}

BoardOp BoardOps::read(HostGroup& group, uint32_t slot) const {
  const board::SlotWord word = board::unpack(group.shared.area.slot(slot).word.load());
  return {&group, board::number_of(word.generation, slot), word};
}

bool BoardOps::is_staged(const BoardOp& op, uint32_t local_rank) const {
  const BoardEntry& entry = op.entry(local_rank);
  return entry.arrived.load(std::memory_order_acquire) == op.number + 1 &&
         (board::copy_request(entry.request).flags & kRequestStaged) != 0;
}

bool BoardOps::is_folded(const BoardOp& op) const {
  const board::Count folded = board::unpack_count(op.slot().folded.load());
  return folded.generation == op.generation() &&
         folded == board::unpack_count(op.slot().blocks.load());
}

bool BoardOps::match(const BoardOp& op, board::MatchedOp& matched) const {
  std::vector<board::MemberRequest> requests;
  for (const uint32_t local_rank : op.group->local_ranks) {
    if (mappings_[local_rank] == nullptr) return false;
    requests.push_back({board::copy_request(op.entry(local_rank).request),
                        {mappings_[local_rank]->base(), mappings_[local_rank]->bytes()}});
  }
  return board::match(requests, matched);
}

bool BoardOps::end(const BoardOp& op, const Status& status) const {
  const BoardOp now = read(*op.group, op.slot_index());
  if (now.number != op.number || is_over(now.word.phase)) return false;
  if (!status.ok()) write_failure(op.group->shared.area.failure(op.number), op.number, status);
  return run<board::EndOp>(op, status.ok() ? board::Phase::done : board::Phase::failed).ended();
}

}  // namespace tutti
