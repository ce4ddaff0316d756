// Where the replicas of one process, each a thread, meet for an operation that takes a value of
// each.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti::distribute {

class Rendezvous {
 public:
  // Called once, on the thread of the replica that arrives or finishes last, with the arguments of
  // all. An exception that it throws becomes an error of all. `met` is an error where no meeting
  // came about: then the arguments must not be used.
  using Merge = std::function<Status(const Status& met, const std::vector<void*>& arguments)>;

  // One replica's call.
  struct Call {
    std::string name;  // Of the operation, with what must be equal; not empty.
    void* argument = nullptr;
    Status own = {};  // An error: it is that of all.
    std::chrono::milliseconds timeout{30'000};
  };

  // For replicas of these ids, which messages name. Elsewhere they are counted from 0.
  explicit Rendezvous(std::vector<int> ids)
      : ids_(std::move(ids)),
        calls_(ids_.size()),
        finished_(ids_.size(), false),
        owed_(ids_.size()),
        results_(ids_.size()) {}

  // Blocks until every replica has called this or finish(), then returns what `merge` has, that of
  // the replica which came first. `met` is INVALID_ARGUMENT where the replicas' calls differ,
  // FAILED_PRECONDITION where one has finished, DEADLINE_EXCEEDED where one has not come in time;
  // when that one comes, it gets this error, too.
  Status meet(size_t replica, const Call& call, const Merge& merge);

  // The replica will not come again; `status` says whether its function has failed.
  void finish(size_t replica, const Status& status);

  // The error of the replica that failed first; OK where none did.
  Status first_failure() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  Status outcome() const;
  std::string name_of(size_t replica) const { return "replica " + std::to_string(ids_[replica]); }
  size_t first_arrived() const;
  bool all_came() const { return arrived_ > 0 && arrived_ + finished_count_ == calls_.size(); }
  void conclude(Lock& lock, const Status& met);
  Status miss_the_others();

  const std::vector<int> ids_;
  mutable std::mutex mutex_;
  std::condition_variable concluded_;
  std::vector<std::optional<Call>> calls_;  // Of this round.
  Merge merge_;                             // Of the replica that came first.
  std::vector<bool> finished_;
  std::string first_finished_;  // Says which replica finished first, and how.
  size_t finished_count_ = 0;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
  bool merging_ = false;                  // The replicas of the round all wait for the merge.
  std::vector<std::deque<Status>> owed_;  // Errors of rounds for which a replica came too late.
  std::vector<Status> results_;           // What meet() returns to each replica that waits.
  Status first_failure_;
};

}  // namespace tutti::distribute
