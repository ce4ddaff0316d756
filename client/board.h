// The trainer's side of proto/board.h: arriving at operations, folding them together with the other
// ranks of the host, and handing over to the worker what is out of the ordinary.
//
// Safe from any thread: numbers are taken under the connection's lock, and one thread of a rank at
// a time folds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/fd.h"
#include "client/joint.h"
#include "client/outcome.h"
#include "client/segment.h"

namespace tutti::client {

class Board {
 public:
  // `board` and one memory for each rank, of which this rank's is `own` already. `doorbell`, which
  // wakes the worker, stays the caller's.
  static Outcome open(Fd board, std::vector<Fd> memories, uint32_t rank, const Segment& own,
                      int doorbell, std::unique_ptr<Board>& made);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  uint32_t ranks() const { return ranks_; }

  // ---- Under the connection's lock ----

  uint64_t take_number() { return next_++; }
  // Arrives at the operation; as the last one also folds it, if it is small. False: it is the
  // worker's business, and this rank must ask by its ring.
  bool arrive(uint64_t number, const BoardEntry& entry);
  // The rank will not come to this operation on the board: for whatever arrive() was not asked, or
  // refused.
  void pass(uint64_t number);
  // Hands to the worker all operations that this rank arrived at and that still wait for others:
  // whatever it asks for by its ring comes after them.
  void divert_all();

  // ---- Any time ----

  // Folds blocks of the operation, at most `blocks_most`; true: at least one.
  bool help(uint64_t number, uint32_t blocks_most = UINT32_MAX);
  // To the worker with it, where it still waits for others.
  void divert(uint64_t number);
  // `failing`: the worker is about to say so. `elsewhere`: it is done, or diverted.
  enum class Stage { waiting, folding, failing, elsewhere };
  Stage stage(uint64_t number) const;
  // Completes the operation for all ranks if it is folded, for who folded the last block may have
  // died or stopped before it could. False: it is not folded.
  bool conclude(uint64_t number);
  // Wakes the worker: there is something diverted.
  void call();
  // The operation is past its deadline while it is folded.
  void complain(uint64_t number);

  // A staged rank's own part: how many blocks are ready, and whether one is folded.
  void set_ready(uint64_t number, uint32_t blocks);
  bool is_folded(uint64_t number, uint32_t block) const;

  void count(uint64_t bytes);

 private:
  Board() = default;

  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(base_); }
  BoardSlot& slot_at(uint64_t number) const;
  BoardEntry& own_entry(BoardSlot& slot) const { return slot.entries[rank_]; }
  bool is_open_for(uint64_t number);
  void write(BoardEntry& own, const BoardEntry& entry);
  bool somebody_passed(uint64_t number, uint32_t arrived) const;
  bool is_for_one(const Joint& joint) const;
  BoardPhase decide(uint64_t number, Joint& joint);
  void begin(uint64_t number, const Joint& joint);
  bool read(const BoardSlot& slot, Joint& joint) const;
  bool read_folding(uint64_t number, Joint& joint) const;
  void divert(BoardSlot& slot, uint32_t turn);
  std::optional<uint32_t> claim(uint64_t number, const Joint& joint);
  uint32_t blocks_ready(const BoardSlot& slot, const Joint& joint) const;
  void fold(uint64_t number, const Joint& joint, uint32_t block);
  void finish(uint64_t number, const Joint& joint);
  void wake_helpers(const Joint& joint);

  std::byte* base_ = nullptr;
  int doorbell_ = -1;
  uint32_t rank_ = 0;
  uint32_t ranks_ = 0;
  uint32_t everyone_ = 0;                         // All ranks' bits.
  std::vector<std::unique_ptr<Segment>> others_;  // By rank; none for this one.
  std::vector<const Segment*> segments_;          // By rank.
  std::vector<Mapped> mapped_;                    // The same, for joint.h.
  Kernel kernel_ = choose_kernel();
  uint64_t cache_bytes_ = 0;  // Of the last level.
  uint64_t next_ = 0;
  uint64_t first_undecided_ = 0;
  std::mutex folding_;
  mutable std::mutex own_entries_;
};

}  // namespace tutti::client
