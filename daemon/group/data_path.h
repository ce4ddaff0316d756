// The data frames of one epoch, on their way between the engine and the links: sends within the
// budget of early_budget.h, exchanging WantStarted and Started messages for it; checks what
// arrives; keeps frames of groups that no local rank has made yet; and measures the rate at which
// data arrives from each host. Loop thread only.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/engine/engine.h"
#include "daemon/group/early_budget.h"
#include "daemon/group/follower.h"
#include "daemon/group/links.h"
#include "daemon/tuning/tuning.h"

namespace tutti {

class DataPath final : public FrameSender {
 public:
  // References must outlive it. `early_bytes`: the budget per receiving host.
  DataPath(Loop& loop, Engine& engine, Links& links, const Follower& follower, const Roster& roster,
           const std::vector<Host>& hosts, uint64_t early_bytes);

  // `place`: of a host in the group's plans.
  Status send(const OpId& id, int place, Outgoing frame) override;

  // A data frame from that host, untrusted. Not OK: the host broke the protocol.
  Status on_frame(int host, Frame frame);
  // As LinkHandler::recv_buffer_for.
  std::shared_ptr<RecvBuffer> recv_buffer_for(int host, const FrameHeader& header);
  // A group was made here: handles the frames kept for it. Not OK: the status to end the epoch
  // with.
  Status on_group_made(uint32_t group);

  // An operation started, or ended, on this host.
  void on_started(const EpochOp& op) { notify_waiters(op); }
  void on_ended(const EpochOp& op) { early_.on_ended(op); }
  void on_cancelled(const EpochOp& op);
  // Messages from other hosts. Not OK: as on_frame().
  Status on_message(int host, const WantStarted& want);
  Status on_message(int host, const Started& started);
  // Lets the engine send what the budget refused, if the budget allows it now.
  void retry_sends();
  void drop_kept_frames() { unknown_.clear(); }

  RateMeter& rates() { return rates_; }

 private:
  const std::string& name_of(int host) const { return hosts_[static_cast<size_t>(host)].name; }
  OpId op_id(const EpochOp& op) const { return {roster_.epoch, op.group, op.number}; }
  Status check(int host, const FrameHeader& header) const;
  Status keep(int host, Frame frame);
  void send_message(int host, const Message& message);
  void notify_waiters(const EpochOp& op);

  Loop& loop_;
  Engine& engine_;
  Links& links_;
  const Follower& follower_;
  const Roster& roster_;
  const std::vector<Host>& hosts_;
  const uint64_t early_bytes_;
  EarlyBudget early_;
  RateMeter rates_;
  // Frames by group that no local rank has made, with the host each came from.
  std::map<uint32_t, std::vector<std::pair<int, Frame>>> unknown_;
  uint64_t unknown_bytes_ = 0;
  Lifetime lifetime_;
};

}  // namespace tutti
