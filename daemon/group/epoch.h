// The implementation of group.h's Epoch: links, an engine, timers and a log around Member and, on
// the first host, Leader. What they want done is done here, in their order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/group/adviser.h"
#include "daemon/group/control.h"
#include "daemon/group/control_batcher.h"
#include "daemon/group/early_budget.h"
#include "daemon/group/group.h"
#include "daemon/group/leader.h"
#include "daemon/group/member.h"
#include "daemon/tuning/tuning.h"

namespace tutti {

class HostEpoch final : public Epoch, public Links::Events {
 public:
  HostEpoch(EpochParts parts, Roster roster, const std::string& host, const EpochOptions& options);
  ~HostEpoch() override;

  void submit(int rank, Call call) override;
  void filled(uint32_t group, uint64_t number) override {
    parts_.engine.poke(engine_key({group, number}));
  }
  Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) override;
  void leave(int rank, const Status& cause) override;
  void abort(const Status& cause) override;
  void set_strategy(const Strategies& strategies) override;
  void adopt(const std::string& host, std::shared_ptr<Link> link,
             std::shared_ptr<LoopHandler> handler) override;
  Status send(const OpKey& key, int place, Outgoing frame) override;
  const Roster& roster() const override { return roster_; }
  bool needed() const override;
  bool over() const override { return member_.gone() == roster_.ranks.size(); }
  bool broken() const override { return !cause().ok() || member_.gone() != 0; }
  const Status& cause() const override { return member_.cause(); }
  const std::vector<int>& departures() const override { return member_.departures(); }
  EpochStats stats() const override;

 private:
  using Calls = std::map<int, Call>;  // By local rank of the group.

  OpKey engine_key(const Key& key) const { return {roster_.epoch, key.group, key.number}; }
  const std::string& name_of_host(int host) const { return hosts_[static_cast<size_t>(host)].name; }
  MemberRules rules(const Strategies& job);
  void answer(const Call& call, const Status& status);

  // ---- What the core wants done ----
  void pump();
  void act(const Tell& tell);
  void act(const Start& start);
  bool fold_here(const Start& start);
  void act(const Cancel& cancel);
  void act(const Answer& answer);
  void act(const End& end);
  void deliver(const Tell& tell);
  void take_up(int host, const Message& message);
  void take_down(const Message& message);
  void set_alarm();

  // ---- Operations ----
  Operation operation_of(const Start& start, const Calls& calls);
  std::shared_ptr<const ExecutionPlan> execution(const Start& start);
  void finish(const Key& key, const Status& status);
  Status of_the_job(const Status& status, const Communicator& group) const;
  std::pair<std::string, int> waiting(const Key& key) const;

  // ---- Frames ----
  void on_frame(int host, Frame frame) override;
  void on_lost(int host, Status cause) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(int host, const FrameHeader& header) override;
  Status check_data(int host, const FrameHeader& header) const;
  Status on_data(int host, Frame frame);
  Status keep_unmade(int host, Frame frame);
  void take_unmade(uint32_t group);
  Status on_controls(int host, const Frame& frame);
  Status on_control(int host, const v1::Control& control);
  Status on_message(int host, const Message& message);
  void tell_host(int host, const Message& message);
  void tell_started(const Key& key);

  // ---- Tuning ----
  void find_machine();
  void make_adviser();
  void advise(const Start& start);
  Status on_probe(int host, const v1::Probe& probe);
  void tell_rates();

  EpochParts parts_;
  const Roster roster_;
  const std::vector<Host> hosts_;
  const int self_;  // This host in hosts_.
  const EpochOptions options_;
  Member member_;
  std::optional<Leader> leader_;  // On the first host.
  EarlyBudget early_;
  std::map<Key, Calls> calls_;  // Not ended yet.
  // List, job rank: how often it was asked for.
  std::map<std::vector<int>, std::map<int, uint32_t>> subgroup_counts_;
  size_t subgroups_ = 0;
  std::map<std::pair<uint32_t, Plan>, std::shared_ptr<const ExecutionPlan>> executions_;
  // Data of groups that no rank here has made so far.
  std::map<uint32_t, std::vector<std::pair<int, Frame>>> unmade_;
  uint64_t unmade_bytes_ = 0;
  EpochStats stats_;

  OpClock op_clock_;
  RateMeter rates_;
  v1::Probe machine_;                 // This one, as an answer says it.
  std::unique_ptr<Adviser> adviser_;  // Where leader_.

  bool pumping_ = false;
  Loop::TimerId alarm_ = 0;
  TimePoint alarm_at_{};                                              // Where alarm_ is set.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Loop thread only.
  ControlBatcher batcher_;
  std::unique_ptr<Links> links_;
};

}  // namespace tutti
