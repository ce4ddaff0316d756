// Where the parts of a mapped board lie, and the memory of one operation on it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/board/transitions.h"
#include "proto/board.h"

namespace tutti::board {

// What lies at `source`, copied out in one pass of whole words: it may change meanwhile.
inline Request copy_request(const Request& source) {
  struct Words {
    uint64_t at[sizeof(Request) / sizeof(uint64_t)];
  } words;
  auto* from = reinterpret_cast<uint64_t*>(const_cast<Request*>(&source));
  for (size_t i = 0; i < std::size(words.at); ++i)
    words.at[i] = std::atomic_ref(from[i]).load(std::memory_order_relaxed);
  return std::bit_cast<Request>(words);
}
// Likewise: others may look at what was there before.
inline void write_request(Request& target, const Request& request) {
  struct Words {
    uint64_t at[sizeof(Request) / sizeof(uint64_t)];
  };
  const auto words = std::bit_cast<Words>(request);
  auto* to = reinterpret_cast<uint64_t*>(&target);
  for (size_t i = 0; i < std::size(words.at); ++i)
    std::atomic_ref(to[i]).store(words.at[i], std::memory_order_relaxed);
}

// One group's part of a board.
class Area {
 public:
  Area() = default;
  Area(std::byte* base, uint32_t seats) : base_(base), seats_(seats) {}

  BoardArea& header() const { return *reinterpret_cast<BoardArea*>(base_); }
  std::atomic<uint64_t>& settled(uint32_t seat) const {
    return reinterpret_cast<BoardSeatProgress*>(base_ + sizeof(BoardArea))[seat].settled;
  }
  BoardSlot& slot(uint32_t index) const {
    return *reinterpret_cast<BoardSlot*>(base_ + slots_offset(seats_) + index * slot_bytes(seats_));
  }
  BoardSlot& slot_of(uint64_t number) const {
    return slot(static_cast<uint32_t>(number % kBoardSlots));
  }
  BoardEntry& entry(uint64_t number, uint32_t seat) const {
    return reinterpret_cast<BoardEntry*>(&slot_of(number) + 1)[seat];
  }
  BoardFailure& failure(uint64_t number) const {
    return reinterpret_cast<BoardFailure*>(base_ + failures_offset(seats_))[number % kBoardSlots];
  }

 private:
  std::byte* base_ = nullptr;
  uint32_t seats_ = 0;
};

// A whole board in this process's memory. Borrowed; every part may change at any moment.
class View {
 public:
  View() = default;
  View(std::byte* base, uint32_t seats) : base_(base), seats_(seats) {}

  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(base_); }
  BoardCounters& counters(uint32_t seat) const { return header().counters[seat]; }
  BoardSubgroupRequest& subgroup_request(uint32_t seat) const {
    return header().subgroup_requests[seat];
  }
  Area area(uint32_t index) const {
    return {base_ + kAreasOffset + index * area_bytes(seats_), seats_};
  }
  std::byte* base() const { return base_; }
  uint32_t seats() const { return seats_; }

 private:
  std::byte* base_ = nullptr;
  uint32_t seats_ = 0;
};

// The seat of the worker, where it folds.
inline constexpr uint32_t kWorkerSeat = UINT32_MAX;

// Who shares an operation's slot: the group's members on this host, by their order in the group.
struct GroupArea {
  Area area;
  uint32_t index = 0;  // Of the area.
  std::span<const uint32_t> seats;
};

// The memory that the procedures of transitions.h run on. `Host` gives what is not memory:
// Decision decide(number), void ring(), uint64_t settled_by_all(), const Request& request() and
// int64_t started_ns() of the arriving rank.
//
// Stores publish with release and loads acquire; an exchange is sequentially consistent, and so are
// the accesses whose order with another thread's matters without one in between: ranks_decide.
template <class Host>
class SlotMemory {
 public:
  SlotMemory(const View& view, const GroupArea& group_area, uint64_t number, Host& host)
      : view_(view),
        group_area_(group_area),
        number_(number),
        slot_(group_area.area.slot_of(number)),
        host_(host) {}

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
    BoardEntry& own = group_area_.area.entry(number_, host_.seat());
    board::write_request(own.request, host_.request());
    own.started_ns.store(host_.started_ns(), std::memory_order_relaxed);
    own.ready.store(0, std::memory_order_relaxed);
  }
  void store_arrived(uint32_t seat, uint64_t value) {
    group_area_.area.entry(number_, seat).arrived.store(value, std::memory_order_release);
  }
  void store_holding(uint32_t seat, uint32_t value) {
    auto& holding =
        seat == kWorkerSeat ? slot_.worker_holding : group_area_.area.entry(number_, seat).holding;
    holding.store(value, std::memory_order_release);
  }
  // The least of the staged members' ready blocks; `blocks` where none is staged.
  uint32_t load_ready(uint32_t blocks) const {
    for (const uint32_t seat : group_area_.seats) {
      BoardEntry& entry = group_area_.area.entry(number_, seat);
      if ((std::atomic_ref(entry.request.flags).load(std::memory_order_relaxed) & kRequestStaged) !=
          0)
        blocks = std::min(blocks, entry.ready.load(std::memory_order_acquire));
    }
    return blocks;
  }
  void store_ready(uint32_t seat, uint32_t blocks) {
    group_area_.area.entry(number_, seat).ready.store(blocks);
  }
  uint64_t load_passed() const { return slot_.passed.load(); }
  void store_passed(uint64_t value) { slot_.passed.store(value); }
  bool all_settled(uint64_t number) const { return host_.settled_by_all() > number; }
  uint64_t load_settled(uint32_t member) const {
    return group_area_.area.settled(group_area_.seats[member]).load(std::memory_order_acquire);
  }
  bool load_ranks_decide() const { return group_area_.area.header().ranks_decide.load() != 0; }
  void mark() {
    const auto slot = static_cast<uint32_t>(number_ % kBoardSlots);
    group_area_.area.header().called[slot / 64].fetch_or(uint64_t{1} << slot % 64);
  }
  void ring() {
    view_.header().called[group_area_.index / 64].fetch_or(uint64_t{1} << group_area_.index % 64);
    host_.ring();
  }
  Decision decide() { return host_.decide(number_); }

 private:
  const View& view_;
  const GroupArea& group_area_;
  const uint64_t number_;
  BoardSlot& slot_;
  Host& host_;
};

}  // namespace tutti::board
