// Typed access to a mapped board: its areas, slots and entries, and the memory of one operation.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/board/transitions.h"
#include "proto/board.h"

namespace tutti::board {

using RequestWords = std::array<uint64_t, sizeof(Request) / sizeof(uint64_t)>;
// Copies a request by relaxed loads of whole words: it may change meanwhile.
inline Request copy_request(const Request& source) {
  RequestWords words;
  auto* from = reinterpret_cast<uint64_t*>(const_cast<Request*>(&source));
  for (uint64_t& word : words) word = std::atomic_ref(*from++).load(std::memory_order_relaxed);
  return std::bit_cast<Request>(words);
}
// Writes by relaxed stores of whole words: others may read the previous request meanwhile.
inline void write_request(Request& target, const Request& request) {
  auto* to = reinterpret_cast<uint64_t*>(&target);
  for (const uint64_t word : std::bit_cast<RequestWords>(request))
    std::atomic_ref(*to++).store(word, std::memory_order_relaxed);
}

// The memory of one group on a board. Borrowed.
class Area {
 public:
  Area() = default;
  Area(std::byte* base, uint32_t local_ranks) : base_(base), local_ranks_(local_ranks) {}

  BoardArea& header() const { return *reinterpret_cast<BoardArea*>(base_); }
  std::atomic<uint64_t>& settled(uint32_t local_rank) const {
    return reinterpret_cast<BoardRankProgress*>(base_ + sizeof(BoardArea))[local_rank].settled;
  }
  BoardSlot& slot(uint32_t index) const {
    return *reinterpret_cast<BoardSlot*>(base_ + slots_offset(local_ranks_) +
                                         index * slot_bytes(local_ranks_));
  }
  BoardSlot& slot_of(uint64_t number) const {
    return slot(static_cast<uint32_t>(number % kBoardSlots));
  }
  BoardEntry& entry(uint64_t number, uint32_t local_rank) const {
    return reinterpret_cast<BoardEntry*>(&slot_of(number) + 1)[local_rank];
  }
  BoardFailure& failure(uint64_t number) const {
    return reinterpret_cast<BoardFailure*>(base_ +
                                           failures_offset(local_ranks_))[number % kBoardSlots];
  }

 private:
  std::byte* base_ = nullptr;
  uint32_t local_ranks_ = 0;
};

// A board as mapped in this process. Borrowed; other processes may change it at any moment.
class View {
 public:
  View() = default;
  View(std::byte* base, uint32_t local_ranks) : base_(base), local_ranks_(local_ranks) {}

  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(base_); }
  BoardCounters& counters(uint32_t local_rank) const { return header().counters[local_rank]; }
  BoardOffer& offer(uint32_t local_rank) const { return header().offers[local_rank]; }
  BoardSubgroupRequest& subgroup_request(uint32_t local_rank) const {
    return header().subgroup_requests[local_rank];
  }
  Area area(uint32_t index) const {
    return {base_ + kAreasOffset + index * area_bytes(local_ranks_), local_ranks_};
  }
  BoardFolds& folds() const {
    return *reinterpret_cast<BoardFolds*>(base_ + folds_offset(local_ranks_));
  }
  std::byte* wire() const { return base_ + wire_offset(local_ranks_); }
  std::byte* base() const { return base_; }
  uint32_t local_ranks() const { return local_ranks_; }

 private:
  std::byte* base_ = nullptr;
  uint32_t local_ranks_ = 0;
};

// In the place of a local rank: the worker, where it folds.
inline constexpr uint32_t kWorkerLocalRank = UINT32_MAX;

// A group's area and the local ranks of its members on this host, in the order of the group.
struct GroupArea {
  Area area;
  uint32_t index = 0;  // Of the area on the board.
  std::span<const uint32_t> local_ranks;
};

// The slot of one operation, as the procedures of transitions.h access it. `Context` is the rank or
// worker that runs them: uint32_t local_rank(); Decision decide(number), of the last rank to
// arrive; void ring(), the worker's doorbell; uint64_t settled_by_all(), numbers below which all
// members are known to have settled; and of the arriving rank const Request& request() and int64_t
// started_ns().
//
// For the memory orders see transitions.h.
template <class Context>
class SlotMemory {
 public:
  SlotMemory(const View& view, const GroupArea& group, uint64_t number, Context& context)
      : view_(view),
        group_(group),
        number_(number),
        slot_(group.area.slot_of(number)),
        context_(context) {}

