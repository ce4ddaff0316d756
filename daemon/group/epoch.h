// The implementation of group.h's Epoch: performs what Follower and, on the first host, Leader
// decide, with an engine, links, timers, a log and the tuner.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/log_limit.h"
#include "daemon/group/control_batcher.h"
#include "daemon/group/data_path.h"
#include "daemon/group/follower.h"
#include "daemon/group/gpu_link.h"
#include "daemon/group/group.h"
#include "daemon/group/group_numbers.h"
#include "daemon/group/leader.h"
#include "daemon/group/links.h"
#include "daemon/group/measuring.h"
#include "daemon/group/plan_cache.h"

namespace tutti {

class HostEpoch final : public Epoch, public Links::Events {
 public:
  HostEpoch(EpochParts parts, Roster roster, const std::string& host, const EpochOptions& options);
  ~HostEpoch() override;

  void submit(int rank, Call call) override;
  void on_window_filled(const EpochOp& op) override { parts_.engine.resume(op_id(op)); }
  Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) override;
  Result<uint32_t> channel(int rank, const std::vector<uint32_t>& ranks, uint64_t channel) override;
  void leave(int rank, const Status& cause) override;
  void abort(const Status& cause) override;
  void set_strategy(const Strategies& strategies) override;
  void add_link(const std::string& host, std::shared_ptr<Link> link,
                std::shared_ptr<LoopHandler> handler) override;
  const Roster& roster() const override { return roster_; }
  bool needed() const override;
  const Status& cause() const override { return follower_.cause(); }
  const std::vector<Departure>& departures() const override { return follower_.departures(); }
  EpochStats stats() const override;
  GpuLinkState gpu_link() const override { return gpu_link_.state(follower_.table(0).nccl); }

 private:
  using Calls = std::map<int, Call>;  // By local rank of the group.

  OpId op_id(const EpochOp& op) const { return {roster_.epoch, op.group, op.number}; }

  // ---- Actions of Follower and Leader ----
  void run_actions();
  void perform(const Send& send);
  void perform(const Start& start);
  void perform(const Cancel& cancel);
  void perform(const Complete& complete);
  void perform(const EndEpoch& end);
  void send_to_follower(const Send& send);
  void handle_as_follower(const Message& message);
  void set_alarm();

  Result<uint32_t> make_group(const Result<GroupNumbers::Asked>& asked);

  // ---- Operations ----
  bool let_ranks_fold(const Start& start);
  void refuse(const EpochOp& op, const Status& why) { parts_.local.complete(op, why); }
  Operation operation_of(const Start& start, const Calls& calls);
  void on_done(const EpochOp& op, const Status& status);
  void choose_strategy(const Start& start);

  // ---- Frames ----
  void on_frame(int host, Frame frame) override;
  void on_lost(int host, Status cause) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(int host, const FrameHeader& header) override {
    return data_.recv_buffer_for(host, header);
  }
  Status on_controls(int host, const Frame& frame);
  Status on_control(int host, const v1::Control& control);
  Status on_message(int host, const Message& message);

  // ---- NCCL ----
  GpuLink::Parts gpu_link_parts();
  void offer_gpus(const Start& start);

  EpochParts parts_;
  const Roster roster_;
  const std::vector<Host> hosts_;
  const int self_;  // This host's index in hosts_.
  const std::string& name_;
  const EpochOptions options_;
  GroupNumbers numbers_;
  Follower follower_;
  LogLimit log_limit_;
  std::optional<Leader> leader_;    // On the first host.
  std::map<EpochOp, Calls> calls_;  // Not completed yet.
  PlanCache plans_;
  uint64_t received_bytes_ = 0;

  bool running_actions_ = false;
  Loop::TimerId alarm_ = 0;
  TimePoint alarm_at_{};  // If alarm_ is set.
  Lifetime lifetime_;
  ControlBatcher batcher_;
  DataPath data_;
  Measuring measuring_;
  GpuLink gpu_link_;
  Links links_;  // Destroyed first: its events use all of the above.
};

}  // namespace tutti
