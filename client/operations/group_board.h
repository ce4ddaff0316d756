// A group's area of this host's board, as one of its ranks sees it. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/rank/connection.h"
#include "daemon/board/board.h"

namespace tutti::client {

// What the members requested, and the operation that follows from it.
struct Match {
  std::vector<board::MemberRequest> requests;
  board::MatchedOp op;
};

class GroupBoard {
 public:
  // `local_ranks`: of the group's members on this host, in the order of the group. `size`: the
  // number of all members.
  GroupBoard(const HostMemory& memory, uint32_t area, std::vector<uint32_t> local_ranks,
             uint32_t size);
  GroupBoard(const GroupBoard&) = delete;
  GroupBoard& operator=(const GroupBoard&) = delete;

  uint32_t local_rank() const { return memory_.local_rank(); }
  const std::vector<uint32_t>& local_ranks() const { return local_ranks_; }
  // Whether all members are on this host, so that operations need no worker.
  bool is_local() const { return local_ranks_.size() == size_; }
  const board::View& view() const { return memory_.view(); }
  const board::GroupArea& group_area() const { return group_area_; }
  const board::Area& area() const { return group_area_.area; }
  BoardSlot& slot(uint64_t number) const { return area().slot_of(number); }
  board::SlotWord word_of(uint64_t number) const { return board::unpack(slot(number).word.load()); }
  // Whether the operation has not ended.
  bool is_under_way(uint64_t number) const;
  // Whether the operation has ended well.
  bool is_done(uint64_t number) const;
  // Whether the result of the block is in the window, or where results() says.
  bool has_result(uint64_t number, uint32_t block) const;
  // Once there is a result: the window of `bytes` that it is in, for all ranks of this host; null:
  // that of this rank.
  std::byte* results(uint64_t number, uint64_t bytes) const;
  // How many folds the worker has shared with the ranks for the operation.
  uint32_t shared(uint64_t number) const;
  // The operation's, in the words of shared folds; and where these find their values.
  board::FoldWord fold_word(uint64_t number) const {
    return {board::FoldState::ready, 0, group_area_.index,
            static_cast<uint32_t>(number % kBoardSlots)};
  }
  board::FoldMemory fold_memory() const {
    return {memory_.segments(), {view().wire(), kWireBytes}};
  }
  // Size of a window in bytes; 0: operations of the group cannot be staged.
  uint64_t window_bytes() const;
  // How often the worker has looked at the board; and whether it has not since, though the rank
  // waited and called it for so long: then it is to blame.
  uint64_t worker_looks() const { return view().header().looks.load(); }
  bool has_worker_slept(uint64_t looks, Millis waited) const;
  // Whether tensors of so many bytes on each rank of this host exceed its last-level cache.
  bool exceeds_cache(uint64_t bytes_each) const {
    return bytes_each * local_ranks_.size() >= memory_.cache_bytes();
  }
  // The number below which all members have settled their operations.
  uint64_t settled_by_all() const;
  // With room for the members' requests, so that match_requests() allocates nothing.
  Match make_match() const;
  // False: the requests do not agree.
  bool match_requests(uint64_t number, Match& match) const;
  void wake_sleepers(uint64_t number) const { board::wake_low_half(slot(number).word); }
  // Runs a procedure of transitions.h on the operation's slot, and returns it. Wakes the sleepers
  // where it ended the phase that they sleep in. `context`: see board::SlotMemory.
  template <template <class> class Procedure, class Context, class... Arguments>
  auto run(uint64_t number, Context context, Arguments... arguments) const {
    board::SlotMemory<Context> memory(view(), group_area_, number, context);
    Procedure<board::SlotMemory<Context>> procedure(board::generation_of(number), arguments...);
    board::run(procedure, memory);
    if constexpr (requires { procedure.must_wake(); })
      if (procedure.must_wake()) wake_sleepers(number);
    return procedure;
  }

 private:
  const HostMemory& memory_;
  const uint32_t size_;
  const std::vector<uint32_t> local_ranks_;
  const board::GroupArea group_area_;
};

}  // namespace tutti::client
