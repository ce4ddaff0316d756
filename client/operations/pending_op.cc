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
  if (op.clock.is_running()) return;
  const TimePoint now = Clock::now();
  op.clock.started = now;
  if (op.has_arrived)
    board.area().entry(op.number, board.local_rank()).started_ns.store(nanoseconds(now));
}

bool is_in_time(const WaitClock& clock) {
  if (!clock.is_running()) return true;
  const TimePoint deadline = clock.deadline();
  const TimePoint heard = std::max(deadline, clock.heard.load());
  return Clock::now() <= std::min(heard + kAnswerGrace, deadline + kBusyGrace);
}

void listen_to_worker(const GroupBoard& board, WaitClock& clock, TimePoint now) {
  const uint64_t looks = board.worker_looks();
  const bool is_first = clock.heard.load() == TimePoint();
  // The rank itself may have been off its core since the deadline.
  const bool is_late = now > clock.deadline() + kAnswerGrace;
  if (is_first) clock.heard = is_late ? now : clock.deadline();
  if (clock.looks.exchange(looks) != looks && !is_first) clock.heard = now;
}

bool is_held(const PendingOp& op, PendingOp::OnBoard board, TimePoint limit) {
  if (!op.is_on_gpus || !op.is_on_gpus(board)) return false;
  return Clock::now() <= std::min(op.clock.deadline() + kAnswerGrace, limit);
}

Status copy_out(OpResources& resources) {
  for (const OpResources::CopyOut& copy : resources.copies)
    copy_bytes(copy.to, copy.from, copy.bytes);
  return resources.copy_last ? resources.copy_last() : Status();
}

}  // namespace tutti::client
