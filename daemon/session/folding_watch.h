// Watches the operations that ranks fold. Ends those that they cannot finish, because a member died
// half way or does not fold its part before the deadline; and has the worker fold an overdue
// operation where no member is to blame or none waits for it.
//
// Outputs must not change after a failure is published. So no further block may be claimed first;
// then the watch polls until no live rank, but for one that exceeds its grace period, holds a
// block.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/session/board_ops.h"
#include "daemon/session/worker_folding.h"

namespace tutti {

class FoldingWatch {
 public:
  // `on_stuck` is called when an operation ended whose culprit, with that local rank, may go on
  // writing to the outputs.
  using OnStuck = std::function<void(uint32_t local_rank, const Status& why)>;
  // As BoardOps::end().
  using End = std::function<bool(const BoardOp& op, const Status& status)>;
  FoldingWatch(Loop& loop, BoardOps& ops, WorkerFolding& folding, End end, OnStuck on_stuck)
      : loop_(loop),
        ops_(ops),
        folding_(folding),
        end_(std::move(end)),
        on_stuck_(std::move(on_stuck)) {}
  ~FoldingWatch() { loop_.cancel(timer_); }

  // A rank called the worker to an operation in phase `folding`: its deadline may have passed.
  // Where no member is to blame, or none waits, the worker folds.
  void check(const BoardOp& op);
  // Some rank is gone: from now on, polls for operations that it left half done. Does nothing where
  // it polls already.
  void start_polling();

 private:
  // An operation past its deadline; its claims are stopped.
  struct Overdue {
    BoardOp op;
    uint32_t culprit = 0;  // Its local rank.
    Status why;
    TimePoint until;  // The end of the other ranks' grace period.
  };

  void poll();
  bool poll_op(const BoardOp& op);
  bool poll_overdue();
  void on_overdue(const BoardOp& op, uint32_t timeout_ms);
  std::optional<uint32_t> passed_timeout_ms(const BoardOp& op) const;
  std::optional<uint32_t> find_culprit(const BoardOp& op) const;
  bool is_half_done(const BoardOp& op, uint32_t local_rank) const;
  bool others_hold(const BoardOp& op, std::optional<uint32_t> but = {}) const;
  Status fault_of_gone(const BoardOp& op) const;

  Loop& loop_;
  BoardOps& ops_;
  WorkerFolding& folding_;
  const End end_;
  const OnStuck on_stuck_;
  std::vector<Overdue> overdue_;
  Loop::TimerId timer_ = 0;  // 0: not polling.
};

}  // namespace tutti
