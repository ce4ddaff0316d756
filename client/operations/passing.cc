#include "client/operations/passing.h"

#include <algorithm>
#include <utility>

namespace tutti::client {
namespace {

constexpr Millis kDeadlineCheck{20};

StagedTensors with_tensors(StagedTensors staged, std::span<const TensorSides> tensors) {
  staged.tensors = tensors;
  return staged;
}

}  // namespace

Passing::Passing(std::shared_ptr<Connection> connection, std::shared_ptr<OpQueue> queue,
                 std::shared_ptr<PendingOp> op, const StagedTensors& staged)
    : connection_(std::move(connection)),
      queue_(std::move(queue)),
      op_(std::move(op)),
      tensors_(staged.tensors.begin(), staged.tensors.end()),
      staged_(with_tensors(staged, tensors_)) {}

void Passing::run() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::waits) return;
    state_ = State::runs;
    // As if the call were made now. The worker knows since when the operation is.
    op_->clock.started = Clock::now();
  }
  Status outcome =
      StagedOp(*queue_, *op_, staged_).run(Backoff(connection_->cores()), &is_abandoned_);
  queue_->abandon(op_);  // No effect if the window is released.
  const std::lock_guard lock(mutex_);
  end(std::move(outcome));
}

void Passing::end(Status outcome) {
  outcome_ = std::move(outcome);
  state_ = State::ended;
  changed_.notify_all();
}

// While the thread is busy with earlier operations, a waiter for this one sees to its
// deadline.
bool Passing::has_ended() {
  if (state_ == State::waits && op_->clock.is_late()) {
    op_->window.is_staging = false;  // What is over may be settled.
    if (queue_->poll(*op_)) {
      static_cast<void>(queue_->release(*op_));
      end(op_->outcome);
    } else {
      op_->window.is_staging = true;
    }
  }
  return state_ == State::ended;
}

Status Passing::wait(int64_t timeout_ms) {
  if (!connection_->is_own_process()) return connection_->usable();
  const TimePoint limit = timeout_ms < 0 ? TimePoint::max() : Clock::now() + Millis(timeout_ms);
  std::unique_lock lock(mutex_);
  while (!has_ended()) {
    const TimePoint now = Clock::now();
    if (now >= limit) return still_running(timeout_ms);
    changed_.wait_until(lock, std::min(limit, now + kDeadlineCheck));
  }
  return outcome_;
}

bool Passing::poll() {
  if (!connection_->is_own_process()) return true;
  const std::lock_guard lock(mutex_);
  return has_ended();
}

void Passing::abandon() {
  if (!connection_->is_own_process()) return;
  is_abandoned_ = true;
  std::unique_lock lock(mutex_);
  if (state_ == State::waits) {
    state_ = State::ended;
    op_->window.is_staging = false;
    queue_->abandon(op_);
    return;
  }
  changed_.wait(lock, [this] { return state_ == State::ended; });
}

}  // namespace tutti::client
