// One joined rank: its memory, its arena, and whether its worker lives.
//
// Safe from any thread. Shared by the handles of the job's groups and works; unmapped with the last
// of them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/arena.h"
#include "client/backoff.h"
#include "client/fork_guard.h"
#include "client/host_memory.h"
#include "client/join.h"
#include "client/segment.h"

namespace tutti::client {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Millis = std::chrono::milliseconds;

class Calls;

class Connection {
 public:
  static Status open(const JoinTarget& target, std::shared_ptr<Connection>& connection);
  ~Connection();

  const JoinTarget& target() const { return target_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  uint32_t epoch() const { return epoch_; }
  const HostMemory& memory() const { return *memory_; }
  Cores& cores() { return cores_; }

  // Not so in a forked child, which must change nothing that its parent uses; ask before any lock.
  bool is_mine() const { return fork_guard_.is_here(); }
  // Why nothing can be asked for any more: a forked child, a rank that left, a worker that died.
  Status usable() const noexcept;
  // Looks whether the worker lives; if not, it is lost for good.
  bool check_worker();
  // Likewise, now and then: what ranks do by themselves needs no worker, yet a job whose worker
  // died is over. Costs a few nanoseconds.
  void check_pulse();
  // The worker does not answer: lost for good.
  void lose(const Status& why);
  // "the worker of job 'j' on host a (pid 7)".
  std::string worker() const;
  Status no_answer() const;
  // "rank 3 (host a)".
  std::string rank_at(uint32_t seat) const;
  void ring_worker() const;

  // The rank says goodbye: what is under way ends CANCELLED. Once; later calls do nothing. Returns
  // when no thread of this rank folds any more.
  void leave();
  void add(const std::shared_ptr<Calls>& calls);
  // As Calls::settle_finished(), of all groups.
  void settle_all();
  // Calls that nobody will wait for, and that may hold memory.
  void count_abandoned(int change) { abandoned_ += change; }
  // Seats of the group's ranks that are on this host, by their order in the group.
  std::vector<uint32_t> seats_of(const std::vector<uint32_t>& ranks) const;

  // Makes a sub-group with the other members: each gets the same number, and its area on this host.
  struct Subgroup {
    uint32_t group = 0;
    uint32_t area = 0;
  };
  Status make_subgroup(const uint32_t* ranks, size_t count, Subgroup& made);

  // ---- Memory ----
  std::byte* allocate(uint64_t bytes);
  // False: not the start of a block that is in use.
  bool free(const void* memory);
  // The block around the memory, held; nullopt: it is not, all of it, in one block.
  std::optional<uint64_t> hold(const void* memory, uint64_t bytes);
  void release(const std::vector<uint64_t>& blocks);
  // INVALID_ARGUMENT: memory of the segment that exceeds its block. `side` says whose.
  Status check_block(const char* side, const void* memory, uint64_t bytes);
  bool is_shared(const void* memory) const { return segment_.contains(memory, 0); }
  uint64_t offset_of(const void* memory) const { return segment_.offset_of(memory); }
  std::byte* at(uint64_t offset) const { return segment_.base() + offset; }
  uint64_t used_bytes();

 private:
  explicit Connection(JoinTarget target);
  void say_goodbye();
  template <class Use>
  void for_each_group(const Use& use);
  Status await_answer(BoardSubgroupRequest& subgroup, TimePoint limit);

  const JoinTarget target_;
  const ForkGuard fork_guard_;
  Fd socket_;
  Fd doorbell_;
  Segment segment_;
  std::unique_ptr<HostMemory> memory_;
  Cores cores_;
  std::vector<std::string> hosts_;
  std::vector<uint32_t> seat_of_rank_;  // Of the job; UINT32_MAX: on another host.
  uint32_t worker_pid_ = 0;
  uint32_t epoch_ = 0;
  std::mutex subgroup_mutex_;

  mutable std::mutex mutex_;  // Guards what follows.
  std::optional<Arena> arena_;
  std::vector<std::shared_ptr<Calls>>
      calls_;  // Of a group that is gone, too, while it holds memory.
  std::optional<Status> lost_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<int> abandoned_ = 0;
  std::atomic<int64_t> next_pulse_ms_ = 0;
};

}  // namespace tutti::client
