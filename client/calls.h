// One rank's calls on one group: each takes a number, arrives on the board, and is waited for.
//
// A rank that waits folds; it calls the worker where others are late, and sleeps where there is
// nothing to do. Safe from any thread: numbers are taken under the lock, and one thread of a rank
// at a time folds.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <memory>
#include <mutex>
#include <vector>

#include "client/connection.h"
#include "daemon/board/board.h"

namespace tutti::client {

// A worker ends operations within half a second of their deadline. One that has not by then does
// not answer.
inline constexpr Millis kAnswerGrace{450};
// How long ranks that did not all come wait on the board before the worker watches over them; and
// between two calls to it.
inline constexpr Millis kPatience{50};

// Without its words where memory runs out.
Status read_failure(const BoardFailure& failure) noexcept;

// A call that has its number. The fields are its Calls', but for `copy_*`, which never change after
// the arrival.
struct Ticket {
  Ticket() = default;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  uint64_t number = 0;
  bool arrived = false;             // It has its number, and its place on the board.
  std::atomic<bool> known = false;  // The outcome is.
  bool settled = false;             // The board is through with it.
  bool delivered = false;           // The output is copied and the blocks are released.
  Status outcome;
  uint64_t bytes = 0;  // Of its tensor, for the counters.
  Millis timeout{0};
  // Its thread copies in and out, and writes to its entry on the board: nobody else settles it.
  std::atomic<bool> is_staging = false;
  uint32_t taken = UINT32_MAX;  // Staged: blocks that were copied out.
  // Several threads may wait for it.
  std::atomic<TimePoint> started = TimePoint();  // The epoch: not looked at yet.
  std::atomic<TimePoint> next_call = TimePoint();
  std::vector<uint64_t> blocks;
  struct Copy {
    void* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };
  std::vector<Copy> copies;
  std::mutex delivery;
};

class Calls {
 public:
  // `seats`: of the group's members on this host, by their order in the group; `size`: of all.
  Calls(Connection& connection, uint32_t area, std::vector<uint32_t> seats, uint32_t size);

  // Takes the next number and arrives with the request. `ticket` stays where it is until it is
  // settled. Small operations may be folded by the time it returns. Waits while kBoardSlots
  // operations are under way, here or on another rank. RESOURCE_EXHAUSTED: in vain, until the
  // call's time was up; the rank is lost, as its order would be.
  Status arrive(const Request& request, Ticket& ticket);
  // Until the outcome is known, or DEADLINE_EXCEEDED. `timeout_ms` < 0: until the worker must have
  // answered.
  Status wait(Ticket& ticket, int64_t timeout_ms);
  // Likewise, but keeps the ticket's memory until deliver().
  Status await(Ticket& ticket, int64_t timeout_ms);
  bool done(Ticket& ticket);
  // Nobody will wait for the ticket; its blocks are released when the board is through with it.
  void abandon(const std::shared_ptr<Ticket>& ticket);
  // The ticket goes, though the board may not be through with it: nothing was waited for to its
  // end.
  void disown(Ticket& ticket);
  // The rank leaves: what is under way ends. No thread of this rank folds when it returns.
  void cancel();
  // Takes note of what is over, so that its slots may be used again.
  void settle_finished();
  // Some that nobody waits for have not ended: their memory is held.
  bool holds_memory() const { return abandoned_count_ != 0; }

  // ---- Staged calls, see stage.h ----
  bool help(uint64_t number, uint32_t blocks_most = UINT32_MAX);
  // The window holds so many blocks of the tensor; `tells` the worker, where it is to use them.
  void feed(uint64_t number, uint32_t blocks, bool tells);
  // The block's result lies in the window.
  bool is_through(uint64_t number, uint32_t block) const;
  // Of a window, in bytes; 0: tensors of the group do not pass through one.
  uint64_t window_bytes() const;
  bool is_under_way(const Ticket& ticket) const;
  // Nothing to do at the moment: waits a little. False: the call is over.
  bool pause(Ticket& ticket, Backoff& backoff);
  void deliver(Ticket& ticket);

  // All members are on this host, so its ranks alone fold.
  bool is_local() const { return seats_.size() == size_; }

 private:
  class Caller;
  using Memory = board::SlotMemory<Caller>;

  static uint32_t turn_of(uint64_t number) { return board::turn_of(number); }
  board::SlotWord word_of(uint64_t number) const;
  Status arrive_once(const Request& request, Ticket& ticket, uint32_t& unsettled);
  void make_room(TimePoint& next_call);
  uint64_t settled_by_others() const;
  void follow_up(board::Arrive<Memory>& arrival, Memory& memory, uint64_t number, bool background);
  board::Decision decide(uint64_t number);
  bool gather(uint64_t number, std::vector<board::MemberRequest>& asked,
              board::MatchedOp& op) const;
  void fold_alone(uint64_t number, Memory& memory);
  bool fold_claimed(uint64_t number, Memory& memory, const board::ClaimBlock<Memory>& claim);
  void wake(uint64_t number) const;
  Status full(uint32_t unsettled) const;
  void call(uint64_t number);
  bool conclude(uint64_t number);
  void start_clock(Ticket& ticket);
  bool finished(Ticket& ticket);
  void tend(Ticket& ticket);
  bool look(Ticket& ticket, Backoff& backoff);
  void sleep(const Ticket& ticket, Millis timeout);
  Millis pulse(const Ticket& ticket) const;
  bool settle(Ticket& ticket);
  bool settle_idle(Ticket& ticket);
  void advance();
  void forget(Ticket& ticket);
  void count(const Ticket& ticket);
  void collect();

  Connection& connection_;
  const board::View& view_;
  const uint32_t seat_;
  const uint32_t size_;
  const std::vector<uint32_t> seats_;
  const board::GroupArea group_area_;
  const Kernel kernel_ = choose_kernel();

  std::mutex mutex_;  // Guards what follows, and the tickets.
  uint64_t next_ = 0;
  uint64_t settled_ = 0;                        // All below are.
  uint64_t published_ = 0;                      // Of settled_: what is helped is kept back.
  uint64_t settled_by_all_ = 0;                 // At least, on all members.
  std::array<Ticket*, kBoardSlots> tickets_{};  // Unsettled, by number.
  std::bitset<kBoardSlots> disowned_;           // Unsettled calls without a ticket, by number.
  std::vector<std::shared_ptr<Ticket>> abandoned_;
  std::atomic<size_t> abandoned_count_ = 0;
  std::vector<board::MemberRequest> asked_;
  board::MatchedOp deciding_;

  std::mutex folding_;  // One thread of this rank at a time; guards what follows.
  board::MatchedOp op_;
  uint64_t op_number_ = UINT64_MAX;
  std::vector<board::MemberRequest> folding_asked_;
  // The operation that is being helped: its slot, where this rank says what it holds, is not given
  // up meanwhile.
  static constexpr uint64_t kNone = UINT64_MAX;
  std::atomic<uint64_t> helped_ = kNone;
  std::atomic<bool> is_cancelled_ = false;
};

}  // namespace tutti::client
