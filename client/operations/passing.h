// A staged operation whose caller does not wait: a thread passes its tensors block by block.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "client/operations/awaitable.h"
#include "client/operations/staged_op.h"

namespace tutti::client {

class Passing final : public Awaitable {
 public:
  // Copies the list of tensors, not the tensors. `op` is submitted later, by the caller.
  Passing(std::shared_ptr<Connection> connection, std::shared_ptr<OpQueue> queue,
          std::shared_ptr<PendingOp> op, const StagedTensors& staged);

  // Passes the tensors, on the one thread that calls this; blocks until the operation has ended.
  void run();

  Status wait(int64_t timeout_ms) override;
  bool poll() override;
  // Tensors are neither read nor written from now on: other ranks may miss a part of the input
  // until the operation's deadline. Blocks for as long as the thread copies a block or sleeps: 50
  // ms.
  void abandon() override;

 private:
  enum class State { waits, runs, ended };
  bool has_ended();
  void end(Status outcome);

  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<OpQueue> queue_;
  const std::shared_ptr<PendingOp> op_;
  const std::vector<TensorSides> tensors_;
  const StagedTensors staged_;
  std::atomic<bool> is_abandoned_ = false;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  State state_ = State::waits;
  Status outcome_;
};

}  // namespace tutti::client
