// The worker's side of the board where ranks die, stop or are late in the middle of folding.
#include <algorithm>

#include "daemon/session/host_board.h"
#include "proto/types.h"

namespace tutti {
namespace {

// Between two looks at what is folded while a rank is gone.
constexpr Millis kReview{20};
// How long ranks that fold a block of an operation past its deadline are waited for.
constexpr Millis kFolding{300};
// Behind all blocks that are held.
constexpr uint64_t kUnheld = uint64_t{1} << 32;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

std::string name_of_verb(const Request& request) {
  return request.verb < kCollectives ? std::string(name_of(static_cast<Collective>(request.verb)))
                                     : "operation";
}

}  // namespace

// What waits for the rank is the worker's from now on. Its own verdicts count as taken note of.
void HostBoard::leave(uint32_t seat, const Status& why) {
  if (!gone_.emplace(seat, why).second) return;
  set_ranks_decide();
  collect();
  give_up_windows(seat, why);
  seats_[seat] = nullptr;
  for (const std::unique_ptr<Group>& group : groups_)
    group->crew.area.settled(seat).store(UINT64_MAX);
  if (review_timer_ == 0) review();
}

// Of an operation that other hosts wait for the rank's tensor is not all there, and never will be.
void HostBoard::give_up_windows(uint32_t seat, const Status& why) {
  for (const std::unique_ptr<Group>& group : groups_) {
    const bool member = std::ranges::find(group->seats, seat) != group->seats.end();
    for (uint32_t slot = 0; member && slot < kBoardSlots; ++slot) {
      const Found found = look(*group, slot);
      if (found.word.phase != board::Phase::called || group->taken[slot] != found.number ||
          is_local(group->number) || !is_staged(found, seat))
        continue;
      const Request request = board::copy_request(entry(found, seat).request);
      const uint64_t bytes = request.count * size_of(static_cast<Dtype>(request.dtype % kDtypes));
      if (filled(group->number, found.number, seat) < bytes) return seats_[seat]->end_epoch(why);
    }
  }
}

// What the living can finish they do, when they next wait; what the gone left half done fails.
// Outputs must not change after that is told: whoever folds ends first.
void HostBoard::review() {
  review_timer_ = 0;
  bool again = false;
  for (const std::unique_ptr<Group>& group : groups_) {
    const auto touched = [&](const auto& gone) {
      return std::ranges::find(group->seats, gone.first) != group->seats.end();
    };
    if (std::ranges::none_of(gone_, touched)) continue;
    for (uint32_t slot = 0; slot < kBoardSlots; ++slot) again |= review_slot(look(*group, slot));
  }
  again |= end_overdue();
  if (again) review_later();
}

void HostBoard::review_later() {
  if (review_timer_ == 0) review_timer_ = loop_.at(Clock::now() + kReview, [this] { review(); });
}

// True: it must be looked at again.
bool HostBoard::review_slot(const Found& found) {
  if (found.word.phase != board::Phase::folding) return false;
  if (is_folded(found)) {
    const auto completion = run(found, board::Completion<Memory>(found.turn()));
    if (completion.wakes()) board::wake_low_half(found.group->crew.area.slot_of(found.number).word);
    return false;
  }
  const Status fault = fault_of(found);
  if (fault.ok()) return false;
  run(found, board::Stop<Memory>(found.turn()));
  if (others_hold(found) || is_folded(found)) return true;
  end(found, fault);
  return false;
}

bool HostBoard::is_folded(const Found& found) const {
  const BoardSlot& slot = found.group->crew.area.slot_of(found.number);
  const board::Count folded = board::unpack_count(slot.folded.load());
  return folded.turn == found.turn() && folded == board::unpack_count(slot.blocks.load());
}

bool HostBoard::left_undone(const Found& found, uint32_t seat) const {
  const BoardEntry& at = entry(found, seat);
  if (at.holding.load() != 0) return true;
  if (!is_staged(found, seat)) return false;
  const uint64_t blocks = found.group->crew.area.slot_of(found.number).blocks.load();
  return at.ready.load() < board::unpack_count(blocks).blocks;
}

Status HostBoard::fault_of(const Found& found) const {
  for (const uint32_t seat : found.group->seats)
    if (const auto gone = gone_.find(seat); gone != gone_.end() && left_undone(found, seat))
      return gone->second;
  return {};
}

bool HostBoard::others_hold(const Found& found, std::optional<uint32_t> but) const {
  return std::ranges::any_of(found.group->seats, [&](uint32_t seat) {
    return is_here(seat) && seat != but && entry(found, seat).holding.load() != 0;
  });
}

// ---- Deadlines ----

// Past the deadline of which rank, by its time-out.
std::optional<uint32_t> HostBoard::overdue_ms(const Found& found) const {
  for (const uint32_t seat : found.group->seats) {
    const BoardEntry& at = entry(found, seat);
    const uint32_t timeout_ms = board::copy_request(at.request).timeout_ms;
    const int64_t started_ns = at.started_ns.load();
    if (timeout_ms != 0 && started_ns > 0 &&
        now_ns() - started_ns > int64_t{timeout_ms} * 1'000'000)
      return timeout_ms;
  }
  return std::nullopt;
}

// Somebody wants it looked at: it is past its deadline, or nobody waits for it.
void HostBoard::attend_folding(const Found& found) {
  if (const std::optional<uint32_t> timeout_ms = overdue_ms(found))
    return judge_overdue(found, *timeout_ms);
  const bool waited_for = std::ranges::any_of(found.group->seats, [&](uint32_t seat) {
    return (board::copy_request(entry(found, seat).request).flags & kRequestBlocking) != 0;
  });
  if (!waited_for) help(found);
}

// Who keeps the others waiting: the one that holds the first block; where none is held, the one
// whose own blocks come last.
std::optional<uint32_t> HostBoard::culprit_of(const Found& found) const {
  std::optional<uint32_t> culprit;
  uint64_t least = UINT64_MAX;
  for (const uint32_t seat : found.group->seats) {
    const uint64_t block = entry(found, seat).holding.load();
    const uint64_t place = block != 0 ? block : kUnheld + entry(found, seat).ready.load();
    if (!is_here(seat) || !left_undone(found, seat) || place >= least) continue;
    least = place;
    culprit = seat;
  }
  return culprit;
}

// As with the engine, an operation that passes its deadline while data moves ends the epoch; once
// nobody but the culprit folds, as outputs must not change after a failure is told.
void HostBoard::judge_overdue(const Found& found, uint32_t timeout_ms) {
  const bool known = std::ranges::any_of(overdue_, [&](const Overdue& late) {
    return late.found.group == found.group && late.found.number == found.number;
  });
  const std::optional<uint32_t> culprit = culprit_of(found);
  if (known || is_folded(found)) return;
  if (!culprit) return help(found);  // Nobody keeps the others waiting, nor folds.
  const Request request = board::copy_request(entry(found, *culprit).request);
  const Status why = seats_[*culprit]->blame(
      Code::deadline_exceeded, name_of_verb(request) + " #" + std::to_string(found.number) +
                                   " timed out after " + std::to_string(timeout_ms) +
                                   " ms: " + seats_[*culprit]->who() + " has not folded its part");
  run(found, board::Stop<Memory>(found.turn()));
  std::erase_if(overdue_, [&](const Overdue& late) {  // Whose turn is past.
    return late.found.group == found.group &&
           late.found.number % kBoardSlots == found.number % kBoardSlots;
  });
  overdue_.push_back({found, *culprit, why, Clock::now() + kFolding});
  loop_.cancel(review_timer_);
  review();
}

// True: some are to be looked at again.
bool HostBoard::end_overdue() {
  std::vector<Overdue> waiting;
  for (const Overdue& late : std::exchange(overdue_, {})) {
    if (others_hold(late.found, late.culprit) && Clock::now() < late.until) {
      waiting.push_back(late);
      continue;
    }
    Seat* seat = seats_[late.culprit];
    if (!end(late.found, late.why)) continue;
    over_ = true;
    set_ranks_decide();
    if (seat != nullptr) seat->end_epoch(late.why);
  }
  overdue_.insert(overdue_.end(), waiting.begin(), waiting.end());
  return !overdue_.empty();
}

}  // namespace tutti
