// How a rank waits: it folds, then looks again for a while, then sleeps, with an eye on its worker.
#include <algorithm>

#include "client/caller.h"

namespace tutti::client {
namespace {

// How often a sleeper looks whether its worker lives.
constexpr Millis kPulse{50};
// Between two looks at a tensor whose blocks other ranks must fold first.
constexpr Millis kNap{1};
// Of one look at an operation that is not waited for.
constexpr uint32_t kHelpBlocks = 8;

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

// The clock is not looked at for calls that are over at once.
void Calls::start_clock(Ticket& ticket) {
  if (ticket.started.load() != TimePoint()) return;
  const TimePoint now = Clock::now();
  ticket.started = now;
  if (ticket.arrived)
    group_area_.area.entry(ticket.number, seat_).started_ns.store(nanoseconds(now));
}

bool Calls::finished(Ticket& ticket) {
  if (!connection_.is_mine()) {
    if (!ticket.known) ticket.outcome = connection_.usable();
    return true;
  }
  const std::lock_guard lock(mutex_);
  if (ticket.known || settle(ticket)) return true;
  Status fault = connection_.usable();
  const bool timed = ticket.started.load() != TimePoint();
  if (fault.ok() && timed && Clock::now() > ticket.started.load() + ticket.timeout + kAnswerGrace) {
    fault = connection_.no_answer();
    connection_.lose(fault);
  }
  if (fault.ok()) return false;
  if (conclude(ticket.number) && settle(ticket)) return true;
  const bool folding = word_of(ticket.number).phase == board::Phase::folding;
  const bool in_time =
      !timed || Clock::now() <= ticket.started.load() + ticket.timeout + kAnswerGrace;
  if (folding && in_time && !is_cancelled_) return false;  // To its end: see done().
  ticket.blocks.clear();  // Others may still use that memory: it goes with the connection.
  ticket.outcome = std::move(fault);
  forget(ticket);
  return true;
}

// What is being folded is folded to its end: a failure told before that would let its tensors be
// used while others still read them.
bool Calls::done(Ticket& ticket) {
  if (connection_.is_mine()) start_clock(ticket);
  if (finished(ticket)) return true;
  tend(ticket);
  if (word_of(ticket.number).phase != board::Phase::folding) connection_.check_pulse();
  return finished(ticket);
}

// What a waiting rank does for an operation: it folds, calls the worker where others are missing or
// stuck, and ends what is folded where nobody has come to say so.
void Calls::tend(Ticket& ticket) {
  if (help(ticket.number, kHelpBlocks)) return;
  const TimePoint now = Clock::now();
  const TimePoint deadline = ticket.started.load() + ticket.timeout;
  const bool folding = word_of(ticket.number).phase == board::Phase::folding;
  if (folding && (conclude(ticket.number) || now < deadline)) return;
  const bool is_late = now > std::min(ticket.started.load() + kPatience, deadline);
  if (!is_late || now < ticket.next_call.load()) return;
  ticket.next_call = now + kPatience;
  call(ticket.number);
}

// One turn of waiting without sleeping; false: nothing to be done but sleep, or look closely. Who
// has slept sleeps again, unless there was work.
bool Calls::look(Ticket& ticket, Backoff& backoff) {
  const board::SlotWord word = word_of(ticket.number);
  if (word.turn != turn_of(ticket.number) || is_over(word.phase) || ticket.known) return false;
  if (word.phase == board::Phase::called) return backoff.pause(Backoff::Awaited::worker);
  if (word.phase == board::Phase::open || !help(ticket.number)) return backoff.pause();
  backoff.reset();
  return true;
}

// Says so in the word, so that nobody pays for waking who is awake.
void Calls::sleep(const Ticket& ticket, Millis timeout) {
  Caller caller(*this);
  Memory memory(view_, group_area_, ticket.number, caller);
  board::PrepareSleep<Memory> falling(turn_of(ticket.number), ticket.taken);
  if (!run(falling, memory).may_sleep()) return;
  board::sleep_on_low_half(group_area_.area.slot_of(ticket.number).word,
                           static_cast<uint32_t>(falling.word()),
                           std::chrono::microseconds(timeout).count());
}

// Until the next look at the worker, or at an operation whose time is up before.
Millis Calls::pulse(const Ticket& ticket) const {
  const auto left =
      std::chrono::ceil<Millis>(ticket.started.load() + ticket.timeout - Clock::now());
  return left.count() >= 0 ? std::min(left + Millis(1), kPulse) : kPulse;
}

Status Calls::wait(Ticket& ticket, int64_t timeout_ms) {
  Status outcome = await(ticket, timeout_ms);
  if (ticket.known || !connection_.is_mine()) deliver(ticket);
  return outcome;
}

Status Calls::await(Ticket& ticket, int64_t timeout_ms) {
  Backoff backoff(connection_.cores());
  TimePoint limit = TimePoint::max();
  while (connection_.is_mine() && look(ticket, backoff)) {
  }
  if (!finished(ticket)) {
    if (timeout_ms >= 0) limit = Clock::now() + Millis(timeout_ms);
    while (!done(ticket)) {
      const auto left =
          limit == TimePoint::max() ? kPulse : std::chrono::ceil<Millis>(limit - Clock::now());
      if (left.count() <= 0)
        return deadline_exceeded("not done after " + std::to_string(timeout_ms) +
                                 " ms; the work goes on");
      connection_.settle_all();
      sleep(ticket, std::min(left, pulse(ticket)));
      while (look(ticket, backoff)) {
      }
    }
  }
  return ticket.outcome;
}

bool Calls::is_under_way(const Ticket& ticket) const {
  const board::SlotWord word = word_of(ticket.number);
  return word.turn == turn_of(ticket.number) && !is_over(word.phase);
}

bool Calls::pause(Ticket& ticket, Backoff& backoff) {
  const board::Phase phase = word_of(ticket.number).phase;
  const bool worker = phase == board::Phase::called;
  if (backoff.pause(worker ? Backoff::Awaited::worker : Backoff::Awaited::ranks)) return true;
  if (done(ticket)) return false;
  const bool folding = phase == board::Phase::folding;
  sleep(ticket, folding ? kNap : pulse(ticket));
  return true;
}

}  // namespace tutti::client
