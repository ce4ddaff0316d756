// The board of a host (proto/board.h) and the memory of its ranks, on the worker's side: polls what
// the ranks called the worker to, passes their requests on, and ends operations. It is the part of
// an epoch that happens inside this host.
//
// Used on the loop's thread alone. A rank cannot crash, block or corrupt the worker by what it
// writes: a request is copied out of shared memory once, checked, and only the copy is used. What
// ranks fold is watched by folding_watch.h; what no rank waits for is folded by worker_folding.h.
// Folds of operations among hosts are shared with the ranks by fold_sharing.h.
#pragma once

#include <algorithm>
#include <bitset>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/group/group.h"
#include "daemon/session/board_events.h"
#include "daemon/session/board_ops.h"
#include "daemon/session/fold_sharing.h"
#include "daemon/session/folding_watch.h"
#include "daemon/session/host_recorder.h"
#include "daemon/session/rank_questions.h"
#include "daemon/session/result_windows.h"
#include "daemon/session/worker_folding.h"

namespace tutti {

struct BoardOptions {
  uint64_t segment_bytes = 0;  // Of each rank.
  uint64_t window_bytes = 0;   // See BoardHeader.
  // Asked for each operation among hosts: whether ranks that wait fold it; empty: yes.
  std::function<bool()> ranks_fold = nullptr;
};

// A rank's own; not checked.
struct RankCounters {
  uint64_t operations = 0;  // Ended OK.
  uint64_t failures = 0;
  uint64_t bytes = 0;  // Of the tensors of operations that ended OK.
};

class HostBoard final : public LocalPhase, public std::enable_shared_from_this<HostBoard> {
 public:
  // Makes the board, the recorder and the ranks' segments; a rank that ended has an empty one.
  // `epoch`: for the recorder. RESOURCE_EXHAUSTED: more than kLocalRanksMax ranks.
  // INVALID_ARGUMENT: no such `segment_bytes`.
  static Result<std::shared_ptr<HostBoard>> make(Loop& loop, const HostRanks& host,
                                                 const BoardOptions& options, uint32_t epoch,
                                                 BoardEvents& events);
  // Use make().
  HostBoard(Loop& loop, SealedMemory memory, const HostRanks& host, const BoardOptions& options,
            std::shared_ptr<HostRecorder> recorder, BoardEvents& events);

  const std::shared_ptr<HostRecorder>& recorder() const { return recorder_; }

  // ---- Ranks, of the job ----

  // What its trainer needs, borrowed: the rank's segment; the board's memory, the recorder's and
  // the segments by local rank.
  int segment(uint32_t rank) const { return segments_[ops_.local_rank_of(rank)].get(); }
  std::vector<int> shared_descriptors() const;
  // Where to find the descriptors that the rank sends with its offers of memory.
  void set_descriptors(uint32_t rank, std::function<std::vector<Fd>()> take) {
    questions_.set_descriptors(ops_.local_rank_of(rank), std::move(take));
  }
  // "rank 3 (host a, pid 7)".
  std::string describe(uint32_t rank) const { return ops_.describe(ops_.local_rank_of(rank)); }
  RankCounters counters(uint32_t rank) const;
  // What has been touched of its segment.
  uint64_t memory_bytes(uint32_t rank) const { return trace::touched_bytes(segment(rank)); }
  // Whether it said that it leaves on purpose.
  bool is_leaving(uint32_t rank) const;
  // The rank takes no further part: operations that it left half done fail with `why`. OK: it left.
  void remove_rank(uint32_t rank, const Status& why);
  // The rank is not served any more.
  void detach(uint32_t rank);
  // Answer the board's events. `ranks`: the new group's, of the job, in its order.
  void answer_subgroup(uint32_t rank, const Result<uint32_t>& group,
                       const std::vector<uint32_t>& ranks);
  void answer_offer(uint32_t rank, const Status& status) {
    questions_.answer_offer(ops_.local_rank_of(rank), status);
  }

  // ---- Operations ----

  // Handles what the ranks called the worker to.
  void poll();
  // Who has done the folds of operations among hosts.
  const FoldSharing::Counts& fold_counts() const { return sharing_.counts(); }
  // Whether a rank has fallen asleep until an operation ends that the worker still runs.
  bool is_waited_for() const {
    return std::ranges::any_of(forwarded_, [](const Forwarded& of) { return of.waited_for.any(); });
  }
  // Whether ranks may settle operations among themselves. They may not while a rank is gone.
  void set_ranks_decide(bool let);

  // LocalPhase. Does nothing for an operation that no rank has begun, that ranks fold, or that is
  // over.
  void complete(const EpochOp& op, const Status& status) override;
  std::byte* result_window(const EpochOp& op, uint64_t bytes) override;
  void release_window(const EpochOp& op, uint64_t blocks) override;
  void collect_requests(const EpochOp& op) override;
  bool let_ranks_fold(const EpochOp& id) override;
  std::shared_ptr<FoldHelpers> helpers_of(const EpochOp& id) override;
  void on_started(const EpochOp& op, const Signature& signature,
                  const Strategies& strategies) override {
    recorder_->on_started(op, signature, strategies);
  }
  void on_ended(const EpochOp& op, Code code) override { recorder_->on_ended(op, code); }
  // In a failed epoch the worker decides how operations end, not the ranks.
  void on_over(const Status& /*cause*/) override { set_ranks_decide(false); }

 private:
  // What was forwarded of a group.
  struct Forwarded {
    static constexpr uint64_t kNone = UINT64_MAX;
    // By member on this host: its requests below this number are forwarded, or need not be.
    std::vector<uint64_t> next;
    // By slot: the operation that was forwarded and has not ended.
    std::vector<uint64_t> running = std::vector<uint64_t>(kBoardSlots, kNone);
    std::bitset<kBoardSlots> waited_for;  // By slot, of those: a rank was seen to sleep.

    bool is_running(const BoardOp& op) const { return running[op.slot_index()] == op.number; }
  };

  Status make_segments(const HostRanks& host, uint64_t segment_bytes);
  Result<uint32_t> add_group(uint32_t number, std::span<const uint32_t> ranks);
  Forwarded& forwarded(const HostGroup& group) { return forwarded_[group.shared.index]; }
  void clear_running(const EpochOp& op);
  void poll_area(uint32_t area);
  void forward_requests(const BoardOp& op);
  void forward_member(const BoardOp& called, size_t member);
  bool forward_request(const BoardOp& called, size_t member, uint64_t number);
  Call call_of(const BoardOp& op, size_t member);
  void notify_window_filled(const BoardOp& op);
  void check_unfilled_windows(uint32_t local_rank, const Status& why);
  void update_ranks_decide();
  void call_begun(HostGroup& group);

  const Fd memory_;
  const std::shared_ptr<HostRecorder> recorder_;
  BoardEvents& events_;
  const uint64_t window_bytes_;
  const std::function<bool()> ranks_fold_;
  std::vector<Fd> segments_;  // By local rank.
  BoardOps ops_;
  RankQuestions questions_;
  WorkerFolding folding_;
  FoldingWatch watch_;
  FoldSharing sharing_;
  ResultWindows results_;
  std::vector<Forwarded> forwarded_;  // By area.
  bool ranks_decide_ = true;          // As set.
  bool stuck_ = false;                // A rank may go on writing: the epoch is over.
  bool polling_ = false;
  bool poll_again_ = false;
};

}  // namespace tutti
