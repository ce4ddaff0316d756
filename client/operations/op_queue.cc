#include "client/operations/op_queue.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace tutti::client {
namespace {

// How long a rank sleeps that waits for others to fold, or for a free slot.
constexpr Millis kNap{1};
// Blocks that one poll() folds.
constexpr uint32_t kPollBlocks = 8;

// How long to sleep at most: until the next check of the worker, or the deadline.
Millis sleep_limit(const WaitClock& clock) {
  const auto left = std::chrono::ceil<Millis>(clock.deadline() - Clock::now());
  return left.count() >= 0 ? std::min(left + Millis(1), kWorkerCheck) : kWorkerCheck;
}

// For a call that got no slot: `unsettled` is the index in the board's local ranks of a member that
// has not settled the slot's operation.
Status no_free_slot(const Connection& connection, const GroupBoard& board, const Request& request,
                    uint32_t unsettled) {
  const uint32_t local_rank = board.local_ranks()[unsettled];
  const std::string what = std::string(name_of(static_cast<Collective>(request.collective))) +
                           " timed out after " + std::to_string(request.timeout_ms) + " ms: ";
  const std::string slots = std::to_string(kBoardSlots) + " operations of the group are under way";
  if (local_rank == board.local_rank())
    return deadline_exceeded(what + slots + ", the most that may be; wait for some of them first");
  return deadline_exceeded(
      what + slots + ", and " + connection.rank_name(local_rank) +
          " has not ended the first of them",
      {static_cast<int>(connection.rank_of(local_rank)), connection.own_host()});
}

}  // namespace

// What a rank's procedures on the board need besides memory: see board::SlotMemory.
class OpQueue::Host {
 public:
  explicit Host(OpQueue& queue) : queue_(queue) {}
  Host(OpQueue& queue, const Request& request, const WaitClock& clock)
      : queue_(queue), request_(&request), clock_(&clock) {}

  board::Decision decide(uint64_t number) {
    const board::Decision decision = queue_.decide(number);
    const bool folds = decision.next == board::Phase::folding && !decision.alone;
    is_background_ = folds && !queue_.deciding_.op.anyone_waits;
    return decision;
  }
  void ring() const { queue_.connection_.ring_worker(); }
  uint64_t settled_by_all() const { return queue_.settled_by_all_; }
  uint32_t local_rank() const { return queue_.board_.local_rank(); }
  const Request& request() const { return *request_; }
  // 0: the rank has not read the clock yet; it does once it has waited for a while.
  int64_t started_ns() const { return nanoseconds(clock_->started.load()); }
  // No rank waits for the operation, so the worker folds it.
  bool is_background() const { return is_background_; }

 private:
  OpQueue& queue_;
  const Request* request_ = nullptr;
  const WaitClock* clock_ = nullptr;
  bool is_background_ = false;
};

OpQueue::OpQueue(Connection& connection, uint32_t area, std::vector<uint32_t> local_ranks,
                 uint32_t size)
    : connection_(connection),
      board_(connection.memory(), area, std::move(local_ranks), size),
      recorder_(connection.memory(), area),
      folding_(connection, board_),
      deciding_(board_.make_match()) {
  abandoned_.reserve(kBoardSlots + 1);  // Nothing allocates while an operation is under way.
}

void OpQueue::call_worker(uint64_t number) { board_.run<board::CallWorker>(number, Host(*this)); }

bool OpQueue::complete_if_folded(uint64_t number) {
  return board_.run<board::CompleteOp>(number, Host(*this)).completed();
}

// ---- Submitting ----

// A slot is free once all ranks have settled the operation kBoardSlots before this one. That is
// waited for until the deadline; a call that gives up must not leave its place in the order to the
// next one.
Status OpQueue::submit(const Request& request, PendingOp& op) {
  op.clock.timeout = Millis(request.timeout_ms);
  if (!(request.flags & kRequestBlocking)) start_clock(board_, op);
  if ((request.flags & kRequestCounts) != 0) reserve_counts(tensors_of_layout(request.layout));
  Backoff backoff(connection_.cores());
  TimePoint next_call;
  const uint64_t looks = board_.worker_looks();
  for (;;) {
    std::optional<uint32_t> unsettled;
    const Status submitted = try_submit(request, op, unsettled);
    if (!submitted.ok() || !unsettled) return submitted;
    start_clock(board_, op);
    if (Clock::now() > op.clock.deadline() + kSlotGrace)
      return board_.has_worker_slept(looks, op.clock.timeout)
                 ? connection_.worker_timeout()
                 : no_free_slot(connection_, board_, request, *unsettled);
    if (!backoff.pause()) await_free_slot(next_call);
  }
}

bool OpQueue::has_free_slot() {
  const std::lock_guard lock(mutex_);
  std::optional<uint32_t> unsettled;
  if (!submit_owed(unsettled).ok() || unsettled) return false;
  PendingOp* const place = ops_[next_ % kBoardSlots];
  if (place != nullptr && !settle_unless_staging(*place)) return false;
  return next_ < kBoardSlots || board_.settled_by_all() > next_ - kBoardSlots;
}

