#include "client/operations/pending_op.h"

#include <algorithm>
#include <utility>

namespace tutti::client {

Status overwritten() noexcept {
  return without_throwing(Code::internal, [] {
    return internal_error("the board's memory was overwritten; join again");
  });
}

Status still_running(int64_t timeout_ms) {
  return deadline_exceeded("not done after " + std::to_string(timeout_ms) +
                           " ms; the operation is still running");
}

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void start_clock(const GroupBoard& board, PendingOp& op) {
  if (op.started.load() != TimePoint()) return;
  const TimePoint now = Clock::now();
  op.started = now;
  if (op.has_arrived)
    board.area().entry(op.number, board.seat()).started_ns.store(nanoseconds(now));
}

bool is_late(const PendingOp& op) { return Clock::now() > op.started.load() + op.timeout; }

bool is_in_time(const PendingOp& op) {
  const TimePoint started = op.started.load();
  if (started == TimePoint()) return true;
  const TimePoint deadline = started + op.timeout;
  const TimePoint heard = std::max(deadline, op.heard.load());
  return Clock::now() <= std::min(heard + kAnswerGrace, deadline + kBusyGrace);
}

void listen_to_worker(const GroupBoard& board, PendingOp& op, TimePoint now) {
  const uint64_t looks = board.worker_looks();
  const bool is_first = op.heard.load() == TimePoint();
  if (is_first) op.heard = op.started.load() + op.timeout;
  if (op.looks.exchange(looks) != looks && !is_first) op.heard = now;
}

}  // namespace tutti::client
