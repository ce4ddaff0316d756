#include "daemon/session/board.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "proto/types.h"

namespace tutti {
namespace {

// Between two looks at what is folded while a rank is gone.
constexpr Millis kReview{20};
// The last to arrive begins the folding within this, or died before.
constexpr Millis kBeginning{200};
constexpr uint32_t kNever = UINT32_MAX;  // No turn has this number.

uint32_t waited_ms(int64_t started_ns) {
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
  const int64_t waited = now.count() - started_ns;
  return waited < 0 ? 0 : static_cast<uint32_t>(std::min<int64_t>(waited / 1'000'000, INT32_MAX));
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

// In the order of the operations.
std::vector<Board::Found> Board::find(BoardPhase phase) const {
  std::vector<Found> found;
  for (uint32_t index = 0; index < kBoardSlots; ++index) {
    const uint64_t word = slot(index).word.load(std::memory_order_acquire);
    if (phase_of(word) == phase) found.push_back({index, word});
  }
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    const int32_t ahead = turns_ahead(turn_of(a.word), turn_of(b.word));
    return ahead != 0 ? ahead < 0 : a.index < b.index;
  });
  return found;
}

void Board::collect() {
  if (collecting_) return;
  collecting_ = true;
  for (uint32_t calls; (calls = header().calls.load()) != calls_seen_;) {
    calls_seen_ = calls;
    for (const Found& found : find(BoardPhase::diverted)) take_over(found);
    for (const Found& found : find(BoardPhase::folding)) judge_overdue(found);
  }
  collecting_ = false;
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
    const BoardEntry& entry = from.entries[rank];
    const bool arrived = (arrived_of(found.word) >> rank & 1) != 0;
    if (!arrived || seats_[rank] == nullptr || (entry.flags & kBoardStaged) != 0) continue;
    taken.push_back({seats_[rank], entry.request, entry.ring_head, waited_ms(entry.started_ns)});
  }
  from.word.store(board_word(turn_of(found.word) + 1, BoardPhase::open, 0),
                  std::memory_order_release);
  for (const Taken& one : taken)
    if (std::ranges::find(seats_, one.seat) != seats_.end())
      one.seat->take_from_board(one.request, one.ring_head, one.waited_ms);
}

void Board::divert(uint32_t index, BoardPhase from) {
  uint64_t word = slot(index).word.load();
  while (phase_of(word) == from &&
         !slot(index).word.compare_exchange_weak(
             word, board_word(turn_of(word), BoardPhase::diverted, arrived_of(word)))) {
  }
}

// A trainer looks at `in_use` before and after it arrives: either it sees this, or we see it.
void Board::set_in_use(bool in_use) {
  header().in_use.store(in_use && gone_.empty() ? 1 : 0);
  if (in_use) return;
  for (uint32_t index = 0; index < kBoardSlots; ++index)
    if (arrived_of(slot(index).word.load()) != 0) divert(index, BoardPhase::open);
  header().calls.fetch_add(1);
  collect();
}

// ---- Failing ----

void Board::leave(uint32_t rank, const Status& why) {
  if (!gone_.emplace(rank, why).second) return;
  left_at_ = Clock::now();
  set_in_use(false);
  seats_[rank] = nullptr;
  if (review_timer_ == 0) review();
}

// What the living can finish they do, when they next wait; what the gone left half done fails.
void Board::review() {
  review_timer_ = 0;
  const std::vector<Found> folding = find(BoardPhase::folding);
  for (const Found& found : folding) {
    const uint64_t claimed = slot(found.index).claimed.load();
    const bool begun = is_of_turn(claimed, turn_of(found.word));
    const Status fault = fault_of(found);
    if (begun && !fault.ok()) fail(found, fault);
    if (!begun && Clock::now() > left_at_ + kBeginning) divert(found.index, BoardPhase::folding);
  }
  header().calls.fetch_add(1);
  collect();
  if (folding.empty()) return;
  review_timer_ = loop_.at(Clock::now() + kReview, [this] { review(); });
}

bool Board::left_undone(const BoardEntry& entry) const {
  if (entry.holding.load() != 0) return true;
  const uint8_t dtype = entry.request.dtype;
  return (entry.flags & kBoardStaged) != 0 && dtype < kDtypes &&
         entry.ready.load() < board_blocks(entry.request.count, size_of(static_cast<Dtype>(dtype)));
}

Status Board::fault_of(const Found& found) const {
  for (const auto& [rank, why] : gone_)
    if (left_undone(slot(found.index).entries[rank])) return why;
  return {};
}

// Outputs must not change after a failure is told, as far as that is in our hands.
bool Board::others_hold(const Found& found) const {
  for (uint32_t rank = 0; rank < seats_.size(); ++rank)
    if (seats_[rank] != nullptr && slot(found.index).entries[rank].holding.load() != 0) return true;
  return false;
}

void Board::fail(const Found& found, const Status& why) {
  BoardSlot& failed = slot(found.index);
  failed.claimed.store(board_count(turn_of(found.word), UINT32_MAX));
  if (why.code() != Code::deadline_exceeded && others_hold(found)) return;  // At the next review.
  std::vector<uint32_t> slots;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank)
    slots.push_back(failed.entries[rank].request.slot);
  failed.word.store(board_word(turn_of(found.word) + 1, BoardPhase::open, 0));
  for (uint32_t rank = 0; rank < seats_.size(); ++rank)
    if (seats_[rank] != nullptr) seats_[rank]->fail_on_board(slots[rank], why);
}

// A rank that stopped while it folds may go on later, and write: the board is not used again.
void Board::judge_overdue(const Found& found) {
  BoardSlot& late = slot(found.index);
  if (late.overdue.exchange(0) == 0) return;
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    const BoardEntry& entry = late.entries[rank];
    if (seats_[rank] == nullptr || !left_undone(entry)) continue;
    const Request request = entry.request;
    const std::string what = request.verb < kCollectives
                                 ? std::string(name_of(static_cast<Collective>(request.verb)))
                                 : "operation";
    gone_.emplace(rank, Status());
    header().in_use.store(0);
    return fail(found, seats_[rank]->stuck(what + " timed out after " +
                                           std::to_string(request.timeout_ms) + " ms"));
  }
}

}  // namespace tutti
