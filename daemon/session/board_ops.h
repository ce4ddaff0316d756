// The operations on a mapped board as the worker sees them: finds them, reads their state, and runs
// the procedures of daemon/board on them.
//
// Used on the loop's thread alone. No value read from the board is trusted: a wrong one may spoil
// the results of its own job, and nothing else.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/op_id.h"
#include "daemon/base/status.h"
#include "daemon/board/board.h"
#include "daemon/session/mapping.h"

namespace tutti {

// The ranks of a job that are on one host.
struct HostRanks {
  struct Rank {
    uint32_t rank = 0;
    pid_t pid = 0;       // For messages.
    bool ended = false;  // Before it was welcomed.
  };
  std::string host;
  std::vector<Rank> ranks;  // By local rank, ascending.
  uint32_t world_size = 0;
};

// The part of a group that is on this host, and its area of the board.
struct HostGroup {
  uint32_t number = 0;
  uint32_t size = 0;                  // Members on all hosts.
  std::vector<uint32_t> local_ranks;  // Of the members on this host, in the order of the group.
  std::vector<uint32_t> places;       // Their ranks in the group.
  board::GroupArea shared;

  bool is_local() const { return size == local_ranks.size(); }
};

// An operation of a group, with its slot's word as it was when it was read.
struct BoardOp {
  HostGroup* group = nullptr;
  uint64_t number = 0;
  board::SlotWord word;

  EpochOp id() const { return {group->number, number}; }
  uint32_t generation() const { return word.generation; }
  uint32_t slot_index() const { return static_cast<uint32_t>(number % kBoardSlots); }
  BoardSlot& slot() const { return group->shared.area.slot_of(number); }
  BoardEntry& entry(uint32_t local_rank) const {
    return group->shared.area.entry(number, local_rank);
  }
};

class BoardOps {
 public:
  // `board`: of board_bytes(host.ranks.size()).
  BoardOps(Loop& loop, std::shared_ptr<const Mapping> board, HostRanks host);

  const board::View& view() const { return view_; }
  // Runs `task` on the loop soon, unless the board is destroyed before.
  void post(Loop::Task task) { loop_.post(lifetime_.guard(std::move(task))); }

  // ---- Members ----

  uint32_t world_size() const { return host_.world_size; }
  uint32_t rank_of(uint32_t local_rank) const { return host_.ranks[local_rank].rank; }
  uint32_t local_rank_of(uint32_t rank) const;  // Of a rank on this host.
  // "rank 3 (host a, pid 7)".
  std::string describe(uint32_t local_rank) const;
  Culprit culprit(uint32_t local_rank) const {
    return {static_cast<int>(rank_of(local_rank)), host_.host};
  }
  // An error whose culprit is this rank: `why`, behind its description and what it did.
  Status blame(uint32_t local_rank, const Status& why, const std::string& did) const;
  // False: it has ended.
  bool is_attached(uint32_t local_rank) const { return attached_[local_rank]; }
  // The rank is not served any more. With the last one the worker gives the memory of all back.
  void detach(uint32_t local_rank);
  // The memory of the rank; null: it was given back.
  const std::shared_ptr<const Mapping>& mapping(uint32_t local_rank) const {
    return mappings_[local_rank];
  }
  void set_mapping(uint32_t local_rank, std::shared_ptr<const Mapping> mapping) {
    mappings_[local_rank] = std::move(mapping);
  }
  // The ranks that left or died, by local rank, and why.
  const std::map<uint32_t, Status>& gone() const { return gone_; }
  // False: the rank was gone before.
  bool add_gone(uint32_t local_rank, const Status& why) {
    return gone_.emplace(local_rank, why).second;
  }
  // The rank takes note of no more verdicts: its slots may be used again without it.
  void settle_all(uint32_t local_rank);

  // ---- Groups ----

  // RESOURCE_EXHAUSTED: more than kAreasMax. Idempotent; returns the group's area.
  Result<uint32_t> add_group(uint32_t number, std::span<const uint32_t> ranks);
  HostGroup* find_group(uint32_t number) const;
  std::span<const std::unique_ptr<HostGroup>> groups() const { return groups_; }  // By area.

  // ---- Operations ----

  // nullopt: the operation's slot serves another one.
  std::optional<BoardOp> find(const EpochOp& op) const;
  // The operation that the slot serves now.
  BoardOp read(HostGroup& group, uint32_t slot) const;
  // The rank has arrived with a tensor that passes through a window.
  bool is_staged(const BoardOp& op, uint32_t local_rank) const;
  // All blocks are folded.
  bool is_folded(const BoardOp& op) const;
  // False: the ranks disagree, or a request does not fit its rank's memory, or that is gone.
  bool match(const BoardOp& op, board::MatchedOp& matched) const;
  // Ends an operation that nobody folds. A failure is written before the word changes. False: it
  // was over, which leaves its verdict as it is.
  bool end(const BoardOp& op, const Status& status) const;

  // Runs Procedure(op.generation(), args...) on the operation's slot, wakes the slot's sleepers
  // where the procedure says so, and returns it. It is left unfinished after kStepsMax steps:
  // another process may change the word all the time.
  template <template <class> class Procedure, class... Args>
  auto run(const BoardOp& op, const Args&... args) const {
    WorkerContext context;
    Memory memory(view_, op.group->shared, op.number, context);
    Procedure<Memory> procedure(op.generation(), args...);
    for (int step = 0; step < kStepsMax && procedure.step(memory) == board::Step::more; ++step) {
    }
    if constexpr (requires { procedure.must_wake(); })
      if (procedure.must_wake()) board::wake_low_half(op.slot().word);
    return procedure;
  }

 private:
  static constexpr int kStepsMax = 10'000;

  // The worker does not arrive at operations. It polls the board after the present turn of its
  // loop, so it needs no doorbell.
  struct WorkerContext {
    board::Decision decide(uint64_t) const { return {}; }
    void ring() const {}
    uint64_t settled_by_all() const { return 0; }
    uint32_t local_rank() const { return board::kWorkerLocalRank; }
    Request request() const { return {}; }
    int64_t started_ns() const { return 0; }
  };
  using Memory = board::SlotMemory<WorkerContext>;

  Loop& loop_;
  const std::shared_ptr<const Mapping> board_;
  const board::View view_;
  const HostRanks host_;
  std::vector<std::shared_ptr<const Mapping>> mappings_;  // By local rank.
  std::vector<bool> attached_;                            // By local rank.
  std::map<uint32_t, Status> gone_;                       // By local rank.
  std::vector<std::unique_ptr<HostGroup>> groups_;
  std::map<uint32_t, uint32_t> area_of_;  // By the group's number.
  Lifetime lifetime_;
};

}  // namespace tutti
