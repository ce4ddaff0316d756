// The worker's side of proto/board.h: takes over what the ranks cannot settle among themselves.
//
// On the loop's thread. Nothing read from the board is trusted: a wrong word costs its job the
// right answer, and nobody else anything.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "proto/board.h"

namespace tutti {

class Board {
 public:
  // A rank's session.
  class Seat {
   public:
    virtual ~Seat() = default;
    // The rank's requests up to this position of its ring, then this one, which waited so long.
    virtual void take_from_board(const Request& request, uint32_t ring_head,
                                 uint32_t waited_ms) = 0;
    // Ends an operation that this worker never took.
    virtual void fail_on_board(uint32_t slot, const Status& status) = 0;
    virtual Status stuck(const std::string& what) const = 0;  // A status that blames this rank.
    // This rank may write to the others' memory when it goes on: nothing more can be done here.
    virtual void end_epoch(const Status& why) = 0;
  };

  static Result<std::shared_ptr<Board>> make(Loop& loop, uint32_t ranks);
  Board(Loop& loop, std::byte* base, Fd memory, uint32_t ranks);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board();

  // Before anybody is welcomed. `segment`: the rank's memory.
  void sit_down(uint32_t rank, Seat& seat, Fd segment);
  // What a trainer needs: the board's memory and everybody's segment, by rank. Borrowed.
  std::vector<int> descriptors() const;
  // Once for each rank that has them; then the descriptors are closed.
  void handed_out();
  // The seat is not called again.
  void stand_up(uint32_t rank);

  // Looks for what was diverted or is overdue, and takes it over in the order of the operations.
  void collect();
  // The rank takes no further part: what waits for others is taken over, what it left half done
  // fails with `why`. Its seat is not called again.
  void leave(uint32_t rank, const Status& why);
  // Where not in use, all operations come to the worker.
  void set_in_use(bool in_use);
  uint64_t operations(uint32_t rank) const;
  uint64_t bytes(uint32_t rank) const;

 private:
  // A slot at one moment.
  struct Found {
    uint32_t index = 0;
    uint64_t word = 0;
    uint64_t place = 0;  // In the order of the operations.
  };

  // An operation past its deadline that waits for those who still fold.
  struct Overdue {
    Found found;
    uint32_t culprit = 0;
    Status why;
    TimePoint until;
  };

  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(base_); }
  BoardSlot& slot(uint32_t index) const;
  uint64_t place_of(uint32_t index, uint64_t word) const;
  std::vector<Found> find(BoardPhase phase) const;
  void divert(uint32_t index);
  void divert_older(const Found& newest);
  void take_over(const Found& found);
  void judge_overdue(const Found& found);
  void review();
  bool is_folded(const Found& found) const;
  Status fault_of(const Found& found) const;
  std::optional<uint32_t> culprit_of(const Found& found) const;
  bool others_hold(const Found& found, std::optional<uint32_t> but = {}) const;
  bool end_overdue();
  void stop(const Found& found);
  bool fail(const Found& found, const Status& why);

  Loop& loop_;
  std::byte* base_;
  Fd memory_;
  std::vector<Fd> segments_;  // By rank, until handed out.
  std::vector<Seat*> seats_;  // By rank; nullptr: gone.
  std::map<uint32_t, Status> gone_;
  bool over_ = false;  // Some rank stopped half way.
  size_t handed_out_ = 0;
  uint32_t calls_seen_ = 0;
  uint32_t turn_near_ = 0;  // Within a few of those of all slots.
  bool collecting_ = false;
  std::vector<Overdue> overdue_;
  Loop::TimerId review_timer_ = 0;
};

}  // namespace tutti
