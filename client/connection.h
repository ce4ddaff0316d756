// One joined rank: its segment, the slots of its ring, its arena, and the worker's pulse.
//
// Safe from any thread. Shared by the handles of the job's groups and works; unmapped with the last
// of them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/arena.h"
#include "client/birth.h"
#include "client/board.h"
#include "client/futex.h"
#include "client/join.h"
#include "client/segment.h"
#include "client/stage.h"

namespace tutti::client {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Millis = std::chrono::milliseconds;

// A submitted request. Its fields are the connection's, but for `copy_*`, which never change after
// submission.
struct Ticket {
  std::optional<uint32_t> slot;    // Of its completion.
  std::optional<uint64_t> number;  // On the board, even where the rank passed there.
  uint64_t bytes = 0;              // Of its tensor, for the figures.
  bool known = false;              // The outcome is.
  bool settled = false;            // The worker is through with it: the slot is free for others.
  bool delivered = false;          // The output is copied and the blocks are released.
  Outcome outcome;
  uint32_t value = 0;  // What the completion carried.
  TimePoint started;
  TimePoint deadline;  // The operation's own.
  TimePoint limit;     // A worker that has not answered by then hangs.
  std::vector<uint64_t> blocks;
  void* copy_to = nullptr;
  const std::byte* copy_from = nullptr;
  size_t copy_bytes = 0;
  std::mutex delivery;
};

class Connection {
 public:
  static Outcome open(const JoinTarget& target, std::shared_ptr<Connection>& connection);
  ~Connection();

  const JoinTarget& target() const { return target_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  uint32_t epoch() const { return epoch_; }

  // ---- Requests ----
  // Tries to meet the other ranks on the board, once a ticket; `flags` as in BoardEntry. `met`
  // false: submit() the request. RESOURCE_EXHAUSTED: all slots hold unfinished requests.
  Outcome meet(Request request, uint32_t flags, const std::shared_ptr<Ticket>& ticket, bool& met);
  // To the worker. RESOURCE_EXHAUSTED as above.
  Outcome submit(Request request, const std::shared_ptr<Ticket>& ticket);
  // Takes an operation that was met as staged to its end. False: the worker has to do it, so submit
  // its request.
  bool run_staged(Ticket& ticket, const Staged& staged);
  // Until the outcome is known, or DEADLINE_EXCEEDED. `timeout_ms` < 0: until the ticket's limit.
  Outcome wait(Ticket& ticket, int64_t timeout_ms);
  bool done(Ticket& ticket);
  bool has_board() const { return board_ != nullptr; }
  // Nobody will wait for the ticket; its blocks are released when the worker is through with them.
  void abandon(const std::shared_ptr<Ticket>& ticket);
  // Says goodbye. Once; later calls do nothing.
  void leave();

  // ---- Memory ----
  std::byte* allocate(uint64_t bytes);
  // False: not the start of a block that is in use.
  bool free(const void* memory);
  // The block around the memory, held; nullopt: it is not, all of it, in one block.
  std::optional<uint64_t> hold(const void* memory, uint64_t bytes);
  void release(const std::vector<uint64_t>& blocks);
  // INVALID_ARGUMENT: memory of the segment that exceeds its block. `side` says whose.
  Outcome check_block(const char* side, const void* memory, uint64_t bytes);
  bool is_shared(const void* memory) const { return segment_.contains(memory, 0); }
  uint64_t offset_of(const void* memory) const { return segment_.offset_of(memory); }
  std::byte* at(uint64_t offset) const { return segment_.base() + offset; }
  uint64_t used_bytes();

 private:
  explicit Connection(JoinTarget target);

  // Not so in a forked child, which must change nothing that its parent uses.
  bool is_mine() const { return birth_.is_here(); }
  void say_goodbye();
  Outcome usable();
  Outcome worker_died() const;
  bool worker_lives() const;
  Outcome assign(Request& request, const std::shared_ptr<Ticket>& ticket);
  void check_pulse();
  bool look(Ticket& ticket, Rest& rest);
  void tend(Ticket& ticket);
  void call_again(TimePoint now);
  bool concluded(Ticket& ticket);
  Board::Stage stage_of(const Ticket& ticket) const;
  bool finished(Ticket& ticket);
  static void read(const Completion& completion, Ticket& ticket);
  bool settle(Ticket& ticket);
  void deliver(Ticket& ticket);
  std::optional<uint32_t> free_slot();
  void collect();

  const JoinTarget target_;
  const Birth birth_;
  Fd socket_;
  Fd doorbell_;
  Segment segment_;
  std::unique_ptr<Board> board_;  // Where all ranks of the job are on this host.
  Cores cores_;
  std::vector<std::string> hosts_;
  uint32_t epoch_ = 0;
  std::atomic<TimePoint> next_call_ = TimePoint();  // See call_again().

  std::mutex mutex_;  // Guards what follows, and the tickets.
  std::optional<Arena> arena_;
  std::array<std::shared_ptr<Ticket>, kRingSlots> slots_;  // Unsettled tickets.
  uint32_t next_slot_ = 0;
  TimePoint next_pulse_;
  std::vector<std::shared_ptr<Ticket>> abandoned_;
  std::optional<Outcome> lost_;  // Why there is no worker any more.
};

}  // namespace tutti::client
