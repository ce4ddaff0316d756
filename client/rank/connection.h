// One joined rank: its memory, what is under way there, and the state of its worker.
//
// Safe from any thread. Shared by the handles of the job's groups and works, and by tasks of its
// threads; the memory is unmapped with the last of them, or once the driver has unpinned it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/rank/backoff.h"
#include "client/rank/fork_guard.h"
#include "client/rank/host_memory.h"
#include "client/rank/join.h"
#include "client/rank/memory_in_use.h"
#include "client/rank/rank_memory.h"
#include "client/rank/under_way.h"

namespace tutti::client {

// How often a rank that waits checks that its worker lives.
inline constexpr Millis kWorkerCheck{50};

// A worker ends every operation within this time after its deadline; one that does not, and has not
// looked at the board for as long, has failed.
inline constexpr Millis kAnswerGrace{450};
// How long leaving waits for GPUs that are at work on the rank's memory.
inline constexpr Millis kLeaveTime{2'000};

// A part that uses the rank's memory and its worker; the connection knows nothing else about it.
class Attachment {
 public:
  Attachment() = default;
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  virtual ~Attachment() = default;
  // The rank leaves, and every operation has an outcome at `limit`. Waits until then for what
  // touches the rank's memory; what does so for longer keeps the memory mapped. Idempotent.
  virtual void close(TimePoint limit) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Joins the job and maps the memory. Blocks like join_job().
  static Status open(const JoinTarget& target, std::shared_ptr<Connection>& connection);
  ~Connection();

  const JoinTarget& target() const { return target_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // By rank.
  uint32_t epoch() const { return epoch_; }
  const HostMemory& memory() const { return *memory_; }
  Cores& cores() { return cores_; }

  // False in a forked child, which must not change what its parent uses, nor take a lock.
  bool is_own_process() const { return fork_guard_.is_own_process(); }
  // OK, or why nothing can be requested any more: a forked child, a rank that left, a lost worker.
  Status usable() const noexcept;
  // Checks whether the worker lives; if not, marks the connection lost. Returns whether it lives.
  bool check_worker();
  // The same, at most once in 10 ms, in a few nanoseconds otherwise. Ranks of one host can run
  // operations without their worker, but the job has ended with it.
  void check_worker_if_due();
  // Whether the worker has died, and its GPUs have had the time to end what they were at.
  bool has_worker_ended();
  // Makes usable() return `why` from now on; the first reason stays.
  void mark_lost(const Status& why);
  // "the worker of job 'j' on host a (pid 7)".
  std::string worker_name() const;
  // The Status for a worker that has not answered in time.
  Status worker_timeout() const;
  // "rank 3 (host a)".
  std::string rank_name(uint32_t local_rank) const;
  uint32_t rank_of(uint32_t local_rank) const;
  const std::string& own_host() const { return hosts_[target_.rank]; }
  void ring_worker() const;

  // Offers memory to the worker, which lies as a MemoryOffer at this offset of the segment, and
  // waits for its answer. `descriptors`: of chunks, borrowed.
  Status offer(uint64_t offer_offset, std::span<const int> descriptors);
  // Owns the part, which uses this connection, from here on. Once, before the first operation.
  void attach(std::unique_ptr<Attachment> part) {
    require(attachment_ == nullptr, "a connection has one part attached");
    attachment_ = std::move(part);
  }

  // Leaves the job: operations under way end CANCELLED. Idempotent. No thread of this rank folds
  // when it returns, and no GPU touches memory of this rank for an operation: it waits for that,
  // but no longer than kLeaveTime.
  void leave();
  // The local ranks of those of a group's ranks that are on this host, in the order of the group.
  std::vector<uint32_t> local_ranks_of(const std::vector<uint32_t>& ranks) const;

  // The number of a group, the same on all hosts, and its area on this host's board.
  struct Subgroup {
    uint32_t number = 0;
    uint32_t area = 0;
  };
  // Makes a sub-group, without waiting for its other members. `channel`: see BoardSubgroupRequest.
  // Waits for the worker until `deadline`, of the call that needs the group, and kAnswerGrace more.
  Result<Subgroup> make_subgroup(std::span<const uint32_t> ranks, TimePoint deadline,
                                 uint64_t channel = 0);
  // When a call of this moment ends that has the join's timeout.
  TimePoint default_deadline() const { return Clock::now() + Millis(target_.timeout_ms); }

  RankMemory& own_memory() { return own_memory_; }
  UnderWay& under_way() { return under_way_; }
  // What operations under way use of the program's memory.
  MemoryInUse& memory_in_use() { return memory_in_use_; }

 private:
  explicit Connection(JoinTarget target);
  std::string own_name() const;  // "rank 2 of 4 of job 'demo'".
  void log_welcome() const;
  void close_socket();
  bool is_worker_there();
  Status await_answer(std::atomic<uint32_t>& state, TimePoint limit);
  void show_process() const;
  Status send_descriptors(std::span<const int> descriptors, char byte) const;

  const JoinTarget target_;
  const ForkGuard fork_guard_;
  Fd socket_;
  Fd doorbell_;  // An eventfd that wakes the worker.
  RankMemory own_memory_{fork_guard_, under_way_};
  MemoryInUse memory_in_use_{fork_guard_, *own_memory_.segment()};
  std::unique_ptr<HostMemory> memory_;
  UnderWay under_way_;  // After the memory, which its operations use to their end.
  Cores cores_;
  std::vector<std::string> hosts_;
  std::vector<uint32_t> local_ranks_;  // By rank of the job; UINT32_MAX: on another host.
  uint32_t worker_pid_ = 0;
  uint32_t epoch_ = 0;
  std::mutex offer_mutex_;           // Held while this rank's offer is in use.
  std::timed_mutex subgroup_mutex_;  // Held while this rank's sub-group request is in use.

  mutable std::mutex mutex_;  // Guards what follows.
  std::optional<Status> lost_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<int64_t> next_check_ms_ = 0;
  std::atomic<TimePoint> worker_died_ = TimePoint::max();  // When that was seen.
  std::unique_ptr<Attachment> attachment_;                 // Last: it uses all of the above.
};

}  // namespace tutti::client
