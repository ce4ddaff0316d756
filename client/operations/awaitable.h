// What a tutti_work stands for: an operation of a group, or a message to be received.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "client/operations/op_queue.h"

namespace tutti::client {

// Safe from any thread.
class Awaitable {
 public:
  Awaitable() = default;
  Awaitable(const Awaitable&) = delete;
  Awaitable& operator=(const Awaitable&) = delete;
  virtual ~Awaitable() = default;

  // Blocks until there is an outcome and the result is in the output; returns the outcome.
  // `timeout_ms` < 0: until the own timeout. DEADLINE_EXCEEDED while poll() is false: it may be
  // waited for again.
  virtual Status wait(int64_t timeout_ms) = 0;
  // Whether wait() would return at once. Does not block.
  virtual bool poll() = 0;
  // Nobody waits any more: ordinary memory of the caller is not written from now on.
  virtual void abandon() = 0;
  // The rank that sent the message, after wait(); -1: this is none that was received.
  virtual int32_t source() const { return -1; }
};

// An operation of a queue. Keeps alive what it needs.
class StartedOp final : public Awaitable {
 public:
  StartedOp(std::shared_ptr<Connection> connection, std::shared_ptr<OpQueue> queue)
      : connection_(std::move(connection)), queue_(std::move(queue)) {}

  // Where to store the operation, which must be set before anything else is called.
  std::shared_ptr<PendingOp>* op() { return &op_; }

  Status wait(int64_t timeout_ms) override { return queue_->wait(*op_, timeout_ms); }
  // Callers poll in loops: the core is offered to the worker, which may have no other.
  bool poll() override {
    const bool is_done = queue_->poll(*op_);
    if (!is_done && !queue_->group_board().is_local()) std::this_thread::yield();
    return is_done;
  }
  void abandon() override {
    if (op_ != nullptr) queue_->abandon(op_);
  }

 private:
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<OpQueue> queue_;
  std::shared_ptr<PendingOp> op_;
};

}  // namespace tutti::client
