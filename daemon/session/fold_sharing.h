// The folds of operations among hosts, on the worker's side of the board: publishes them for the
// ranks that wait, collects what they have done, and does by itself what nobody claims in time.
//
// Outputs must not change after a failure is published, so an operation that was cancelled settles
// once no live rank holds one of its folds. A rank that holds one for longer than a grace period
// ends the epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/engine/engine.h"
#include "daemon/session/board_ops.h"

namespace tutti {

class FoldSharing {
 public:
  // `on_stuck` is called when a fold will never be done, or may go on although the operation has
  // ended: the epoch must end.
  using OnStuck = std::function<void(const Status& why)>;
  FoldSharing(Loop& loop, BoardOps& ops, OnStuck on_stuck);
  ~FoldSharing() { loop_.cancel(timer_); }

  // For an operation of a group over several hosts, whose ranks here have all arrived; null: no
  // rank that waits would be faster. `keeps`: what this object lies in.
  std::shared_ptr<FoldHelpers> helpers_of(const BoardOp& op, std::shared_ptr<const void> keeps);
  // Collects what ranks have done.
  void collect();
  // The rank's process has ended. Whether folds that it held are lost.
  bool remove(uint32_t local_rank);
  // Folds here what nobody has claimed: a rank will not wait any more.
  void fold_rest();
  // Forgets all folds, whose memory goes.
  void clear() { published_.clear(); }
  // Bytes that folds have read: those that ranks have done, and those that the worker took back.
  struct Counts {
    uint64_t by_ranks = 0;
    uint64_t by_worker = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  class Helpers;
  // A block of a fold that was published and has not ended.
  struct Published {
    uint32_t index = 0;
    FoldHead head{};                   // As published; ranks may overwrite that.
    std::shared_ptr<Helpers> helpers;  // Of its operation.
    std::shared_ptr<int> left;         // Blocks of the fold.
    TimePoint since;                   // When it was published, or cancelled.
  };
  // A whole fold.
  struct Description {
    FoldHead head{};
    uint64_t element_bytes = 0;  // Of its sources.
    std::vector<uint64_t> places;
  };

  std::shared_ptr<const int> publish(const std::shared_ptr<Helpers>& helpers, const FoldWork& work,
                                     const Strategy& local);
  bool describe(const FoldWork& work, const Strategy& local, Description& fold) const;
  static FoldHead write_block(const Description& fold, uint64_t first, uint64_t count,
                              SharedFold& block);
  void cancel(const Helpers& helpers);
  bool is_settled(const Helpers& helpers) const;
  std::vector<int> holders(const Helpers& helpers) const;
  board::FoldWord load(const Published& block) const;
  board::FoldMemory memory() const;
  // Ends the blocks of which `is_over` is true, resumes the operations that waited for them, and
  // reports what is in stuck_.
  template <class IsOver>
  void end_if(const IsOver& is_over);
  bool has_ended(Published& block);
  bool take_back(Published& block);
  bool give_up(const Published& block);
  void release(const Published& block);
  void watch();
  void poll();

  Loop& loop_;
  BoardOps& ops_;
  const OnStuck on_stuck_;
  const Kernel kernel_ = choose_kernel();
  uint64_t wire_used_ = 0;
  ScratchPool wire_;
  mutable std::vector<board::SegmentView> segments_;  // By local rank; see memory().
  std::vector<uint32_t> free_;                        // Indices, descending.
  std::vector<Published> published_;
  uint32_t folds_ = 0;         // That were published.
  std::vector<Status> stuck_;  // To be reported.
  Counts counts_;
  Loop::TimerId timer_ = 0;  // 0: not polling.
};

}  // namespace tutti
