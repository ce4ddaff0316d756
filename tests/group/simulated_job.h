// One job in simulated time: every host's Follower, the Leader, and a simulated engine, over links
// that delay messages and keep the order per pair of hosts. Follows a script and checks all along
// that what ranks learn is true.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "daemon/group/early_budget.h"
#include "daemon/group/follower.h"
#include "daemon/group/leader.h"
#include "tests/group/simulated_engine.h"
#include "tests/group/simulated_script.h"

namespace tutti::simulated {

// A fault that a test injects to see that it is found: changes messages between hosts or a
// follower's actions. False: the message or action is dropped.
struct Tampering {
  std::function<bool(int from, int to, Message& message)> message;
  std::function<bool(int host, Action& action)> action;
};

class Job {
 public:
  static constexpr Us kLatestEnd = 60'000'000;

  Job(const Script& script, uint64_t seed, const Tampering& tampering = {}, bool traces = false);
  // Returns an empty string, or the first broken promise.
  std::string run();
  const std::vector<std::string>& trace() const { return trace_; }
  struct Counts {
    int ok = 0;
    int failed = 0;
    int epochs_ended = 0;
    int events = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct SimHost {
    std::unique_ptr<Follower> follower;
    std::unique_ptr<Leader> leader;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<EarlyBudget> early;
    Us stopped_until = 0;
    Us last_stop = -1;     // Begin of the last stop.
    Us last_stop_end = 0;  // Its end, which may lie ahead.
    bool dead = false;
    bool was_stopped = false;
    Us wakes = Script::kNever;
    std::vector<bool> made;  // By group.
  };
  struct Called {
    int rank = 0;  // Of the job.
    Us at = 0;
    Us deadline = 0;
    Signature signature;
    Status invalid;
    std::optional<Status> end;
  };
  struct Truth {
    std::map<int, Called> calls;  // By rank of the group.
    std::optional<Status> verdict;
    std::optional<Strategies> strategies;
    std::set<int> completed;  // Hosts whose engines have.
  };
  struct RankState {
    size_t next = 0;
    bool gone = false;
    std::map<uint32_t, uint64_t> calls;  // By group.
    std::optional<EpochOp> waits;
  };
  struct Event {
    Us at;
    uint64_t order;
    int host;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };
  using Channel = std::tuple<int, int, bool>;  // From, to, data.

  TimePoint time(Us us) const { return TimePoint(std::chrono::microseconds(us)); }
  SimHost& host(int index) { return hosts_[static_cast<size_t>(index)]; }
  void at(Us when, int host, std::function<void()> run);
  void say(int host, const std::string& text);
  void wrong(const std::string& text);

  // The script.
  void schedule_script();
  void schedule_call(int rank, Us when);
  void call(int rank);
  void go(int rank);
  void stop(const Script::Stop& stop);
  void change(const Script::Change& change);

  // Hosts.
  void drain(int index);
  void perform(int index, const Send& send);
  void perform(int index, const Start& start);
  void perform(int index, const Cancel& cancel);
  void perform(int index, const Complete& complete);
  void perform(int index, const EndEpoch& end);
  void deliver(int from, int to, bool up, const Message& message);
  void hear(int from, int to, bool up, const Message& message);
  bool send(int from, int to, const Frame& frame);
  void hear(int to, const Frame& frame);
  void notify_waiters(int index, const EpochOp& op);
  void post(int from, int to, bool data, std::function<void()> run);
  void set_alarm(int index);
  Engine::Hooks hooks(int index);

  // Checks.
  uint64_t contribution(const EpochOp& op, int job_rank, int chunk, int slice) const;
  void completed(int index, const EpochOp& op, const std::vector<std::vector<uint64_t>>& values);
  void check_values(int index, const EpochOp& op, const std::vector<std::vector<uint64_t>>& values);
  void judge(int index, const EpochOp& op, Called& called, const Status& status);
  void check_verdict(const EpochOp& op, const Truth& truth, const Status& status);
  void check_lateness(const EpochOp& op, const Truth& truth, const Status& status);
  void check_end(const Status& cause);
  void check_rest();
  void check_rest(int index);
  const Ranks& members(uint32_t group) const;

  const Script& script_;
  const Tampering& tampering_;
  const bool traces_;
  Random random_;
  const std::vector<Host> homes_;
  std::vector<int> home_;  // By rank.
  std::vector<SimHost> hosts_;
  std::vector<RankState> ranks_;
  std::map<EpochOp, Truth> truths_;
  std::set<std::pair<int, EpochOp>> lent_;  // Hosts and aborted operations that a link still sends.
  std::priority_queue<Event> events_;
  std::map<Channel, Us> busy_;
  uint64_t order_ = 0;
  Us now_ = 1;
  std::string wrong_;
  std::vector<std::string> trace_;
  Counts counts_;
};

}  // namespace tutti::simulated