// Arrives unless the slot is in use: `unsettled` is then the index in board_.local_ranks() of a
// member that has not settled the slot's operation.
Status OpQueue::try_submit(const Request& request, PendingOp& op,
                           std::optional<uint32_t>& unsettled) {
  connection_.check_worker_if_due();
  if (Status s = connection_.usable(); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  if (Status s = submit_owed(unsettled); !s.ok() || unsettled) return s;
  return arrive(request, op, unsettled);
}

void OpQueue::keep_place(const Request& refused, const std::shared_ptr<PendingOp>& op) {
  if (!connection_.usable().ok()) return connection_.own_memory().release(op->resources.blocks);
  op->clock.timeout = Millis(refused.timeout_ms);
  const std::lock_guard lock(mutex_);
  if (owed_.size() == kOwedMax) {
    connection_.own_memory().release(op->resources.blocks);
    return connection_.mark_lost(resource_exhausted(
        std::to_string(kOwedMax) + " refused calls wait for a slot on the board; join again"));
  }
  owed_.push_back({refused, op});
  std::optional<uint32_t> unsettled;
  static_cast<void>(submit_owed(unsettled));  // Or later.
  release_abandoned();
}

// Lets calls that keep their places arrive there, as long as slots are free. The lock is held.
Status OpQueue::submit_owed(std::optional<uint32_t>& unsettled) {
  while (!owed_.empty()) {
    const Owed& next = owed_.front();
    if (Status s = arrive(next.request, *next.op, unsettled); !s.ok() || unsettled) return s;
    add_abandoned(next.op);
    owed_.pop_front();
  }
  return {};
}

// The lock is held.
Status OpQueue::arrive(const Request& request, PendingOp& op, std::optional<uint32_t>& unsettled) {
  if (is_cancelled_) return connection_.usable();
  if (next_ >= board::kNumbersMax)
    return resource_exhausted("the group has had all the operations it can count; join again");
  if (!abandoned_.empty()) release_abandoned();
  PendingOp*& place = ops_[next_ % kBoardSlots];
  if (detached_.any()) advance_settled();
  if ((place != nullptr && !settle_unless_staging(*place)) || detached_[next_ % kBoardSlots]) {
    unsettled = static_cast<uint32_t>(std::ranges::find(board_.local_ranks(), board_.local_rank()) -
                                      board_.local_ranks().begin());
    return {};
  }
  Host host(*this, request, op.clock);
  Memory memory(board_.view(), board_.group_area(), next_, host);
  const auto members = static_cast<uint32_t>(board_.local_ranks().size());
  op.record.arrived_ns = trace::now_ns();
  board::Arrive<Memory> arrival({next_, kBoardSlots, board_.local_rank(), members});
  run(arrival, memory);
  using Result = board::Arrive<Memory>::Result;
  if (arrival.result() == Result::broken) return overwritten();
  if (arrival.result() == Result::not_free) {
    unsettled = std::min(arrival.unsettled(), members - 1);
    return {};
  }
  if (next_ >= kBoardSlots && settled_by_all_ <= next_ - kBoardSlots)
    settled_by_all_ = board_.settled_by_all();
  op.number = next_;
  op.has_arrived = true;
  op.memory.start(op.number, [this, &op] {
    return op.has_outcome || (!op.is_on_gpus && !board_.is_under_way(op.number));
  });
  place = &op;
  ++next_;
  after_arrival(arrival, memory, op.number, host.is_background());
  recorder_.begin(request, op.number, op.record);  // By now the other ranks can go on.
  return {};
}

void OpQueue::after_arrival(board::Arrive<Memory>& arrival, Memory& memory, uint64_t number,
                            bool is_background) {
  using Result = board::Arrive<Memory>::Result;
  if (arrival.result() == Result::alone) fold_alone(number, memory);
  if (arrival.must_wake()) board_.wake_sleepers(number);
  if (is_background && arrival.result() == Result::arrived) call_worker(number);
}

// Does for the operation that keeps the slot what a waiting rank does.
void OpQueue::await_free_slot(TimePoint& next_call) {
  connection_.under_way().settle_all();
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

// What runs out of memory while an operation is under way would leave it half done.
void OpQueue::reserve_counts(size_t counts) {
  folding_.reserve_counts(counts);
  const std::lock_guard lock(mutex_);
  deciding_.op.reserve_counts(counts);
}

// By default the worker decides: operations over several hosts, and requests that do not agree.
board::Decision OpQueue::decide(uint64_t number) {
  if (!board_.is_local() || !board_.match_requests(number, deciding_)) return {};
  return board::decide(deciding_.op);
}

// ---- Folding ----

void OpQueue::fold_alone(uint64_t number, Memory& memory) {
  folding_.fold_alone(deciding_.op);
  board_.run<board::EndOp>(number, Host(*this), board::Phase::done);
  memory.store_holding(board_.local_rank(), 0);
}

void OpQueue::set_ready(uint64_t number, uint32_t blocks, bool calls_worker) {
  board_.run<board::FillWindow>(number, Host(*this), board_.local_rank(), blocks,
                                calls_worker && !board_.is_local());
}

// ---- Waiting ----

// Whether there is an outcome. Gives the operation one if it ended, or if it never will.
bool OpQueue::check_outcome(PendingOp& op) {
  if (!connection_.is_own_process()) {
    if (!op.has_outcome) op.outcome = connection_.usable();
    return true;
  }
  const std::lock_guard lock(mutex_);
  Status fault = connection_.usable();
  // Asked before the board is: what ended on GPUs has ended on the board.
  const bool waits_for_gpus =
      !fault.ok() && is_held(op, PendingOp::OnBoard::under_way, held_until_.load());
  if (settle_unless_staging(op)) return true;
  if (op.window.is_staging && !board_.is_under_way(op.number)) return op.has_outcome;
  if (fault.ok() && !is_in_time(op.clock)) listen_to_worker(board_, op.clock, Clock::now());
  if (fault.ok() && !is_in_time(op.clock)) {
    fault = connection_.worker_timeout();
    connection_.mark_lost(fault);
  }
  if (fault.ok() || waits_for_gpus) return false;
  if (complete_if_folded(op.number) && settle(op)) return true;
  // Ranks that fold finish first: after a failure the caller may reuse tensors that they read.
  const bool is_folding = board_.word_of(op.number).phase == board::Phase::folding ||
                          folding_.withdraw_shared(op.number);
  if (is_folding && is_in_time(op.clock) && !is_cancelled_) return false;
  op.resources.blocks.clear();  // Other processes may still use that memory, so it is never reused.
  op.outcome = std::move(fault);
  set_settled(op);
  return true;
}

bool OpQueue::poll(PendingOp& op) {
  if (connection_.is_own_process()) start_clock(board_, op);
  if (check_outcome(op)) return true;
  make_progress(op);
  if (board_.word_of(op.number).phase != board::Phase::folding) connection_.check_worker_if_due();
  return check_outcome(op);
}

// Folds; ends an operation whose blocks are all folded; calls the worker if ranks are missing or do
// not finish.
void OpQueue::make_progress(PendingOp& op) {
  if (fold_blocks(op.number, kPollBlocks)) return;
  const TimePoint now = Clock::now();
  const TimePoint deadline = op.clock.deadline();
  const bool is_folding = board_.word_of(op.number).phase == board::Phase::folding;
  if (is_folding && (complete_if_folded(op.number) || now < deadline)) return;
  const bool is_late = now > std::min(op.clock.started.load() + kCallWorkerAfter, deadline);
  if (!is_late || now < op.clock.next_call.load()) return;
  op.clock.next_call = now + kCallWorkerAfter;
  if (now > deadline) listen_to_worker(board_, op.clock, now);
  call_worker(op.number);
}

// One turn of waiting without sleep. False: sleep, or poll().
bool OpQueue::spin_once(PendingOp& op, Backoff& backoff) {
  const board::SlotWord word = board_.word_of(op.number);
  if (word.generation != board::generation_of(op.number) || is_over(word.phase) || op.has_outcome)
    return false;
  if (word.phase != board::Phase::open && fold_blocks(op.number)) {
    backoff.reset();
    return true;
  }
  const bool is_called = word.phase == board::Phase::called;
  return backoff.pause(is_called ? Backoff::Awaited::worker : Backoff::Awaited::ranks);
}

// Sleeps until the slot's word changes. The word has a flag for sleepers, so that a rank makes a
// system call to wake others only if any sleeps.
void OpQueue::sleep(const PendingOp& op, Millis timeout) {
  if (op.is_on_gpus && (is_over(board_.word_of(op.number).phase) || !connection_.usable().ok()))
    return std::this_thread::sleep_for(kNap);  // Its outcome is held back.
  const uint32_t tried = board_.shared(op.number);
  if (tried != 0 && fold_blocks(op.number)) return;
  const bool is_first = !board_.word_of(op.number).asleep;
  const auto falling =
      board_.run<board::PrepareSleep>(op.number, Host(*this), op.window.copied_out, tried);
  // The worker has the rank's core from now on: it stays awake between frames once it knows.
  const bool is_called = board::unpack(falling.word()).phase == board::Phase::called;
  if (is_first && is_called) call_worker(op.number);
  if (!falling.may_sleep()) return;
  board::sleep_on_low_half(board_.slot(op.number).word, static_cast<uint32_t>(falling.word()),
                           std::chrono::microseconds(timeout).count());
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
    connection_.under_way().settle_all();
    sleep(op, std::min(left, sleep_limit(op.clock)));
    while (spin_once(op, backoff)) continue;
  }
  return op.outcome;
}

bool OpQueue::pause(PendingOp& op, Backoff& backoff) {
  const board::Phase phase = board_.word_of(op.number).phase;
  const bool is_called = phase == board::Phase::called;
  if (backoff.pause(is_called ? Backoff::Awaited::worker : Backoff::Awaited::ranks)) return true;
  if (poll(op)) return false;
  sleep(op, phase == board::Phase::folding ? kNap : sleep_limit(op.clock));
  return true;
}

}  // namespace tutti::client
