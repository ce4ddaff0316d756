// The coordinator's rules: what workers say and the time go in, what they are told comes out. No
// IO, no threads, no clock, no chance (secrets are handed in), so that every rule is tested alone.
//
// A job has at most one running epoch. The next one assembles beside it: a rank may join it once it
// has left the running epoch, and it starts when all ranks of the new world have joined and none
// runs in the old one. An epoch with a dead rank is broken: it is over at once, for everyone.
//
// Epochs are numbered upwards from the newest that the book or a worker in it has seen, so that a
// number is not used twice where the book was lost. Ranks that wait for one world but disagree on
// its size are all refused at once: nobody knows who is right, and they could never complete.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/mesh/last_epochs.h"
#include "proto/mesh.pb.h"

namespace tutti {

class RosterBook {
 public:
  using Worker = uint64_t;  // One worker's stream: never 0, never used again.
  struct Answer {
    Worker to;
    v1::CoordinatorMessage message;
  };
  using Answers = std::vector<Answer>;

  // `token`: if not empty, joins must show it.
  explicit RosterBook(std::string token) : token_(std::move(token)) {}

  // The epoch's secret is that of the last join before it starts.
  Answers join(Worker worker, const v1::JoinRank& join, const std::string& secret, TimePoint now);
  Answers gone(Worker worker, const v1::RankGone& gone);
  Answers resume(Worker worker, const v1::Resume& resume);
  // The worker's stream is gone, and so is the worker.
  Answers end(Worker worker);
  // Refuses the joins whose time is up. Due whenever `now` has reached next_deadline().
  Answers expire(TimePoint now);
  TimePoint next_deadline() const;  // TimePoint::max(): nothing waits.
  // NOT_FOUND for a job nobody is in. `strategy` is not looked at.
  Result<Answers> set_strategy(const std::string& job, const std::string& strategy);

  size_t jobs() const { return jobs_.size(); }  // With ranks.

 private:
  struct Joining {
    Worker worker;
    v1::JoinRank join;
    TimePoint deadline;
    uint64_t order;  // Of arrival.
  };
  struct Member {
    Worker worker = 0;  // 0: left, or not heard of since the coordinator started.
    v1::RosterRank who;
  };
  struct Running {
    uint32_t epoch;
    std::string secret;
    std::vector<Member> members;  // Index: rank.
  };
  struct Job {
    LastEpoch last;
    std::string strategy;
    std::map<uint32_t, Joining> joining;  // By rank.
    std::set<uint32_t> gave_up;           // Joined this assembly, and were refused for lateness.
    std::string secret;                   // For the next epoch.
    std::optional<Running> running;
  };

  Status check(const v1::JoinRank& join) const;
  Answers end_former(Worker worker, const v1::JoinRank& join);
  static Status check_place(const Job& job, const v1::JoinRank& join);
  static bool agrees(const Job& job, const v1::JoinRank& join);
  static Status check_host(const Job& job, const v1::JoinRank& join);
  Job& open(const std::string& name);
  // After a change: starts the epoch that has become possible, forgets the job that has become
  // empty. A reference to the job is dead afterwards.
  void settle(const std::string& name, Answers& answers);
  static std::set<Worker> workers_of(const Running& running);
  static void tell(Answers& answers, const std::set<Worker>& workers,
                   const v1::CoordinatorMessage& message);
  static Answer refusal(const Joining& joining, const Status& status);
  static Status lateness(const Job& job);

  // Refuses all that wait, and `late`, whose world has another size.
  static void refuse_world_size(Job& job, const Joining& late, Answers& answers);
  static void assemble(Job& job, const std::string& name, Answers& answers);
  static v1::CoordinatorMessage aborted_message(const std::string& job, uint32_t epoch,
                                                const Status& cause);
  // Ends the running epoch and tells its workers, all but `except`, why.
  static void break_epoch(Job& job, const std::string& name, const Status& cause, Worker except,
                          Answers& answers);
  static void break_by_death(Job& job);
  static bool is_running(const Job& job, const v1::Resume& resume);
  // An epoch that this book does not know is the newest.
  static void learn(Job& job, Worker worker, const v1::Resume& resume, Answers& answers);
  static void take_over(Job& job, Worker worker, const v1::Resume& resume);
  static void withdraw(Job& job, Worker worker, const std::string& name, Answers& answers);

  std::string token_;
  std::map<std::string, Job> jobs_;
  LastEpochs last_epochs_{10'000};
  uint64_t joins_ = 0;
};

}  // namespace tutti
