#include "client/op_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti::client {
namespace {

// How often a sleeping rank checks that its worker lives.
constexpr Millis kWorkerCheck{50};
// How long a rank sleeps that waits for others to fold, or for a free slot.
constexpr Millis kNap{1};
// Blocks that one poll() folds.
constexpr uint32_t kPollBlocks = 8;

Status overwritten() noexcept {
  return without_throwing(Code::internal, [] {
    return internal_error("the board's memory was overwritten; join again");
  });
}

// Of an operation that is done, whose result is not in the output though its time is over.
// `usable`: of the connection; it is lost where the rank has left.
Status result_missing(const Status& usable) noexcept {
  if (!usable.ok()) return usable;
  return without_throwing(Code::deadline_exceeded, [] {
    return deadline_exceeded(
        "the stream has not copied the result to the output in its time; give it more");
  });
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
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

Status still_running(int64_t timeout_ms) {
  return deadline_exceeded("not done after " + std::to_string(timeout_ms) +
                           " ms; the operation is still running");
}

// What a rank's procedures on the board need besides memory: see board::SlotMemory.
class OpQueue::Host {
 public:
  explicit Host(OpQueue& queue) : queue_(queue) {}
  Host(OpQueue& queue, const Request& request, const PendingOp& op)
      : queue_(queue), request_(&request), op_(&op) {}

  board::Decision decide(uint64_t number) {
    const board::Decision decision = queue_.decide(number);
    const bool folds = decision.next == board::Phase::folding && !decision.alone;
    is_background_ = folds && !queue_.deciding_.op.anyone_waits;
    return decision;
  }
  void ring() const { queue_.connection_.ring_worker(); }
  uint64_t settled_by_all() const { return queue_.settled_by_all_; }
  uint32_t seat() const { return queue_.seat_; }
  const Request& request() const { return *request_; }
  // 0: the rank has not read the clock yet; it does once it has waited for a while.
  int64_t started_ns() const { return nanoseconds(op_->started.load()); }
  // No rank waits for the operation, so the worker folds it.
  bool is_background() const { return is_background_; }

 private:
  OpQueue& queue_;
  const Request* request_ = nullptr;
  const PendingOp* op_ = nullptr;
  bool is_background_ = false;
};

OpQueue::OpQueue(Connection& connection, uint32_t area, std::vector<uint32_t> seats, uint32_t size)
    : connection_(connection),
      view_(connection.memory().view()),
      recorder_(connection.memory().recorder()),
      seat_(connection.memory().seat()),
      size_(size),
      seats_(std::move(seats)),
      group_area_{view_.area(area), area, seats_} {
  // Nothing below allocates while an operation is under way.
  for (Match* match : {&deciding_, &folding_}) {
    match->requests.resize(seats_.size());
    match->op.members.reserve(seats_.size());
  }
  abandoned_.reserve(kBoardSlots + 1);
}

// Runs a procedure of transitions.h, whose first argument is the turn, on the operation's slot.
// Wakes the sleepers if it ended the phase that they sleep in.
template <class Procedure, class... Arguments>
Procedure OpQueue::run_procedure(uint64_t number, Arguments... arguments) {
  Host host(*this);
  Memory memory(view_, group_area_, number, host);
  Procedure procedure(board::turn_of(number), arguments...);
  run(procedure, memory);
  if constexpr (requires { procedure.must_wake(); })
    if (procedure.must_wake()) wake_sleepers(number);
  return procedure;
}

void OpQueue::wake_sleepers(uint64_t number) const { board::wake_low_half(slot(number).word); }

void OpQueue::call_worker(uint64_t number) { run_procedure<board::CallWorker<Memory>>(number); }

bool OpQueue::complete_if_folded(uint64_t number) {
  return run_procedure<board::CompleteOp<Memory>>(number).completed();
}

// ---- Submitting ----

// A slot is free once all ranks have settled the operation kBoardSlots before this one. That is
// waited for: a call that gave up would leave its place in the order to the next one.
Status OpQueue::submit(const Request& request, PendingOp& op) {
  op.timeout = Millis(request.timeout_ms);
  if (!(request.flags & kRequestBlocking)) op.started = Clock::now();
  if ((request.flags & kRequestCounts) != 0) reserve_counts(tensors_of_layout(request.layout));
  Backoff backoff(connection_.cores());
  TimePoint next_call;
  for (;;) {
    std::optional<uint32_t> unsettled;
    const Status submitted = try_submit(request, op, unsettled);
    if (!submitted.ok() || !unsettled) return submitted;
    start_clock(op);
    if (Clock::now() > op.started.load() + op.timeout + kAnswerGrace) {
      connection_.mark_lost(no_free_slot(*unsettled));
      return connection_.usable();
    }
    if (!backoff.pause()) await_free_slot(next_call);
  }
}

bool OpQueue::has_free_slot() {
  const std::lock_guard lock(mutex_);
  PendingOp* const place = ops_[next_ % kBoardSlots];
  if (place != nullptr && !settle_unless_staging(*place)) return false;
  return next_ < kBoardSlots || load_settled_by_all() > next_ - kBoardSlots;
}

// Arrives unless the slot is in use: `unsettled` is then the index in seats_ of a member that has
// not settled the slot's operation.
Status OpQueue::try_submit(const Request& request, PendingOp& op,
                           std::optional<uint32_t>& unsettled) {
  connection_.check_worker_if_due();
  if (Status s = connection_.usable(); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  if (is_cancelled_) return connection_.usable();
  if (next_ >= board::kNumbersMax)
    return resource_exhausted("the group has had all the operations it can count; join again");
  if (!abandoned_.empty()) release_abandoned();
  PendingOp*& place = ops_[next_ % kBoardSlots];
  if (detached_.any()) advance_settled();
  if ((place != nullptr && !settle_unless_staging(*place)) || detached_[next_ % kBoardSlots]) {
    unsettled = static_cast<uint32_t>(std::ranges::find(seats_, seat_) - seats_.begin());
    return {};
  }
  Host host(*this, request, op);
  Memory memory(view_, group_area_, next_, host);
  const auto members = static_cast<uint32_t>(seats_.size());
  op.arrived_ns = trace::now_ns();
  board::Arrive<Memory> arrival({next_, kBoardSlots, seat_, members});
  run(arrival, memory);
  using Result = board::Arrive<Memory>::Result;
  if (arrival.result() == Result::broken) return overwritten();
  if (arrival.result() == Result::not_free) {
    unsettled = std::min(arrival.unsettled(), members - 1);
    return {};
  }
  if (next_ >= kBoardSlots && settled_by_all_ <= next_ - kBoardSlots)
    settled_by_all_ = load_settled_by_all();
  op.number = next_;
  op.has_arrived = true;
  place = &op;
  ++next_;
  after_arrival(arrival, memory, op.number, host.is_background());
  record_begin(request, op);  // By now the other ranks can go on.
  return {};
}

void OpQueue::after_arrival(board::Arrive<Memory>& arrival, Memory& memory, uint64_t number,
                            bool is_background) {
  using Result = board::Arrive<Memory>::Result;
  if (arrival.result() == Result::alone) fold_alone(number, memory);
  if (arrival.must_wake()) wake_sleepers(number);
  if (is_background && arrival.result() == Result::arrived) call_worker(number);
}

// Does for the operation that keeps the slot what a waiting rank does.
void OpQueue::await_free_slot(TimePoint& next_call) {
  connection_.settle_all();
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_ - kBoardSlots;
  }
  if (fold_blocks(number) || complete_if_folded(number)) return;
  const TimePoint now = Clock::now();
  if (next_call == TimePoint()) next_call = now + kCallWorkerAfter;
  if (now >= next_call) {
    next_call = now + kCallWorkerAfter;
    connection_.check_worker();
    call_worker(number);
  }
  std::this_thread::sleep_for(kNap);
}

uint64_t OpQueue::load_settled_by_all() const {
  uint64_t least = UINT64_MAX;
  for (const uint32_t seat : seats_)
    least = std::min(least, group_area_.area.settled(seat).load(std::memory_order_acquire));
  return least;
}

Status OpQueue::no_free_slot(uint32_t unsettled) const {
  const std::string slots = std::to_string(kBoardSlots);
  const bool own = seats_[unsettled] == seat_;
  return resource_exhausted(own ? slots + " operations of this rank did not end in time; join again"
                                : connection_.rank_name(seats_[unsettled]) +
                                      " has not taken note of " + slots +
                                      " operations before this one; join again");
}

// What runs out of memory while an operation is under way would leave it half done.
void OpQueue::reserve_counts(size_t counts) {
  const std::scoped_lock lock(fold_mutex_, mutex_);
  deciding_.op.reserve_counts(counts);
  folding_.op.reserve_counts(counts);
}

// False: the requests do not agree.
bool OpQueue::match_requests(uint64_t number, Match& match) const {
  for (size_t i = 0; i < seats_.size(); ++i)
    match.requests[i] = {board::copy_request(group_area_.area.entry(number, seats_[i]).request),
                         connection_.memory().segment(seats_[i])};
  board::MatchedOp& op = match.op;
  if (!board::match(match.requests, op)) return false;
  op.past_cache = op.disjoint && !op.any_staged && op.bytes > connection_.memory().cache_bytes();
  return true;
}

// By default the worker decides: operations over several hosts, and requests that do not agree.
board::Decision OpQueue::decide(uint64_t number) {
  if (!is_local() || !match_requests(number, deciding_)) return {};
  return board::decide(deciding_.op);
}

// ---- Folding ----

void OpQueue::fold_alone(uint64_t number, Memory& memory) {
  for (uint32_t block = 0; block < deciding_.op.blocks; ++block)
    run_block(deciding_.op, block, kernel_);
  run_procedure<board::EndOp<Memory>>(number, board::Phase::done);
  memory.store_holding(seat_, 0);
}

bool OpQueue::fold_blocks(uint64_t number, uint32_t blocks_max) {
  const uint64_t claimed = slot(number).claimed.load(std::memory_order_acquire);
  if (board::unpack_count(claimed).turn != board::turn_of(number)) return false;
  const std::unique_lock lock(fold_mutex_, std::try_to_lock);
  if (!lock || is_cancelled_) return false;
  uint32_t folded = 0;
  folding_number_ = number;
  for (; folded < blocks_max; ++folded) {
    const auto claim = run_procedure<board::ClaimBlock<Memory>>(number, seat_);
    if (!claim.claimed() || !fold_claimed(number, claim)) break;
  }
  folding_number_ = kNone;
  return folded != 0;
}

// Requests do not change while this rank holds a block. False: they are not what was agreed,
// because the board was overwritten.
bool OpQueue::fold_claimed(uint64_t number, const board::ClaimBlock<Memory>& claim) {
  if (matched_number_ != number && !match_requests(number, folding_)) return false;
  matched_number_ = number;
  if (claim.block() >= folding_.op.blocks) return false;
  run_block(folding_.op, claim.block(), kernel_);
  if (folding_.op.any_staged)
    slot(number).block_folded[claim.block() % kWindowBlocks].store(
        pack(board::Count{board::turn_of(number), claim.block() + 1}), std::memory_order_release);
  run_procedure<board::FinishBlock<Memory>>(number, seat_, claim.blocks());
  return true;
}

void OpQueue::set_ready(uint64_t number, uint32_t blocks, bool calls_worker) {
  run_procedure<board::FillWindow<Memory>>(number, seat_, blocks, calls_worker && !is_local());
}

bool OpQueue::has_result(uint64_t number, uint32_t block) const {
  const uint32_t turn = board::turn_of(number);
  if (is_local())
    return slot(number).block_folded[block % kWindowBlocks].load(std::memory_order_acquire) ==
           pack(board::Count{turn, block + 1});
  const board::Count passed = board::unpack_count(slot(number).passed.load());
  return passed.turn == turn && block < passed.blocks;
}

uint64_t OpQueue::window_bytes() const {
  return is_local() ? kWindowBlocks * kBoardBlockBytes : view_.header().window_bytes;
}

// ---- Waiting ----

// Operations that end at once never read the clock.
void OpQueue::start_clock(PendingOp& op) {
  if (op.started.load() != TimePoint()) return;
  const TimePoint now = Clock::now();
  op.started = now;
  if (op.has_arrived) group_area_.area.entry(op.number, seat_).started_ns.store(nanoseconds(now));
}

// Whether there is an outcome. Gives the operation one if it ended, or if it never will.
bool OpQueue::check_outcome(PendingOp& op) {
  if (!connection_.is_own_process()) {
    if (!op.has_outcome) op.outcome = connection_.usable();
    return true;
  }
  const std::lock_guard lock(mutex_);
  Status fault = connection_.usable();
  // Asked before the board is: what ended on GPUs has ended on the board.
  const bool is_held = !fault.ok() && this->is_held(op, PendingOp::OnBoard::under_way);
  if (settle(op)) return true;
  const bool is_timed = op.started.load() != TimePoint();
  const auto is_in_time = [&] {
    return !is_timed || Clock::now() <= op.started.load() + op.timeout + kAnswerGrace;
  };
  if (fault.ok() && !is_in_time()) {
    fault = connection_.worker_timeout();
    connection_.mark_lost(fault);
  }
  if (fault.ok() || is_held) return false;
  if (complete_if_folded(op.number) && settle(op)) return true;
  // Ranks that fold finish first: after a failure the caller may reuse tensors that they read.
  const bool is_folding = word_of(op.number).phase == board::Phase::folding;
  if (is_folding && is_in_time() && !is_cancelled_) return false;
  op.blocks.clear();  // Other processes may still use that memory, so it is never reused.
  op.outcome = std::move(fault);
  set_settled(op);
  return true;
}

bool OpQueue::poll(PendingOp& op) {
  if (connection_.is_own_process()) start_clock(op);
  if (check_outcome(op)) return true;
  make_progress(op);
  if (word_of(op.number).phase != board::Phase::folding) connection_.check_worker_if_due();
  return check_outcome(op);
}

// Folds; ends an operation whose blocks are all folded; calls the worker if ranks are missing or do
// not finish.
void OpQueue::make_progress(PendingOp& op) {
  if (fold_blocks(op.number, kPollBlocks)) return;
  const TimePoint now = Clock::now();
  const TimePoint deadline = op.started.load() + op.timeout;
  const bool is_folding = word_of(op.number).phase == board::Phase::folding;
  if (is_folding && (complete_if_folded(op.number) || now < deadline)) return;
  const bool is_late = now > std::min(op.started.load() + kCallWorkerAfter, deadline);
  if (!is_late || now < op.next_call.load()) return;
  op.next_call = now + kCallWorkerAfter;
  call_worker(op.number);
}

// One turn of waiting without sleep. False: sleep, or poll().
bool OpQueue::spin_once(PendingOp& op, Backoff& backoff) {
  const board::SlotWord word = word_of(op.number);
  if (word.turn != board::turn_of(op.number) || is_over(word.phase) || op.has_outcome) return false;
  if (word.phase == board::Phase::called) return backoff.pause(Backoff::Awaited::worker);
  if (word.phase == board::Phase::open || !fold_blocks(op.number)) return backoff.pause();
  backoff.reset();
  return true;
}

// Sleeps until the slot's word changes. The word has a flag for sleepers, so that a rank makes a
// system call to wake others only if any sleeps.
void OpQueue::sleep(const PendingOp& op, Millis timeout) {
  if (op.is_on_gpus && (is_over(word_of(op.number).phase) || !connection_.usable().ok()))
    return std::this_thread::sleep_for(kNap);  // Its outcome is held back.
  const auto falling = run_procedure<board::PrepareSleep<Memory>>(op.number, op.copied_out);
  if (!falling.may_sleep()) return;
  board::sleep_on_low_half(slot(op.number).word, static_cast<uint32_t>(falling.word()),
                           std::chrono::microseconds(timeout).count());
}

// How long to sleep at most: until the next check of the worker, or the deadline.
Millis OpQueue::sleep_limit(const PendingOp& op) const {
  const auto left = std::chrono::ceil<Millis>(op.started.load() + op.timeout - Clock::now());
  return left.count() >= 0 ? std::min(left + Millis(1), kWorkerCheck) : kWorkerCheck;
}

Status OpQueue::wait(PendingOp& op, int64_t timeout_ms) {
  Status outcome = await_outcome(op, timeout_ms);
  if (!op.has_outcome && connection_.is_own_process()) return outcome;
  const Status copied = release(op);
  return outcome.ok() ? copied : outcome;
}

Status OpQueue::await_outcome(PendingOp& op, int64_t timeout_ms) {
  Backoff backoff(connection_.cores());
  while (connection_.is_own_process() && spin_once(op, backoff)) continue;
  if (check_outcome(op)) return op.outcome;
  const TimePoint limit = timeout_ms < 0 ? TimePoint::max() : Clock::now() + Millis(timeout_ms);
  while (!poll(op)) {
    const auto left =
        limit == TimePoint::max() ? kWorkerCheck : std::chrono::ceil<Millis>(limit - Clock::now());
    if (left.count() <= 0) return still_running(timeout_ms);
    connection_.settle_all();
    sleep(op, std::min(left, sleep_limit(op)));
    while (spin_once(op, backoff)) continue;
  }
  return op.outcome;
}

bool OpQueue::is_under_way(const PendingOp& op) const {
  const board::SlotWord word = word_of(op.number);
  return word.turn == board::turn_of(op.number) && !is_over(word.phase);
}

bool OpQueue::pause(PendingOp& op, Backoff& backoff) {
  const board::Phase phase = word_of(op.number).phase;
  const bool is_called = phase == board::Phase::called;
  if (backoff.pause(is_called ? Backoff::Awaited::worker : Backoff::Awaited::ranks)) return true;
  if (poll(op)) return false;
  sleep(op, phase == board::Phase::folding ? kNap : sleep_limit(op));
  return true;
}

// ---- Settling ----

// Whether the outcome must wait for GPUs.
bool OpQueue::is_held(const PendingOp& op, PendingOp::OnBoard board) const {
  if (!op.is_on_gpus || !op.is_on_gpus(board)) return false;
  const TimePoint limit = op.started.load() + op.timeout + kAnswerGrace;
  return Clock::now() <= std::min(limit, held_until_.load());
}

// Reads the outcome from the board if there is one.
bool OpQueue::settle(PendingOp& op) {
  if (op.has_outcome) return true;
  const board::SlotWord word = word_of(op.number);
  const bool is_here = word.turn == board::turn_of(op.number);
  if (is_here && !is_over(word.phase)) return false;
  const bool is_done = is_here && word.phase == board::Phase::done;
  if (is_held(op, is_done ? PendingOp::OnBoard::done : PendingOp::OnBoard::failed)) return false;
  const BoardFailure& failure = group_area_.area.failure(op.number);
  if (is_here && word.phase == board::Phase::failed && failure.number == op.number)
    op.outcome = read_failure(failure);
  else if (!is_done)
    op.outcome = overwritten();
  else if (op.is_on_gpus && op.is_on_gpus(PendingOp::OnBoard::done))
    op.outcome = result_missing(connection_.usable());
  set_settled(op);
  add_to_counters(op);
  return true;
}

void OpQueue::set_settled(PendingOp& op) {
  record_end(op, op.outcome.code());
  op.has_outcome = true;
  ops_[op.number % kBoardSlots] = nullptr;
  advance_settled();
}

void OpQueue::advance_settled() {
  for (; settled_ != next_ && ops_[settled_ % kBoardSlots] == nullptr; ++settled_) {
    const board::SlotWord word = word_of(settled_);
    const bool is_done = word.turn != board::turn_of(settled_) || is_over(word.phase);
    if (detached_[settled_ % kBoardSlots] && !is_done) break;
    detached_.reset(settled_ % kBoardSlots);
  }
  published_ = std::max(published_, std::min(settled_, folding_number_.load()));
  // Once the rank has left, the worker writes this.
  if (!is_cancelled_) group_area_.area.settled(seat_).store(published_, std::memory_order_release);
}

void OpQueue::settle_finished() {
  if (!connection_.is_own_process()) return;
  const std::lock_guard lock(mutex_);
  for (uint64_t number = settled_; number != next_; ++number)
    if (PendingOp* op = ops_[number % kBoardSlots]; op != nullptr) settle_unless_staging(*op);
  advance_settled();
  release_abandoned();
}

void OpQueue::add_to_counters(const PendingOp& op) {
  BoardCounters& own = view_.counters(seat_);
  const auto add = [](std::atomic<uint64_t>& counter, uint64_t more) {
    counter.fetch_add(more, std::memory_order_relaxed);
  };
  if (!op.outcome.ok()) return add(own.failures, 1);
  add(own.operations, 1);
  add(own.bytes, op.bytes);
}

// ---- The flight recorder ----

void OpQueue::record_begin(const Request& request, PendingOp& op) {
  op.collective = static_cast<Collective>(request.collective);
  const uint64_t layout = request.layout ^ request.layout >> 16 ^ request.layout >> 32;
  const RecordedCall call{static_cast<uint16_t>(group_area_.index),
                          request.collective,
                          request.dtype,
                          request.op,
                          request.flags,
                          static_cast<uint16_t>(layout)};
  RecordedChoice choice{static_cast<uint16_t>(request.root),
                        pack_short_strategy(request.local_strategy),
                        pack_short_strategy(request.global_strategy), 0};
  uint64_t count = request.count;
  if ((request.flags & kRequestCounts) != 0)  // `count` says where the counts are.
    count = op.bytes / size_of(static_cast<Dtype>(request.dtype));
  if ((request.flags & kRequestRefused) != 0) count = choice.root = 0;  // They are of the message.
  op.record = trace::record_begin(
      recorder_.ring, {op.number, count, op.bytes, op.arrived_ns, std::bit_cast<uint64_t>(call),
                       std::bit_cast<uint64_t>(choice)});
}

void OpQueue::record_end(const PendingOp& op, Code code) {
  const uint64_t duration_ns = trace::now_ns() - op.arrived_ns;
  trace::record_end(recorder_.ring, op.record, duration_ns, code);
  trace::add_to_totals(recorder_, op.collective, op.bytes, duration_ns, code);
}

// ---- Ending ----

void OpQueue::cancel(TimePoint limit) {
  is_cancelled_ = true;
  held_until_ = limit;
  const std::lock_guard folding(fold_mutex_);
  const std::lock_guard lock(mutex_);
  for (PendingOp* op : ops_) {
    const bool is_held = op != nullptr && this->is_held(*op, PendingOp::OnBoard::under_way);
    if (op == nullptr || settle(*op) || is_held) continue;
    op->outcome = connection_.usable();
    op->blocks.clear();  // Other ranks may still read that memory.
    set_settled(*op);
  }
}

// Copies without the lock of the queue: outputs may be large.
Status OpQueue::release(PendingOp& op) {
  const std::lock_guard lock(op.release_mutex);
  if (std::exchange(op.is_released, true)) return op.copied;
  if (op.outcome.ok()) {
    for (const PendingOp::CopyOut& copy : op.copies) copy_bytes(copy.to, copy.from, copy.bytes);
    if (op.copy_last) op.copied = op.copy_last();
  }
  op.copy_last = nullptr;
  connection_.release(op.blocks);
  return op.copied;
}

void OpQueue::detach(PendingOp& op) {
  if (!connection_.is_own_process()) return;
  const std::lock_guard lock(mutex_);
  if (settle(op)) return;
  record_end(op, Code::cancelled);
  ops_[op.number % kBoardSlots] = nullptr;
  detached_.set(op.number % kBoardSlots);
}

void OpQueue::abandon(const std::shared_ptr<PendingOp>& op) {
  if (!connection_.is_own_process()) return;
  const std::lock_guard release_lock(op->release_mutex);
  if (std::exchange(op->is_released, true)) return;
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(op);
  ++abandoned_count_;
  connection_.count_abandoned(1);
  release_abandoned();
}

void OpQueue::release_abandoned() {
  std::erase_if(abandoned_, [this](const std::shared_ptr<PendingOp>& op) {
    if (!settle(*op)) return false;
    connection_.release(op->blocks);
    connection_.count_abandoned(-1);
    --abandoned_count_;
    return true;
  });
}

}  // namespace tutti::client
