// The worker's side of a board (proto/board.h): maps its memory, polls what the ranks of this host
// called the worker to, forwards their requests to their sessions, and ends operations.
//
// Used on the loop's thread alone. What ranks fold is watched by folding_watch.h; what no rank
// waits for is folded by worker_folding.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/session/board_ops.h"
#include "daemon/session/folding_watch.h"
#include "daemon/session/host_recorder.h"
#include "daemon/session/mapping.h"
#include "daemon/session/worker_folding.h"

namespace tutti {

class HostBoard {
 public:
  // Area 0 serves the whole job. `ranks`: the job's ranks on this host, ascending. `window_bytes`:
  // see BoardHeader.
  static Result<std::shared_ptr<HostBoard>> make(Loop& loop, std::span<const uint32_t> ranks,
                                                 uint32_t world_size, uint64_t window_bytes,
                                                 std::shared_ptr<HostRecorder> recorder);
  // Use make().
  HostBoard(Loop& loop, SealedMemory memory, std::span<const uint32_t> ranks,
            std::shared_ptr<HostRecorder> recorder);

  // ---- Ranks, by seat ----

  // Before the first session is welcomed. `segment`: the rank's memory, to be shared with the
  // others.
  void attach(uint32_t seat, RankSession& session, Fd segment,
              std::shared_ptr<const Mapping> mapping);
  // Instead of attach(): the rank ended before it was welcomed. Its seat gets an empty segment.
  Status attach_gone(uint32_t seat);
  // What a trainer needs: the board's memory, the recorder's and every seat's segment. Borrowed.
  std::vector<int> descriptors() const;
  // Call once for each attached rank; the descriptors are closed after the last.
  void on_descriptors_sent();
  // The rank takes no further part: operations that it left half done fail with `why`, and its
  // session is not called again.
  void remove_rank(uint32_t seat, const Status& why);
  // The session is not called again.
  void detach(uint32_t seat);
  BoardCounters& counters(uint32_t seat) const { return ops_.view().counters(seat); }

  // Answers RankSession::on_subgroup_request(). `ranks`: the new group's, of the job, in its order.
  void answer_subgroup(uint32_t seat, const Result<uint32_t>& group,
                       const std::vector<uint32_t>& ranks);

  // Answers RankSession::on_offer().
  void answer_offer(uint32_t seat, const Status& status);

  // ---- Operations ----

  // Handles what the ranks called the worker to.
  void poll();
  // Whether ranks may settle operations among themselves. They may not while a rank is gone.
  void set_ranks_decide(bool let);
  // Ends an operation for all ranks of this host, unless ranks fold it.
  void complete(uint32_t group, uint64_t number, const Status& status);
  // Forwards what the ranks asked for up to this operation, called or not.
  void collect_requests(uint32_t group, uint64_t number);
  // Lets the ranks fold a called operation. False: its requests disagree, or the group has members
  // elsewhere.
  bool let_ranks_fold(uint32_t group, uint64_t number);
  // All ranks of the group are on this host.
  bool is_local(uint32_t group) const;
  uint64_t window_bytes() const { return window_bytes_; }
  // Bytes of its tensor that the rank has written to its window. Not checked.
  uint64_t filled_bytes(uint32_t group, uint64_t number, uint32_t seat) const;
  // The first `bytes` of every window of the operation hold results.
  void release_window(uint32_t group, uint64_t number, uint64_t bytes);

 private:
  // What was forwarded of a group.
  struct Forwarded {
    static constexpr uint64_t kNone = UINT64_MAX;
    // By member on this host: its requests below this number are forwarded, or need not be.
    std::vector<uint64_t> next;
    // By slot: the operation that was forwarded and has not ended.
    std::vector<uint64_t> running = std::vector<uint64_t>(kBoardSlots, kNone);
  };

  Result<uint32_t> add_group(uint32_t number, std::span<const uint32_t> ranks);
  Forwarded& forwarded(const BoardGroup& group) { return forwarded_[group.shared.index]; }
  bool is_running(const BoardOp& op) {
    return forwarded(*op.group).running[op.slot_index()] == op.number;
  }
  void clear_running(uint32_t group, uint64_t number);
  bool is_attached(uint32_t seat) const { return ops_.session(seat) != nullptr; }
  void poll_soon();
  void poll_subgroup_requests();
  void poll_offers();
  void poll_area(uint32_t area);
  void forward_requests(const BoardOp& op);
  void forward_member(BoardGroup& group, size_t member, uint64_t number);
  bool forward_request(BoardGroup& group, size_t member, uint64_t number);
  void notify_window_filled(const BoardOp& op);
  void check_unfilled_windows(uint32_t seat, const Status& why);
  void update_ranks_decide();
  void call_begun(BoardGroup& group);

  Fd memory_;  // Until it was sent to all.
  const std::shared_ptr<HostRecorder> recorder_;
  std::vector<Fd> segments_;  // By seat, until they were sent to all.
  size_t attached_ = 0;
  size_t sent_ = 0;
  uint64_t window_bytes_ = 0;
  BoardOps ops_;
  WorkerFolding folding_;
  FoldingWatch watch_;
  std::vector<Forwarded> forwarded_;      // By area.
  std::vector<bool> subgroup_requested_;  // By seat: the session knows, and has not answered.
  std::vector<bool> offered_;             // By seat: the same, of an offer.
  bool ranks_decide_ = true;              // As set.
  bool stuck_ = false;                    // A rank may go on writing: the epoch is over.
  bool polling_ = false;
  bool poll_again_ = false;
};

}  // namespace tutti
