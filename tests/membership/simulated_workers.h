// The workers of one job and their trainers in simulated time. A worker does what
// daemon/control/coordinator_client.cc does; its trainers join, run for a while, leave or die, and
// join again.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/mesh.pb.h"
#include "tests/membership/simulated_network.h"
#include "tests/membership/simulated_script.h"

namespace tutti::simulated {

inline constexpr Ms kTimeToHeal = 15'000;  // After the last fault, until joins are answered.
inline constexpr Ms kLastTimeout = 20'000;

class Workers {
 public:
  Workers(Timeline& timeline, Network& network, const Script& script);
  void start_all();
  const Process& process(int index) const { return workers_[static_cast<size_t>(index)]; }
  struct Counts {
    int rosters = 0;
    int refused = 0;
    int aborted = 0;
  };
  const Counts& counts() const { return counts_; }

  void suspend(int index, Ms until);
  void kill(int index);
  void start(int index);
  void cut_stream(int index);

  // The agent of the host says who coordinates; -1: nobody.
  void set_coordinator(int index, int coordinator);
  // The workers' ends of streams.
  void on_open(int index);
  void on_broken(int index);
  void on_message(int index, const v1::CoordinatorMessage& message);

  // The epoch in which ranks of the worker are; 0: none.
  uint32_t epoch_of(int index) const;
  // A rank or a worker of the epoch has died: its ranks leave as they hear of it.
  bool has_failed(uint32_t epoch) const { return failed_.contains(epoch); }
  // All ranks of the last world run in one epoch that began after the last fault, and no other
  // ranks in any.
  bool are_together() const;
  std::string describe() const;

 private:
  struct PendingJoin {
    v1::JoinRank join;
    size_t slot = 0;  // Of the worker's trainers.
    Ms deadline = 0;
    bool sent = false;
  };
  struct Newest {
    v1::Roster roster;
    std::map<uint32_t, size_t> ranks;  // Those that are in it still, and their slots.
    Status broken;
    bool stays = false;  // Nobody leaves it.
  };
  struct Worker : Process {
    int coordinator = -1;
    WorkerStream dialled = 0;
    bool is_open = false;
    bool has_connected = false;
    uint64_t dials = 0;                     // Numbers the attempts to connect.
    std::map<uint32_t, PendingJoin> joins;  // By rank.
    std::optional<Newest> newest;
    uint32_t join_count = 0;
    uint32_t last_epoch = 0;
    std::vector<uint32_t> turns;  // Numbers what each trainer does, so that it does one thing.
  };

  Worker& worker(int index) { return workers_[static_cast<size_t>(index)]; }
  const Worker& worker(int index) const { return workers_[static_cast<size_t>(index)]; }
  static std::string name(int index) { return "worker " + std::to_string(index); }
  std::string address(int index) const;

  void connect(int index);
  void send_join(int index, PendingJoin& pending);
  void send_gone(int index, uint32_t epoch, uint32_t rank, const Status& cause);
  void resume(int index);
  void watch_deadline(int index, uint32_t rank);
  void on_deadline(int index, uint32_t rank, uint32_t number, bool answer_is_due);
  void on_roster(int index, const v1::Roster& roster);
  void report_missing(int index);
  bool is_in(int index, const v1::Roster& roster, const PendingJoin& pending) const;
  void on_refused(int index, const v1::JoinRefused& refused);
  void on_aborted(int index, uint32_t epoch);
  void end_join(int index, uint32_t rank, const Status& why);

  // Does it at some time, unless the trainer does something else before.
  void plan(int index, size_t slot, Ms most, std::function<void()> what);
  void plan_join(int index, size_t slot, Ms most);
  void join(int index, size_t slot);
  void leave(int index, uint32_t epoch, uint32_t rank, bool dies);
  // Others of the epoch hear that it has failed, and leave.
  void spread_failure(const v1::Roster& roster, int except);
  const Script::World& world() const;
  // The rank of the slot in the world, if its host is there, and the world's size.
  std::optional<uint32_t> rank_of(int index, size_t slot, uint32_t& world_size) const;
  // The hosts are those of the world, and all have joined after the last fault.
  bool may_stay(const v1::Roster& roster) const;

  Timeline& timeline_;
  Network& network_;
  const Script& script_;
  std::vector<Worker> workers_;
  uint32_t last_pid_ = 100;
  uint32_t first_healthy_pid_ = UINT32_MAX;  // Of a rank that joined after the last fault.
  std::set<uint32_t> failed_;
  Counts counts_;
};

}  // namespace tutti::simulated