  uint64_t load_word() const { return slot_.word.load(); }
  bool exchange_word(uint64_t& seen, uint64_t next) {
    return slot_.word.compare_exchange_strong(seen, next);
  }
  uint64_t load_claimed() const { return slot_.claimed.load(std::memory_order_acquire); }
  bool exchange_claimed(uint64_t& seen, uint64_t next) {
    return slot_.claimed.compare_exchange_strong(seen, next);
  }
  uint64_t load_blocks() const { return slot_.blocks.load(std::memory_order_acquire); }
  void store_blocks(uint64_t value) { slot_.blocks.store(value, std::memory_order_release); }
  uint64_t load_folded() const { return slot_.folded.load(std::memory_order_acquire); }
  bool exchange_folded(uint64_t& seen, uint64_t next) {
    return slot_.folded.compare_exchange_strong(seen, next);
  }
  void write_request() {
    BoardEntry& own = group_.area.entry(number_, context_.local_rank());
    board::write_request(own.request, context_.request());
    own.started_ns.store(context_.started_ns(), std::memory_order_relaxed);
    own.ready.store(0, std::memory_order_relaxed);
  }
  void store_arrived(uint32_t local_rank, uint64_t value) {
    group_.area.entry(number_, local_rank).arrived.store(value, std::memory_order_release);
  }
  void store_holding(uint32_t local_rank, uint32_t value) {
    auto& holding = local_rank == kWorkerLocalRank ? slot_.worker_holding
                                                   : group_.area.entry(number_, local_rank).holding;
    holding.store(value, std::memory_order_release);
  }
  // The least number of ready blocks over the staged members; `blocks` where no member is staged.
  uint32_t load_ready(uint32_t blocks) const {
    for (const uint32_t local_rank : group_.local_ranks) {
      BoardEntry& entry = group_.area.entry(number_, local_rank);
      if ((std::atomic_ref(entry.request.flags).load(std::memory_order_relaxed) & kRequestStaged) !=
          0)
        blocks = std::min(blocks, entry.ready.load(std::memory_order_acquire));
    }
    return blocks;
  }
  void store_ready(uint32_t local_rank, uint32_t blocks) {
    group_.area.entry(number_, local_rank).ready.store(blocks);
  }
  uint64_t load_passed() const { return slot_.passed.load(); }
  void store_passed(uint64_t value) { slot_.passed.store(value); }
  uint64_t load_shared() const { return slot_.shared.load(); }
  void store_shared(uint64_t value) { slot_.shared.store(value); }
  uint32_t load_top() const { return view_.folds().top.load(std::memory_order_acquire); }
  uint64_t load_fold(uint32_t index) const {
    return view_.folds().words[index].load(std::memory_order_acquire);
  }
  bool exchange_fold(uint32_t index, uint64_t& seen, uint64_t next) {
    return view_.folds().words[index].compare_exchange_strong(seen, next);
  }
  uint64_t load_left(uint32_t index) const {
    return view_.folds().folds[index].left.load(std::memory_order_acquire);
  }
  bool exchange_left(uint32_t index, uint64_t& seen, uint64_t next) {
    return view_.folds().folds[index].left.compare_exchange_strong(seen, next);
  }
  bool all_settled(uint64_t number) const { return context_.settled_by_all() > number; }
  uint64_t load_settled(uint32_t member) const {
    return group_.area.settled(group_.local_ranks[member]).load(std::memory_order_acquire);
  }
  bool load_ranks_decide() const { return group_.area.header().ranks_decide.load() != 0; }
  void set_called() {
    const auto slot = static_cast<uint32_t>(number_ % kBoardSlots);
    group_.area.header().called[slot / 64].fetch_or(uint64_t{1} << slot % 64);
  }
  void ring() {
    view_.header().called[group_.index / 64].fetch_or(uint64_t{1} << group_.index % 64);
    context_.ring();
  }
  Decision decide() { return context_.decide(number_); }

 private:
  const View& view_;
  const GroupArea& group_;
  const uint64_t number_;
  BoardSlot& slot_;
  Context& context_;
};

}  // namespace tutti::board
