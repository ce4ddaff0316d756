// How a rank waits: it helps, then looks again for a while, then sleeps, with an eye on its worker.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "client/connection.h"

namespace tutti::client {
namespace {

// How often a sleeper looks whether its worker lives.
constexpr int64_t kPulseMs = 50;
// How long ranks that did not all come wait on the board before the worker watches over them.
constexpr Millis kPatience{50};
// Of one look at an operation that is not waited for.
constexpr uint32_t kHelpBlocks = 8;
// Between two looks at a tensor whose blocks other ranks must fold first.
constexpr int64_t kNapMs = 1;

bool is_pending(const Completion& completion) {
  const SlotState state = state_of(completion.state.load(std::memory_order_acquire));
  return state == SlotState::pending || state == SlotState::asleep;
}

// Until the next look at the worker, or at an operation whose time is up before.
int64_t pulse_ms(const Ticket& ticket) {
  const int64_t left = std::chrono::ceil<Millis>(ticket.deadline - Clock::now()).count() + 1;
  return left > 0 ? std::min<int64_t>(left, kPulseMs) : kPulseMs;
}

}  // namespace

bool Connection::finished(Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  if (ticket.known || settle(ticket)) return true;
  Outcome fault = usable();
  const bool is_over = !fault.ok();
  if (!is_over && Clock::now() > ticket.limit)
    fault =
        failure(TUTTI_DEADLINE_EXCEEDED, "the worker of job '" + target_.job + "' does not answer");
  if (fault.ok()) return false;
  if (concluded(ticket)) return true;  // Who comes late may find that it only had to be said.
  ticket.outcome = std::move(fault);
  ticket.settled |= is_over;
  return ticket.known = true;
}

// Under the lock.
bool Connection::concluded(Ticket& ticket) {
  const bool met = board_ != nullptr && ticket.number && is_mine();
  return met && board_->conclude(*ticket.number) && settle(ticket);
}

bool Connection::worker_lives() const {
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

Outcome Connection::worker_died() const {
  return {TUTTI_UNAVAILABLE, "the worker of job '" + target_.job + "' on this host died", -1,
          hosts_[target_.rank]};
}

// What is being folded is folded to its end: a failure told before that would let its tensors be
// used while others still read them.
bool Connection::done(Ticket& ticket) {
  if (finished(ticket)) return true;
  tend(ticket);
  if (finished(ticket)) return true;
  if (worker_lives() || stage_of(ticket) == Board::Stage::folding) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = worker_died();
  }
  return finished(ticket);
}

// What a waiting rank does for an operation on the board: it folds, calls the worker where others
// are missing or stuck, and completes what is folded where nobody has come to say so.
void Connection::tend(Ticket& ticket) {
  if (board_ == nullptr || !ticket.number || !is_mine()) return;
  if (!is_pending(segment_.completion(*ticket.slot))) return;
  if (board_->help(*ticket.number, kHelpBlocks)) return;
  const TimePoint now = Clock::now();
  const bool is_late = now > std::min(ticket.started + kPatience, ticket.deadline);
  switch (board_->stage(*ticket.number)) {
    case Board::Stage::waiting:
      if (is_late) board_->divert(*ticket.number);
      return;
    case Board::Stage::folding:
      if (!board_->conclude(*ticket.number) && now > ticket.deadline)
        board_->complain(*ticket.number);
      return;
    case Board::Stage::failing:
      return;
    case Board::Stage::elsewhere:  // Who diverted it may have stopped before it called.
      if (is_late) call_again(now);
      return;
  }
}

// However often somebody asks: most of what is elsewhere the worker has, and it only takes time.
void Connection::call_again(TimePoint now) {
  TimePoint next = next_call_.load();
  if (now >= next && next_call_.compare_exchange_strong(next, now + kPatience)) board_->call();
}

Board::Stage Connection::stage_of(const Ticket& ticket) const {
  const bool met = board_ != nullptr && ticket.number;
  return met ? board_->stage(*ticket.number) : Board::Stage::elsewhere;
}

// One turn of waiting without sleeping; false: nothing to be done but sleep, or look closely. Who
// has slept sleeps again, unless there was work.
bool Connection::look(Ticket& ticket, Rest& rest) {
  if (!is_pending(segment_.completion(*ticket.slot))) return false;
  if (stage_of(ticket) == Board::Stage::elsewhere) return rest.pause(Rest::Awaited::worker);
  if (!board_->help(*ticket.number)) return rest.pause();
  rest.reset();
  return true;
}

Outcome Connection::wait(Ticket& ticket, int64_t timeout_ms) {
  auto& state = segment_.completion(*ticket.slot).state;
  const TimePoint limit = timeout_ms < 0 ? TimePoint::max() : Clock::now() + Millis(timeout_ms);
  Rest rest(cores_);
  bool is_finished = finished(ticket);
  while (!is_finished) {
    while (is_mine() && look(ticket, rest)) {
    }
    const Board::Stage at = stage_of(ticket);
    if ((is_finished = done(ticket))) break;
    const auto left = std::chrono::ceil<Millis>(limit - Clock::now()).count();
    if (left <= 0)
      return failure(TUTTI_DEADLINE_EXCEEDED,
                     "not done after " + std::to_string(timeout_ms) + " ms; the work goes on");
    sleep_while_pending(state, std::min(left, pulse_ms(ticket)) * 1000,
                        [&] { return stage_of(ticket) == at; });
  }
  deliver(ticket);
  return ticket.outcome;
}

bool Connection::run_staged(Ticket& ticket, const Staged& staged) {
  Completion& completion = segment_.completion(*ticket.slot);
  Stage stage(*board_, *ticket.number, staged);
  Rest rest(cores_);
  while (is_pending(completion)) {
    if (stage.step()) {
      rest.reset();
      continue;
    }
    const Board::Stage at = stage_of(ticket);
    if (at == Board::Stage::elsewhere && is_pending(completion)) return false;
    if (rest.pause()) continue;
    if (done(ticket)) break;
    const int64_t nap_ms = at == Board::Stage::folding ? kNapMs : pulse_ms(ticket);
    sleep_while_pending(completion.state, nap_ms * 1000, [&] { return stage_of(ticket) == at; });
  }
  if (finished(ticket) && ticket.outcome.ok()) stage.drain();
  return true;
}

}  // namespace tutti::client
