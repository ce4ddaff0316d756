// The end of operations: their outcomes, and what they held.
#include <utility>

#include "client/operations/op_queue.h"

namespace tutti::client {
namespace {

// For an operation that is done, whose result is not in the output though its time is over.
// `usable`: of the connection; it is lost where the rank has left.
Status result_missing(const Status& usable) noexcept {
  if (!usable.ok()) return usable;
  return without_throwing(Code::deadline_exceeded, [] {
    return deadline_exceeded(
        "the stream has not copied the result to the output before the deadline; pass a longer "
        "timeout");
  });
}

}  // namespace

// ---- Settling ----

// Reads the outcome from the board if there is one.
bool OpQueue::settle(PendingOp& op) {
  if (op.has_outcome) return true;
  const board::SlotWord word = board_.word_of(op.number);
  const bool is_here = word.generation == board::generation_of(op.number);
  if (is_here && !is_over(word.phase)) return false;
  const bool is_done = is_here && word.phase == board::Phase::done;
  const auto on_board = is_done ? PendingOp::OnBoard::done : PendingOp::OnBoard::failed;
  if (is_held(op, on_board, held_until_.load())) return false;
  const BoardFailure& failure = board_.area().failure(op.number);
  if (is_here && word.phase == board::Phase::failed && failure.number == op.number)
    op.outcome = read_failure(failure);
  else if (!is_done)
    op.outcome = overwritten();
  else if (op.is_on_gpus && op.is_on_gpus(PendingOp::OnBoard::done))
    op.outcome = result_missing(connection_.usable());
  set_settled(op);
  recorder_.count(op.record, op.outcome);
  return true;
}

void OpQueue::set_settled(PendingOp& op) {
  recorder_.end(op.record, op.outcome.code());
  op.has_outcome = true;
  ops_[op.number % kBoardSlots] = nullptr;
  advance_settled();
}

void OpQueue::advance_settled() {
  for (; settled_ != next_ && ops_[settled_ % kBoardSlots] == nullptr; ++settled_) {
    const board::SlotWord word = board_.word_of(settled_);
    const bool is_done = word.generation != board::generation_of(settled_) || is_over(word.phase);
    if (detached_[settled_ % kBoardSlots] && !is_done) break;
    detached_.reset(settled_ % kBoardSlots);
  }
  published_ = std::max(published_, std::min(settled_, folding_.number()));
  // Once the rank has left, the worker writes this.
  if (!is_cancelled_)
    board_.area().settled(board_.local_rank()).store(published_, std::memory_order_release);
}

void OpQueue::settle_finished() {
  if (!connection_.is_own_process()) return;
  const std::lock_guard lock(mutex_);
  for (uint64_t number = settled_; number != next_; ++number)
    if (PendingOp* op = ops_[number % kBoardSlots]; op != nullptr) settle_unless_staging(*op);
  advance_settled();
  release_abandoned();
  std::optional<uint32_t> unsettled;
  if (!owed_.empty()) static_cast<void>(submit_owed(unsettled));
}

// ---- Ending ----

void OpQueue::cancel(TimePoint limit) {
  is_cancelled_ = true;
  held_until_ = limit;
  folding_.stop();
  const std::lock_guard lock(mutex_);
  for (PendingOp* op : ops_) {
    if (op == nullptr) continue;
    const bool waits_for_gpus = is_held(*op, PendingOp::OnBoard::under_way, limit);
    if (settle(*op) || waits_for_gpus) continue;
    op->outcome = connection_.usable();
    op->resources.blocks.clear();  // Other ranks may still read that memory.
    set_settled(*op);
  }
}

// Copies without the lock of the queue: outputs may be large.
Status OpQueue::release(PendingOp& op) {
  const std::lock_guard lock(op.release_mutex);
  if (std::exchange(op.is_released, true)) return op.copied;
  if (op.outcome.ok()) op.copied = copy_out(op.resources);
  op.resources.copy_last = nullptr;
  op.memory.end();
  connection_.own_memory().release(op.resources.blocks);
  return op.copied;
}

void OpQueue::detach(PendingOp& op) {
  if (!connection_.is_own_process()) return;
  const std::lock_guard lock(mutex_);
  if (settle(op)) return;
  recorder_.end(op.record, Code::cancelled);
  ops_[op.number % kBoardSlots] = nullptr;
  detached_.set(op.number % kBoardSlots);
}

void OpQueue::abandon(const std::shared_ptr<PendingOp>& op) {
  if (!connection_.is_own_process()) return;
  const std::lock_guard release_lock(op->release_mutex);
  if (std::exchange(op->is_released, true)) return;
  op->memory.abandon();
  const std::lock_guard lock(mutex_);
  add_abandoned(op);
  release_abandoned();
}

void OpQueue::add_abandoned(const std::shared_ptr<PendingOp>& op) {
  abandoned_.push_back(op);
  ++abandoned_count_;
  connection_.under_way().count_abandoned(1);
}

void OpQueue::release_abandoned() {
  std::erase_if(abandoned_, [this](const std::shared_ptr<PendingOp>& op) {
    if (!settle(*op)) return false;
    connection_.own_memory().release(op->resources.blocks);
    connection_.under_way().count_abandoned(-1);
    --abandoned_count_;
    return true;
  });
}

}  // namespace tutti::client
