// The implementation of group.h's Epoch: performs what Member and, on the first host, Leader
// decide, with an engine, links, timers, a log and the tuner.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "daemon/group/adviser.h"
#include "daemon/group/control_batcher.h"
#include "daemon/group/data_path.h"
#include "daemon/group/gpu_link.h"
#include "daemon/group/group.h"
#include "daemon/group/leader.h"
#include "daemon/group/links.h"
#include "daemon/group/member.h"
#include "daemon/tuning/tuning.h"

namespace tutti {

class HostEpoch final : public Epoch, public Links::Events {
 public:
  HostEpoch(EpochParts parts, Roster roster, const std::string& host, const EpochOptions& options);
  ~HostEpoch() override;

  void submit(int rank, Call call) override;
  void on_window_filled(uint32_t group, uint64_t number) override {
    parts_.engine.resume(engine_key({group, number}));
  }
  Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) override;
  Result<uint32_t> channel(int rank, const std::vector<uint32_t>& ranks, uint64_t channel) override;
  void leave(int rank, const Status& cause) override;
  void abort(const Status& cause) override;
  void set_strategy(const Strategies& strategies) override;
  void adopt(const std::string& host, std::shared_ptr<Link> link,
             std::shared_ptr<LoopHandler> handler) override;
  const Roster& roster() const override { return roster_; }
  bool needed() const override;
  bool all_ranks_left() const override { return departures().size() == roster_.ranks.size(); }
  bool broken() const override { return !cause().ok() || !departures().empty(); }
  const Status& cause() const override { return member_.cause(); }
  const std::vector<int>& departures() const override { return member_.departures(); }
  EpochStats stats() const override;
  GpuLinkState gpu_link() const override { return gpu_link_.state(member_.table(0).nccl); }

 private:
  using Calls = std::map<int, Call>;  // By local rank of the group.

  OpKey engine_key(const Key& key) const { return {roster_.epoch, key.group, key.number}; }
  const Host& host(int index) const { return hosts_[static_cast<size_t>(index)]; }
  MemberRules rules(const Strategies& job);

  // ---- Actions of Member and Leader ----
  void run_actions();
  void perform(const Send& send);
  void perform(const Start& start);
  void perform(const Cancel& cancel);
  void perform(const Complete& complete);
  void perform(const EndEpoch& end);
  void send_to_member(const Send& send);
  void handle_as_member(const Message& message);
  void set_alarm();

  // ---- Groups ----
  Status check_room_for_group() const;
  Result<uint32_t> make_group(uint32_t number, const Members& members, bool fresh);

  // ---- Operations ----
  bool have_equal_counts(const Calls& calls) const;
  bool let_ranks_fold(const Start& start);
  void refuse(const Key& key, const Status& why) {
    parts_.local.complete(key.group, key.number, why);
  }
  Operation operation_of(const Start& start, const Calls& calls);
  std::shared_ptr<const ExecutionPlan> execution(const Start& start);
  void on_done(const Key& key, const Status& status);
  Status with_job_rank(const Status& status, const Communicator& group) const;

  // ---- Frames ----
  void on_frame(int host, Frame frame) override;
  void on_lost(int host, Status cause) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(int host, const FrameHeader& header) override {
    return data_.recv_buffer_for(host, header);
  }
  Status on_controls(int host, const Frame& frame);
  Status on_control(int host, const v1::Control& control);
  void send_limits();
  void check_limits(int from, const v1::Rates& told);
  Status on_message(int host, const Message& message);

  // ---- NCCL ----
  GpuLink::Parts gpu_link_parts();
  void offer_gpus(const Start& start);

  // ---- Tuning ----
  void make_adviser();
  void ask_adviser(const Start& start);
  Status on_probe(int host, const v1::Probe& probe);
  void send_rates();

  EpochParts parts_;
  const Roster roster_;
  const std::vector<Host> hosts_;
  const int self_;  // This host's index in hosts_.
  const EpochOptions options_;
  Member member_;
  std::optional<Leader> leader_;  // On the first host.
  std::map<Key, Calls> calls_;    // Not completed yet.
  // By members and job rank: how often the rank asked for such a group.
  std::map<std::vector<int>, std::map<int, uint32_t>> subgroup_counts_;
  std::set<uint32_t> channels_;  // Groups that carry messages.
  size_t subgroups_ = 0;         // Groups but that of the whole job.
  std::map<std::pair<uint32_t, Plan>, std::shared_ptr<const ExecutionPlan>> executions_;
  uint64_t received_bytes_ = 0;

  OpClock op_clock_;
  v1::Probe machine_;                 // Describes this host, as an answer to a probe.
  std::unique_ptr<Adviser> adviser_;  // Where leader_.

  bool running_actions_ = false;
  Loop::TimerId alarm_ = 0;
  TimePoint alarm_at_{};                                              // If alarm_ is set.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Loop thread only.
  ControlBatcher batcher_;
  DataPath data_;
  GpuLink gpu_link_;
  Links links_;  // Destroyed first: its events use all of the above.
};

}  // namespace tutti
