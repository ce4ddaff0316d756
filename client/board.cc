#include "client/board.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <chrono>

#include "client/futex.h"

namespace tutti::client {
namespace {

// Larger operations that nobody waits for are the worker's: it folds while the trainers compute.
constexpr uint64_t kBackgroundBytes = 256 * 1024;
// Where the system does not say how large the last cache is.
constexpr long kCacheBytes = 32 << 20;

}  // namespace

Outcome Board::open(Fd board, std::vector<Fd> memories, uint32_t rank, const Segment& own,
                    int doorbell, std::unique_ptr<Board>& made) {
  struct stat info {};
  if (fstat(board.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < kBoardBytes)
    return failure(TUTTI_INTERNAL, "the worker's board has no size");
  void* base = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    board.get(), 0);
  if (base == MAP_FAILED) return failure(TUTTI_RESOURCE_EXHAUSTED, "cannot map the board");
  made.reset(new Board);
  made->base_ = static_cast<std::byte*>(base);
  made->doorbell_ = doorbell;
  made->rank_ = rank;
  made->ranks_ = static_cast<uint32_t>(memories.size());
  const BoardHeader& header = made->header();
  if (header.magic != kBoardMagic || header.version != kProtocolVersion ||
      header.ranks != made->ranks_ || made->ranks_ > kBoardRanks || rank >= made->ranks_)
    return failure(TUTTI_FAILED_PRECONDITION, "the worker's board is of another version or job");
  const long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  made->cache_bytes_ = static_cast<uint64_t>(cache_bytes > 0 ? cache_bytes : kCacheBytes);
  made->everyone_ = static_cast<uint32_t>((uint64_t{1} << made->ranks_) - 1);
  for (uint32_t other = 0; other < made->ranks_; ++other) {
    made->others_.push_back(std::make_unique<Segment>());
    if (other != rank) {
      Outcome mapped = made->others_.back()->map(std::move(memories[other]));
      if (!mapped.ok()) return mapped;
    }
    const Segment* segment = other == rank ? &own : made->others_.back().get();
    made->segments_.push_back(segment);
    made->mapped_.push_back({segment->base(), segment->bytes()});
  }
  return {};
}

Board::~Board() {
  if (base_ != nullptr) munmap(base_, kBoardBytes);
}

BoardSlot& Board::slot_at(uint64_t number) const {
  return reinterpret_cast<BoardSlot*>(base_ + kBoardSlotsOffset)[number % kBoardSlots];
}

// ---- Arriving ----

// Whether the slot serves this number. It may still serve an older one, which this rank has behind
// it: where nobody waits there the slot is taken on, else that one is handed over.
bool Board::is_open_for(uint64_t number) {
  BoardSlot& slot = slot_at(number);
  const uint32_t turn = turn_at(number);
  uint64_t word = slot.word.load(std::memory_order_acquire);
  if (turns_ahead(turn_of(word), turn) < 0) {
    const bool empty = phase_of(word) == BoardPhase::open && arrived_of(word) == 0;
    if (empty) slot.word.compare_exchange_strong(word, board_word(turn, BoardPhase::open, 0));
    if (!empty) divert(slot, turn_of(word));
    if (!empty && !help(number - kBoardSlots)) conclude(number - kBoardSlots);
    word = slot.word.load(std::memory_order_acquire);
  }
  return turn_of(word) == turn && phase_of(word) == BoardPhase::open;
}

bool Board::arrive(uint64_t number, const BoardEntry& entry) {
  BoardSlot& slot = slot_at(number);
  const uint32_t turn = turn_at(number);
  if (header().in_use.load() == 0 || !is_open_for(number)) return false;
  write(own_entry(slot), entry);
  uint64_t word = slot.word.load(std::memory_order_acquire);
  while (turn_of(word) == turn && phase_of(word) == BoardPhase::open) {
    const uint32_t arrived = arrived_of(word) | uint32_t{1} << rank_;
    Joint joint;
    const bool last = arrived == everyone_;
    const BoardPhase phase = last ? decide(number, joint) : BoardPhase::open;
    if (!slot.word.compare_exchange_weak(word, board_word(turn, phase, arrived))) continue;
    if (phase == BoardPhase::folding) begin(number, joint);
    if (phase == BoardPhase::diverted) call();
    // Not before the arrival: whoever takes the board out of use, or passes, then sees one or the
    // other.
    if (!last && (header().in_use.load() == 0 || somebody_passed(number, arrived))) divert(number);
    return true;
  }
  own_entry(slot).holding.store(0, std::memory_order_relaxed);
  return false;
}

void Board::write(BoardEntry& own, const BoardEntry& entry) {
  const std::lock_guard writing(own_entries_);
  own.request = entry.request;
  own.started_ns = entry.started_ns;
  own.ring_head = entry.ring_head;
  own.flags = entry.flags;
  own.ready.store(0, std::memory_order_relaxed);
  own.holding.store(0, std::memory_order_relaxed);
}

bool Board::somebody_passed(uint64_t number, uint32_t arrived) const {
  for (uint32_t rank = 0; rank < ranks_; ++rank)
    if ((arrived >> rank & 1) == 0 && header().figures[rank].passed.load() > number) return true;
  return false;
}

// So small that the last to arrive folds it by itself.
bool Board::is_for_one(const Joint& joint) const {
  return joint.bytes <= uint64_t{2} * ranks_ * kBoardBlockBytes && !joint.any_staged;
}

// The last to arrive decides for all, before anybody can see that it came: nobody must find an
// operation that is neither waiting nor decided. Small ones it claims as a whole.
BoardPhase Board::decide(uint64_t number, Joint& joint) {
  BoardSlot& slot = slot_at(number);
  const uint32_t turn = turn_at(number);
  if (header().in_use.load() == 0 || !read(slot, joint)) return BoardPhase::diverted;
  const uint64_t bytes = joint.bytes / (uint64_t{2} * ranks_);  // About those of a rank's side.
  if (bytes > kBackgroundBytes && !joint.anyone_waits) return BoardPhase::diverted;
  own_entry(slot).holding.store(1, std::memory_order_relaxed);
  slot.folded.store(board_count(turn, 0), std::memory_order_relaxed);
  slot.claimed.store(board_count(turn, is_for_one(joint) ? joint.blocks : 0),
                     std::memory_order_release);
  return BoardPhase::folding;
}

// Holds block 0, for those who look for the dead, until it has done what it alone does.
void Board::begin(uint64_t number, const Joint& joint) {
  const bool alone = is_for_one(joint);
  if (joint.blocks == 0) finish(number, joint);
  for (uint32_t block = 0; alone && block < joint.blocks; ++block) fold(number, joint, block);
  if (!alone && joint.anyone_waits) wake_helpers(joint);
  while (!alone && !joint.anyone_waits) {  // Small: done before somebody comes to wait.
    const std::optional<uint32_t> block = claim(number, joint);
    if (!block) break;
    fold(number, joint, *block);
  }
  own_entry(slot_at(number)).holding.store(0, std::memory_order_release);
}

// ---- Folding ----

bool Board::read(const BoardSlot& slot, Joint& joint) const {
  if (!read_joint(slot.entries, mapped_.data(), ranks_, joint)) return false;
  joint.past_cache = joint.apart && !joint.any_staged && joint.bytes > cache_bytes_;
  return true;
}

// What is folded under this number: meanwhile no other thread of this rank brings the slot's next.
// Where other ranks do, what is read has all its blocks claimed, or disagrees; and finish() does
// nothing, for the slot's word is another.
bool Board::read_folding(uint64_t number, Joint& joint) const {
  const std::lock_guard lock(own_entries_);
  return stage(number) == Stage::folding && read(slot_at(number), joint);
}

bool Board::help(uint64_t number, uint32_t blocks_most) {
  BoardSlot& slot = slot_at(number);
  if (!is_of_turn(slot.claimed.load(std::memory_order_acquire), turn_at(number))) return false;
  const std::unique_lock one_at_a_time(folding_, std::try_to_lock);
  Joint joint;
  if (!one_at_a_time || !read_folding(number, joint)) return false;
  uint32_t done = 0;
  while (done < blocks_most) {
    const std::optional<uint32_t> block = claim(number, joint);
    if (!block) break;
    fold(number, joint, *block);
    own_entry(slot).holding.store(0, std::memory_order_release);
    ++done;
  }
  return done != 0;
}

std::optional<uint32_t> Board::claim(uint64_t number, const Joint& joint) {
  BoardSlot& slot = slot_at(number);
  std::atomic<uint32_t>& holding = own_entry(slot).holding;
  uint64_t claimed = slot.claimed.load(std::memory_order_acquire);
  while (is_of_turn(claimed, turn_at(number))) {
    const uint32_t block = blocks_of(claimed);
    if (block >= joint.blocks || block >= blocks_ready(slot, joint)) break;
    holding.store(block + 1);
    if (slot.claimed.compare_exchange_weak(claimed, claimed + 1)) return block;
    holding.store(0);
  }
  return std::nullopt;
}

uint32_t Board::blocks_ready(const BoardSlot& slot, const Joint& joint) const {
  uint32_t least = joint.blocks;
  for (uint32_t rank = 0; joint.any_staged && rank < ranks_; ++rank)
    if (joint.parts[rank].staged)
      least = std::min(least, slot.entries[rank].ready.load(std::memory_order_acquire));
  return least;
}

void Board::fold(uint64_t number, const Joint& joint, uint32_t block) {
  BoardSlot& slot = slot_at(number);
  run_block(joint, block, kernel_);
  if (joint.any_staged)
    slot.marks[block % kStageBlocks].store(board_count(turn_at(number), block + 1),
                                           std::memory_order_release);
  const uint64_t before = slot.folded.fetch_add(1, std::memory_order_acq_rel);
  if (blocks_of(before) + 1 == joint.blocks) finish(number, joint);
}

// Completions first: while the slot is not cleared, whoever waits can tell by it that all is
// folded. Not if the worker ended the operation: then this rank was stopped for long. Several may
// do this at once, and one of them stop on its way: each thing done twice is done once. (Only a
// sleeper that it completed and did not wake is not woken, and looks by itself a little later.)
void Board::finish(uint64_t number, const Joint& joint) {
  std::atomic<uint64_t>& state = slot_at(number).word;
  const uint32_t turn = turn_at(number);
  const uint64_t ending = board_word(turn, BoardPhase::ending, everyone_);
  uint64_t word = board_word(turn, BoardPhase::folding, everyone_);
  if (!state.compare_exchange_strong(word, ending) && word != ending) return;
  for (uint32_t rank = 0; rank < ranks_; ++rank)
    complete(segments_[rank]->completion(joint.parts[rank].slot), number);
  word = ending;
  state.compare_exchange_strong(word, board_word(turn + 1, BoardPhase::open, 0));
}

bool Board::conclude(uint64_t number) {
  Joint joint;
  const uint64_t folded = slot_at(number).folded.load(std::memory_order_acquire);
  if (!is_of_turn(folded, turn_at(number)) || !read_folding(number, joint)) return false;
  if (blocks_of(folded) != joint.blocks) return false;
  finish(number, joint);
  return true;
}

// Those that sleep can help, or must feed their blocks.
void Board::wake_helpers(const Joint& joint) {
  for (uint32_t rank = 0; rank < ranks_; ++rank)
    if (rank != rank_) stir(segments_[rank]->completion(joint.parts[rank].slot).state);
}

bool Board::is_folded(uint64_t number, uint32_t block) const {
  return slot_at(number).marks[block % kStageBlocks].load(std::memory_order_acquire) ==
         board_count(turn_at(number), block + 1);
}

void Board::set_ready(uint64_t number, uint32_t blocks) {
  own_entry(slot_at(number)).ready.store(blocks, std::memory_order_release);
}

// ---- Handing over ----

void Board::divert(BoardSlot& slot, uint32_t turn) {
  uint64_t word = slot.word.load(std::memory_order_acquire);
  while (turn_of(word) == turn && phase_of(word) == BoardPhase::open) {
    const uint64_t diverted = board_word(turn, BoardPhase::diverted, arrived_of(word));
    if (slot.word.compare_exchange_weak(word, diverted)) return call();
  }
}

void Board::divert(uint64_t number) { divert(slot_at(number), turn_at(number)); }

// Said first: who arrives later sees it, who arrived before is diverted.
void Board::pass(uint64_t number) {
  header().figures[rank_].passed.store(number + 1);
  divert(number);
}

void Board::divert_all() {
  if (next_ - first_undecided_ > kBoardSlots) first_undecided_ = next_ - kBoardSlots;
  for (; first_undecided_ != next_; ++first_undecided_) divert(first_undecided_);
}

void Board::call() {
  header().calls.fetch_add(1);
  eventfd_write(doorbell_, 1);
}

Board::Stage Board::stage(uint64_t number) const {
  const uint64_t word = slot_at(number).word.load();  // See sleep_while_pending().
  if (turn_of(word) != turn_at(number) || phase_of(word) == BoardPhase::diverted)
    return Stage::elsewhere;
  if (phase_of(word) == BoardPhase::failing) return Stage::failing;
  return phase_of(word) == BoardPhase::open ? Stage::waiting : Stage::folding;
}

void Board::complain(uint64_t number) {
  slot_at(number).overdue.store(board_count(turn_at(number), 1));
  call();
}

void Board::count(uint64_t bytes) {
  BoardRank& own = header().figures[rank_];
  own.operations.fetch_add(1, std::memory_order_relaxed);
  own.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace tutti::client
