#include "daemon/session/folding_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/session/board_words.h"

namespace tutti {
namespace {

constexpr Millis kPollInterval{20};
// How long ranks other than the culprit may go on folding after the deadline.
constexpr Millis kGrace{300};

}  // namespace

void FoldingWatch::start_polling() {
  if (timer_ == 0) poll();
}

void FoldingWatch::poll() {
  timer_ = 0;
  bool again = false;
  for (const std::unique_ptr<HostGroup>& group : ops_.groups()) {
    const bool lacks_member = std::ranges::any_of(group->local_ranks, [this](uint32_t local_rank) {
      return ops_.gone().contains(local_rank);
    });
    for (uint32_t slot = 0; lacks_member && slot < kBoardSlots; ++slot)
      again |= poll_op(ops_.read(*group, slot));
  }
  again |= poll_overdue();
  if (again && timer_ == 0) timer_ = loop_.at(Clock::now() + kPollInterval, [this] { poll(); });
}

// Live ranks fold what a gone one has not begun. True: poll the operation again.
bool FoldingWatch::poll_op(const BoardOp& op) {
  if (op.word.phase != board::Phase::folding) return false;
  if (ops_.is_folded(op)) {
    ops_.run<board::CompleteOp>(op);
    return false;
  }
  const Status fault = fault_of_gone(op);
  if (fault.ok()) return false;
  ops_.run<board::StopClaims>(op);
  if (others_hold(op) || ops_.is_folded(op)) return true;
  end_(op, fault);
  return false;
}

// The rank holds a block, or has not filled its window with all of them.
bool FoldingWatch::is_half_done(const BoardOp& op, uint32_t local_rank) const {
  const BoardEntry& entry = op.entry(local_rank);
  if (entry.holding.load() != 0) return true;
  return ops_.is_staged(op, local_rank) &&
         entry.ready.load() < board::unpack_count(op.slot().blocks.load()).blocks;
}

Status FoldingWatch::fault_of_gone(const BoardOp& op) const {
  for (const uint32_t local_rank : op.group->local_ranks)
    if (const auto gone = ops_.gone().find(local_rank);
        gone != ops_.gone().end() && is_half_done(op, local_rank))
      return gone->second;
  return {};
}

bool FoldingWatch::others_hold(const BoardOp& op, std::optional<uint32_t> but) const {
  return std::ranges::any_of(op.group->local_ranks, [&](uint32_t local_rank) {
    return ops_.is_attached(local_rank) && local_rank != but &&
           op.entry(local_rank).holding.load() != 0;
  });
}

// ---- Deadlines ----

void FoldingWatch::check(const BoardOp& op) {
  if (const std::optional<uint32_t> timeout_ms = passed_timeout_ms(op))
    return on_overdue(op, *timeout_ms);
  const bool waited_for = std::ranges::any_of(op.group->local_ranks, [&](uint32_t local_rank) {
    return (board::copy_request(op.entry(local_rank).request).flags & kRequestBlocking) != 0;
  });
  if (!waited_for) folding_.add(op);
}

// The time-out of the first member whose deadline has passed.
std::optional<uint32_t> FoldingWatch::passed_timeout_ms(const BoardOp& op) const {
  const TimePoint now = Clock::now();
  for (const uint32_t local_rank : op.group->local_ranks) {
    const uint32_t timeout_ms = board::copy_request(op.entry(local_rank).request).timeout_ms;
    const auto started = started_at(op.entry(local_rank).started_ns.load());
    if (timeout_ms != 0 && started && now - *started > Millis(timeout_ms)) return timeout_ms;
  }
  return std::nullopt;
}

// The local rank of the live rank that holds the first block; where none is held, of the one whose
// window has the fewest blocks.
std::optional<uint32_t> FoldingWatch::find_culprit(const BoardOp& op) const {
  constexpr uint64_t kUnheld = uint64_t{1} << 32;  // Behind all blocks that are held.
  std::optional<uint32_t> culprit;
  uint64_t least = UINT64_MAX;
  for (const uint32_t local_rank : op.group->local_ranks) {
    const uint64_t block = op.entry(local_rank).holding.load();
    const uint64_t place = block != 0 ? block : kUnheld + op.entry(local_rank).ready.load();
    if (!ops_.is_attached(local_rank) || !is_half_done(op, local_rank) || place >= least) continue;
    least = place;
    culprit = local_rank;
  }
  return culprit;
}

void FoldingWatch::on_overdue(const BoardOp& op, uint32_t timeout_ms) {
  const bool known = std::ranges::any_of(overdue_, [&](const Overdue& late) {
    return late.op.group == op.group && late.op.number == op.number;
  });
  const std::optional<uint32_t> culprit = find_culprit(op);
  if (known || ops_.is_folded(op)) return;
  if (!culprit) return folding_.add(op);
  const Status why = deadline_exceeded(
      name_of_collective(board::copy_request(op.entry(*culprit).request)) + " #" +
          std::to_string(op.number) + " timed out after " + std::to_string(timeout_ms) +
          " ms: " + ops_.describe(*culprit) + " has not folded its part",
      ops_.culprit(*culprit));
  ops_.run<board::StopClaims>(op);
  std::erase_if(overdue_, [&](const Overdue& earlier) {  // Its slot has a later generation.
    return earlier.op.group == op.group && earlier.op.slot_index() == op.slot_index();
  });
  overdue_.push_back({op, *culprit, why, Clock::now() + kGrace});
  loop_.cancel(timer_);
  poll();
}

// As with the engine, an operation that passes its deadline while data moves ends the epoch. True:
// poll again.
bool FoldingWatch::poll_overdue() {
  std::vector<Overdue> waiting;
  for (const Overdue& late : std::exchange(overdue_, {})) {
    if (others_hold(late.op, late.culprit) && Clock::now() < late.until) {
      waiting.push_back(late);
      continue;
    }
    if (end_(late.op, late.why)) on_stuck_(late.culprit, late.why);
  }
  overdue_.insert(overdue_.end(), waiting.begin(), waiting.end());
  return !overdue_.empty();
}

}  // namespace tutti
