#include "client/calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/caller.h"

namespace tutti::client {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr int64_t kNapUs = 1000;
constexpr const char* kTooMany = "the group has had all the operations it can count; join again";

Status overwritten() noexcept {
  return without_throwing(Code::internal, [] {
    return internal_error("the board's memory was overwritten; join again");
  });
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

}  // namespace

Status read_failure(const BoardFailure& failure) noexcept {
  const Code code = code_of(failure.code);
  const int32_t rank = failure.culprit_rank;
  const auto read = [&]() -> Status {
    return {code, text_of(failure.message), {rank, text_of(failure.culprit_host)}};
  };
  return without_throwing(code, read, rank);
}

Calls::Calls(Connection& connection, uint32_t area, std::vector<uint32_t> seats, uint32_t size)
    : connection_(connection),
      view_(connection.memory().view()),
      seat_(connection.memory().seat()),
      size_(size),
      seats_(std::move(seats)),
      group_area_{view_.area(area), area, seats_} {
  deciding_.members.reserve(seats_.size());  // No memory is needed on the way.
  abandoned_.reserve(kBoardSlots + 1);
  op_.members.reserve(seats_.size());
  asked_.resize(seats_.size());
  folding_asked_.resize(seats_.size());
}

board::SlotWord Calls::word_of(uint64_t number) const {
  return board::unpack(group_area_.area.slot_of(number).word.load());
}

// ---- Arriving ----

// A slot serves again when all ranks have taken note of the operation kBoardSlots before this one:
// that is waited for, as a call that gave up would leave its place in the order to the next one.
Status Calls::arrive(const Request& request, Ticket& ticket) {
  ticket.timeout = Millis(request.timeout_ms);
  if (!(request.flags & kRequestBlocking)) ticket.started = Clock::now();
  Backoff backoff(connection_.cores());
  TimePoint next_call;  // The clock is looked at where the call must wait.
  for (;;) {
    uint32_t unsettled = kNobody;
    const Status arrived = arrive_once(request, ticket, unsettled);
    if (!arrived.ok() || unsettled == kNobody) return arrived;
    start_clock(ticket);
    if (Clock::now() > ticket.started.load() + ticket.timeout + kAnswerGrace) {
      connection_.lose(full(unsettled));
      return connection_.usable();
    }
    if (!backoff.pause()) make_room(next_call);
  }
}

Status Calls::arrive_once(const Request& request, Ticket& ticket, uint32_t& unsettled) {
  connection_.check_pulse();
  if (Status s = connection_.usable(); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  if (is_cancelled_) return connection_.usable();
  if (next_ >= board::kNumbersMax) return resource_exhausted(kTooMany);
  if (!abandoned_.empty()) collect();
  Ticket*& place = tickets_[next_ % kBoardSlots];
  if (disowned_.any()) advance();
  if ((place != nullptr && !settle_idle(*place)) || disowned_[next_ % kBoardSlots]) {
    unsettled = static_cast<uint32_t>(std::ranges::find(seats_, seat_) - seats_.begin());
    return {};
  }
  Caller caller(*this, request, ticket);
  Memory memory(view_, group_area_, next_, caller);
  board::Arrive<Memory> arrival({next_, kBoardSlots, seat_, static_cast<uint32_t>(seats_.size())});
  run(arrival, memory);
  using Result = board::Arrive<Memory>::Result;
  if (arrival.result() == Result::broken) return overwritten();
  if (arrival.result() == Result::not_free) {
    unsettled = std::min(arrival.unsettled(), static_cast<uint32_t>(seats_.size()) - 1);
    return {};
  }
  if (next_ >= kBoardSlots && settled_by_all_ <= next_ - kBoardSlots)
    settled_by_all_ = settled_by_others();
  ticket.number = next_;
  ticket.arrived = true;
  place = &ticket;
  ++next_;
  follow_up(arrival, memory, ticket.number, caller.is_background());
  return {};
}

// What the one who makes an operation begin owes the others.
void Calls::follow_up(board::Arrive<Memory>& arrival, Memory& memory, uint64_t number,
                      bool background) {
  if (arrival.result() == board::Arrive<Memory>::Result::alone) fold_alone(number, memory);
  if (arrival.must_wake()) wake(number);
  if (background && arrival.result() == board::Arrive<Memory>::Result::arrived) call(number);
}

// Does for the operation that keeps the slot what a rank that waits does.
void Calls::make_room(TimePoint& next_call) {
  connection_.settle_all();
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_ - kBoardSlots;
  }
  if (help(number) || conclude(number)) return;
  const TimePoint now = Clock::now();
  if (next_call == TimePoint()) next_call = now + kPatience;
  if (now >= next_call) {
    next_call = now + kPatience;
    connection_.check_worker();
    call(number);
  }
  std::atomic<uint32_t> nothing = 0;
  board::sleep_on(nothing, 0, kNapUs);
}

uint64_t Calls::settled_by_others() const {
  uint64_t least = UINT64_MAX;
  for (const uint32_t seat : seats_)
    least = std::min(least, group_area_.area.settled(seat).load(std::memory_order_acquire));
  return least;
}

Status Calls::full(uint32_t unsettled) const {
  const std::string slots = std::to_string(kBoardSlots);
  const bool own = seats_[unsettled] == seat_;
  return resource_exhausted(own ? slots + " operations of this rank did not end in time; join again"
                                : connection_.rank_at(seats_[unsettled]) +
                                      " has not taken note of " + slots +
                                      " operations before this one; join again");
}

bool Calls::gather(uint64_t number, std::vector<board::MemberRequest>& asked,
                   board::MatchedOp& op) const {
  for (size_t i = 0; i < seats_.size(); ++i)
    asked[i] = {board::copy_request(group_area_.area.entry(number, seats_[i]).request),
                connection_.memory().segment(seats_[i])};
  if (!match(asked, op)) return false;
  op.past_cache = op.apart && !op.any_staged && op.bytes > connection_.memory().cache_bytes();
  return true;
}

// What goes on to other hosts, and what ranks disagree about, is the worker's.
board::Decision Calls::decide(uint64_t number) {
  if (!is_local() || !gather(number, asked_, deciding_)) return {};
  return board::decide(deciding_);
}

void Calls::fold_alone(uint64_t number, Memory& memory) {
  for (uint32_t block = 0; block < deciding_.blocks; ++block) run_block(deciding_, block, kernel_);
  board::EndOp<Memory> ending(turn_of(number), board::Phase::done);
  if (run(ending, memory).must_wake()) wake(number);
  memory.store_holding(seat_, 0);
}

// ---- Folding ----

bool Calls::help(uint64_t number, uint32_t blocks_most) {
  const uint64_t claimed = group_area_.area.slot_of(number).claimed.load(std::memory_order_acquire);
  if (board::unpack_count(claimed).turn != turn_of(number)) return false;
  const std::unique_lock one_at_a_time(folding_, std::try_to_lock);
  if (!one_at_a_time || is_cancelled_) return false;
  Caller caller(*this);
  Memory memory(view_, group_area_, number, caller);
  uint32_t done = 0;
  helped_ = number;
  for (; done < blocks_most; ++done) {
    board::ClaimBlock<Memory> claim(turn_of(number), seat_);
    if (!run(claim, memory).claimed() || !fold_claimed(number, memory, claim)) break;
  }
  helped_ = kNone;
  return done != 0;
}

// The requests stay as they are while this rank holds a block. False: they are not what was agreed.
bool Calls::fold_claimed(uint64_t number, Memory& memory, const board::ClaimBlock<Memory>& claim) {
  if (op_number_ != number && !gather(number, folding_asked_, op_)) return false;
  op_number_ = number;
  if (claim.block() >= op_.blocks) return false;  // The count was overwritten.
  run_block(op_, claim.block(), kernel_);
  if (op_.any_staged)
    group_area_.area.slot_of(number).block_folded[claim.block() % kWindowBlocks].store(
        pack(board::Count{turn_of(number), claim.block() + 1}), std::memory_order_release);
  board::FinishBlock<Memory> finish(turn_of(number), seat_, claim.blocks());
  if (run(finish, memory).must_wake()) wake(number);
  return true;
}

void Calls::feed(uint64_t number, uint32_t blocks, bool tells) {
  Caller caller(*this);
  Memory memory(view_, group_area_, number, caller);
  board::FillWindow<Memory> feeding(turn_of(number), seat_, blocks, tells && !is_local());
  run(feeding, memory);
}

bool Calls::is_through(uint64_t number, uint32_t block) const {
  const BoardSlot& slot = group_area_.area.slot_of(number);
  if (is_local())
    return slot.block_folded[block % kWindowBlocks].load(std::memory_order_acquire) ==
           pack(board::Count{turn_of(number), block + 1});
  const board::Count passed = board::unpack_count(slot.passed.load());
  return passed.turn == turn_of(number) && block < passed.blocks;
}

uint64_t Calls::window_bytes() const {
  return is_local() ? kWindowBlocks * kBoardBlockBytes : view_.header().window_bytes;
}

void Calls::wake(uint64_t number) const {
  board::wake_low_half(group_area_.area.slot_of(number).word);
}

void Calls::call(uint64_t number) {
  Caller caller(*this);
  Memory memory(view_, group_area_, number, caller);
  board::CallWorker<Memory> procedure(turn_of(number));
  run(procedure, memory);
}

bool Calls::conclude(uint64_t number) {
  Caller caller(*this);
  Memory memory(view_, group_area_, number, caller);
  board::CompleteOp<Memory> completion(turn_of(number));
  if (run(completion, memory).must_wake()) wake(number);
  return completion.completed();
}

// ---- Ending ----

bool Calls::settle(Ticket& ticket) {
  if (ticket.settled) return true;
  const board::SlotWord word = word_of(ticket.number);
  const bool here = word.turn == turn_of(ticket.number);
  if (here && !is_over(word.phase)) return false;
  const BoardFailure& why = group_area_.area.failure(ticket.number);
  if (here && word.phase == board::Phase::failed && why.number == ticket.number)
    ticket.outcome = read_failure(why);
  else if (!here || word.phase != board::Phase::done)
    ticket.outcome = overwritten();
  forget(ticket);
  count(ticket);
  return true;
}

// On behalf of the thread that waits for it.
bool Calls::settle_idle(Ticket& ticket) { return !ticket.is_staging && settle(ticket); }

void Calls::forget(Ticket& ticket) {
  ticket.known = ticket.settled = true;
  tickets_[ticket.number % kBoardSlots] = nullptr;
  advance();
}

void Calls::advance() {
  for (; settled_ != next_ && tickets_[settled_ % kBoardSlots] == nullptr; ++settled_) {
    const board::SlotWord word = word_of(settled_);
    const bool over = word.turn != turn_of(settled_) || is_over(word.phase);
    if (disowned_[settled_ % kBoardSlots] && !over) break;
    disowned_.reset(settled_ % kBoardSlots);
  }
  // Of a rank that left the worker says so.
  published_ = std::max(published_, std::min(settled_, helped_.load()));
  if (!is_cancelled_) group_area_.area.settled(seat_).store(published_, std::memory_order_release);
}

void Calls::disown(Ticket& ticket) {
  if (!connection_.is_mine()) return;
  const std::lock_guard lock(mutex_);
  if (settle(ticket)) return;
  tickets_[ticket.number % kBoardSlots] = nullptr;
  disowned_.set(ticket.number % kBoardSlots);
}

void Calls::count(const Ticket& ticket) {
  BoardCounters& own = view_.counters(seat_);
  const auto add = [](std::atomic<uint64_t>& figure, uint64_t more) {
    figure.fetch_add(more, std::memory_order_relaxed);
  };
  if (!ticket.outcome.ok()) return add(own.failures, 1);
  add(own.operations, 1);
  add(own.bytes, ticket.bytes);
}

void Calls::settle_finished() {
  if (!connection_.is_mine()) return;
  const std::lock_guard lock(mutex_);
  for (uint64_t number = settled_; number != next_; ++number)
    if (Ticket* ticket = tickets_[number % kBoardSlots]; ticket != nullptr) settle_idle(*ticket);
  advance();
  collect();
}

void Calls::cancel() {
  is_cancelled_ = true;
  const std::lock_guard folding(folding_);
  const std::lock_guard lock(mutex_);
  for (Ticket* ticket : tickets_) {
    if (ticket == nullptr || settle(*ticket)) continue;
    ticket->outcome = connection_.usable();
    ticket->blocks.clear();  // The others may still read it.
    forget(*ticket);
  }
}

// Copies outside of the lock: outputs may be large.
void Calls::deliver(Ticket& ticket) {
  const std::lock_guard one_at_a_time(ticket.delivery);
  if (std::exchange(ticket.delivered, true)) return;
  if (ticket.outcome.ok())
    for (const Ticket::Copy& copy : ticket.copies) copy_bytes(copy.to, copy.from, copy.bytes);
  connection_.release(ticket.blocks);
}

void Calls::abandon(const std::shared_ptr<Ticket>& ticket) {
  if (!connection_.is_mine()) return;
  const std::lock_guard one_at_a_time(ticket->delivery);
  if (std::exchange(ticket->delivered, true)) return;
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(ticket);
  ++abandoned_count_;
  connection_.count_abandoned(1);
  collect();
}

void Calls::collect() {
  std::erase_if(abandoned_, [this](const std::shared_ptr<Ticket>& ticket) {
    if (!settle(*ticket)) return false;
    connection_.release(ticket->blocks);
    connection_.count_abandoned(-1);
    --abandoned_count_;
    return true;
  });
}

}  // namespace tutti::client
