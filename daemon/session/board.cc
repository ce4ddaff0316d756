#include "daemon/session/board.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "daemon/session/mapping.h"
#include "proto/types.h"

namespace tutti {
namespace {

// Between two looks at what is folded while a rank is gone.
constexpr Millis kReview{20};
// How long ranks that fold a block of an operation past its deadline are waited for.
constexpr Millis kFolding{1000};
constexpr uint32_t kNever = UINT32_MAX;  // No turn has this number.
// What trainers change faster than we look is theirs to sort out.
constexpr int kRounds = 4;
constexpr int kTries = 1000;
// Behind all blocks that are held.
constexpr uint64_t kUnheld = uint64_t{1} << 32;

uint32_t waited_ms(int64_t started_ns) {
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
  if (started_ns < 0 || started_ns > now.count()) return 0;
  return static_cast<uint32_t>(
      std::min<int64_t>((now.count() - started_ns) / 1'000'000, INT32_MAX));
}

// Blocks of one rank's tensor; 0 where the request makes no sense.
uint64_t own_blocks(const Request& request) {
  const bool known = request.verb < kCollectives && request.dtype < kDtypes;
  if (!known || static_cast<Collective>(request.verb) == Collective::barrier) return 0;
  return board_blocks(request.count, size_of(static_cast<Dtype>(request.dtype)));
}

// Of the whole operation.
uint64_t blocks_for(const Request& request, uint64_t ranks) {
  const bool each = request.verb == TUTTI_ALL_GATHER || request.verb == TUTTI_REDUCE_SCATTER;
  return own_blocks(request) * (each ? ranks : 1);
}

bool left_undone(BoardEntry& entry) {
  if (entry.holding.load() != 0) return true;
  return (entry.flags & kBoardStaged) != 0 &&
         entry.ready.load() < own_blocks(copy_request(entry.request));
}

}  // namespace

Result<std::shared_ptr<Board>> Board::make(Loop& loop, uint32_t ranks) {
  require(ranks <= kBoardRanks, "a board has room for its ranks");
  Fd memory(memfd_create("tutti-board", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!memory.valid()) return errno_status("cannot make a board");
  if (ftruncate(memory.get(), kBoardBytes) != 0) return errno_status("cannot size a board");
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_status("cannot seal a board");
  void* base = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (base == MAP_FAILED) return errno_status("cannot map a board");
  return std::make_shared<Board>(loop, static_cast<std::byte*>(base), std::move(memory), ranks);
}

Board::Board(Loop& loop, std::byte* base, Fd memory, uint32_t ranks)
    : loop_(loop), base_(base), memory_(std::move(memory)), segments_(ranks), seats_(ranks) {
  header().magic = kBoardMagic;
  header().version = kProtocolVersion;
  header().ranks = ranks;
  header().in_use.store(1);
  for (uint32_t index = 0; index < kBoardSlots; ++index) {
    slot(index).claimed.store(board_count(kNever, 0));
    slot(index).folded.store(board_count(kNever, 0));
  }
}

Board::~Board() {
  loop_.cancel(review_timer_);
  munmap(base_, kBoardBytes);
}

BoardSlot& Board::slot(uint32_t index) const {
  return reinterpret_cast<BoardSlot*>(base_ + kBoardSlotsOffset)[index];
}

void Board::sit_down(uint32_t rank, Seat& seat, Fd segment) {
  seats_.at(rank) = &seat;
  segments_.at(rank) = std::move(segment);
}

std::vector<int> Board::descriptors() const {
  std::vector<int> all = {memory_.get()};
  for (const Fd& segment : segments_) all.push_back(segment.get());
  return all;
}

void Board::handed_out() {
  if (++handed_out_ < seats_.size()) return;
  memory_.reset();
  segments_.clear();
}

void Board::stand_up(uint32_t rank) {
  header().in_use.store(0);
  seats_[rank] = nullptr;
}

uint64_t Board::operations(uint32_t rank) const {
  return header().figures[rank].operations.load(std::memory_order_relaxed);
}

uint64_t Board::bytes(uint32_t rank) const {
  return header().figures[rank].bytes.load(std::memory_order_relaxed);
}

// ---- Taking over ----

// Turns wrap; whatever they are, places have one order.
uint64_t Board::place_of(uint32_t index, uint64_t word) const {
  constexpr uint32_t kHalf = 1u << (kTurnBits - 1);
  return uint64_t{(turn_of(word) - turn_near_ + kHalf) & kTurnMask} * kBoardSlots + index;
}

// In the order of the operations.
std::vector<Board::Found> Board::find(BoardPhase phase) const {
  std::vector<Found> found;
  for (uint32_t index = 0; index < kBoardSlots; ++index) {
    const uint64_t word = slot(index).word.load(std::memory_order_acquire);
    if (phase_of(word) == phase) found.push_back({index, word, place_of(index, word)});
  }
  std::ranges::sort(found, {}, &Found::place);
  return found;
}

// Once: for what is diverted from now on the doorbell rings again. And once more for what this
// itself led to.
void Board::collect() {
  if (collecting_) return;
  collecting_ = true;
  for (int round = 0; round < kRounds && header().calls.load() != calls_seen_; ++round) {
    calls_seen_ = header().calls.load();
    turn_near_ = turn_of(slot(0).word.load());
    const std::vector<Found> diverted = find(BoardPhase::diverted);
    if (!diverted.empty()) divert_older(diverted.back());
    for (const Found& found : find(BoardPhase::diverted))
      if (!diverted.empty() && found.place <= diverted.back().place) take_over(found);
    for (const Found& found : find(BoardPhase::folding)) judge_overdue(found);
  }
  collecting_ = false;
}

// A rank that is in `newest` may wait in older operations as well, and the worker must see each
// rank's operations in their order.
void Board::divert_older(const Found& newest) {
  for (const Found& found : find(BoardPhase::open))
    if (arrived_of(found.word) != 0 && found.place < newest.place) divert(found.index);
}

// Cleared first: a seat's events may lead back here. Staged entries are not taken: their trainers
// ask anew.
void Board::take_over(const Found& found) {
  BoardSlot& from = slot(found.index);
  struct Taken {
    Seat* seat;
    Request request;
    uint32_t ring_head;
    uint32_t waited_ms;
  };
  std::vector<Taken> taken;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    BoardEntry& entry = from.entries[rank];
    const bool arrived = (arrived_of(found.word) >> rank & 1) != 0;
    const uint32_t flags = std::atomic_ref(entry.flags).load(std::memory_order_relaxed);
    if (!arrived || seats_[rank] == nullptr || (flags & kBoardStaged) != 0) continue;
    taken.push_back(
        {seats_[rank], copy_request(entry.request), entry.ring_head, waited_ms(entry.started_ns)});
  }
  from.word.store(board_word(turn_of(found.word) + 1, BoardPhase::open, 0),
                  std::memory_order_release);
  for (const Taken& one : taken)
    if (std::ranges::find(seats_, one.seat) != seats_.end())
      one.seat->take_from_board(one.request, one.ring_head, one.waited_ms);
}

// A word that changes all the time is left to those who change it.
void Board::divert(uint32_t index) {
  uint64_t word = slot(index).word.load();
  for (int tries = 0; tries < kTries && phase_of(word) == BoardPhase::open; ++tries)
    if (slot(index).word.compare_exchange_strong(
            word, board_word(turn_of(word), BoardPhase::diverted, arrived_of(word))))
      return;
}

// A trainer looks at `in_use` before and after it arrives: either it sees this, or we see it.
void Board::set_in_use(bool in_use) {
  const bool all_here = gone_.empty() && std::ranges::find(seats_, nullptr) == seats_.end();
  header().in_use.store(in_use && all_here && !over_ ? 1 : 0);
  if (in_use) return;
  for (uint32_t index = 0; index < kBoardSlots; ++index)
    if (arrived_of(slot(index).word.load()) != 0) divert(index);
  header().calls.fetch_add(1);
  collect();
}

// ---- Failing ----

void Board::leave(uint32_t rank, const Status& why) {
  if (!gone_.emplace(rank, why).second) return;
  set_in_use(false);
  seats_[rank] = nullptr;
  if (review_timer_ == 0) review();
}

// What the living can finish they do, when they next wait; what the gone left half done fails.
// Outputs must not change after that is told: whoever folds ends first.
void Board::review() {
  review_timer_ = 0;
  bool again = false;
  for (const Found& found : find(BoardPhase::folding)) {
    const Status fault = fault_of(found);
    if (fault.ok()) continue;
    stop(found);
    if (others_hold(found))
      again = true;
    else
      fail(found, fault);
  }
  again |= end_overdue();
  if (again) review_timer_ = loop_.at(Clock::now() + kReview, [this] { review(); });
}

// Then the living will say so themselves.
bool Board::is_folded(const Found& found) const {
  BoardSlot& from = slot(found.index);
  const uint64_t folded = from.folded.load();
  const uint64_t blocks = blocks_for(copy_request(from.entries[0].request), seats_.size());
  return is_of_turn(folded, turn_of(found.word)) && blocks_of(folded) == blocks;
}

Status Board::fault_of(const Found& found) const {
  BoardSlot& from = slot(found.index);
  if (is_folded(found)) return {};
  for (const auto& [rank, why] : gone_)
    if (left_undone(from.entries[rank])) return why;
  return {};
}

bool Board::others_hold(const Found& found, std::optional<uint32_t> but) const {
  for (uint32_t rank = 0; rank < seats_.size(); ++rank)
    if (seats_[rank] != nullptr && rank != but &&
        slot(found.index).entries[rank].holding.load() != 0)
      return true;
  return false;
}

// Nobody claims a block of it any more.
void Board::stop(const Found& found) {
  std::atomic<uint64_t>& claimed = slot(found.index).claimed;
  uint64_t now = claimed.load();
  for (int tries = 0; tries < kTries && is_of_turn(now, turn_of(found.word)); ++tries)
    if (claimed.compare_exchange_strong(now, board_count(turn_of(found.word), UINT32_MAX))) return;
}

// Told first: a trainer whose operation is neither here nor done asks for it anew. False: it is
// done meanwhile.
bool Board::fail(const Found& found, const Status& why) {
  BoardSlot& failed = slot(found.index);
  uint64_t word = found.word;
  const uint64_t failing = board_word(turn_of(word), BoardPhase::failing, arrived_of(word));
  if (!failed.word.compare_exchange_strong(word, failing)) return false;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank)
    if (seats_[rank] != nullptr)
      seats_[rank]->fail_on_board(copy_request(failed.entries[rank].request).slot, why);
  failed.word.store(board_word(turn_of(found.word) + 1, BoardPhase::open, 0));
  return true;
}

// Who keeps the others waiting: the one that holds the first block; where none is held, the one
// whose own blocks come last.
std::optional<uint32_t> Board::culprit_of(const Found& found) const {
  std::optional<uint32_t> culprit;
  uint64_t least = UINT64_MAX;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    BoardEntry& entry = slot(found.index).entries[rank];
    const uint64_t block = entry.holding.load();
    const uint64_t place = block != 0 ? block : kUnheld + entry.ready.load();
    if (seats_[rank] == nullptr || !left_undone(entry) || place >= least) continue;
    least = place;
    culprit = rank;
  }
  return culprit;
}

// As with the engine, an operation that passes its deadline while data moves ends the epoch; once
// nobody but the culprit folds, as outputs must not change after a failure is told.
void Board::judge_overdue(const Found& found) {
  BoardSlot& late = slot(found.index);
  const uint64_t overdue = late.overdue.exchange(0);
  const std::optional<uint32_t> culprit = culprit_of(found);
  if (overdue == 0 || !is_of_turn(overdue, turn_of(found.word)) || !culprit) return;
  if (is_folded(found)) return;
  const Request request = copy_request(late.entries[*culprit].request);
  const std::string what = request.verb < kCollectives
                               ? std::string(name_of(static_cast<Collective>(request.verb)))
                               : "operation";
  const Status why = seats_[*culprit]->stuck(what + " timed out after " +
                                             std::to_string(request.timeout_ms) + " ms");
  if (late.word.load() != found.word) return;  // Done meanwhile.
  stop(found);
  overdue_.push_back({found, *culprit, why, Clock::now() + kFolding});
  loop_.cancel(review_timer_);
  review();
}

// True: some are to be looked at again.
bool Board::end_overdue() {
  std::vector<Overdue> waiting;
  for (const Overdue& late : std::exchange(overdue_, {})) {
    if (others_hold(late.found, late.culprit) && Clock::now() < late.until) {
      waiting.push_back(late);
      continue;
    }
    Seat* seat = seats_[late.culprit];
    if (!fail(late.found, late.why)) continue;
    over_ = true;
    set_in_use(false);
    if (seat != nullptr) seat->end_epoch(late.why);
  }
  overdue_.insert(overdue_.end(), waiting.begin(), waiting.end());
  return !overdue_.empty();
}

}  // namespace tutti
