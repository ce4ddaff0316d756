// The implementation of group.h's World: the member's side everywhere, the leader's on the first
// host.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "daemon/group/adviser.h"
#include "daemon/group/communicator.h"
#include "daemon/group/control.h"
#include "daemon/group/fuse.h"
#include "daemon/group/gauge.h"
#include "daemon/group/group.h"
#include "daemon/group/matcher.h"
#include "daemon/group/outbox.h"

namespace tutti {

class PlainWorld final : public World, public Links::Events {
 public:
  PlainWorld(const WorldParts& parts, Roster roster, const std::string& host,
             const WorldOptions& options);
  ~PlainWorld() override;

  void submit(int rank, uint32_t group, Call call) override;
  Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) override;
  void leave(int rank, const Status& cause) override;
  void abort(const Status& cause) override;
  void set_strategy(const Strategies& strategies) override { job_strategies_ = strategies; }
  void adopt(const std::string& host, std::shared_ptr<Link> link,
             std::shared_ptr<LoopHandler> handler) override;
  Status send(const OpKey& key, int rank, Outgoing frame) override;
  const Roster& roster() const override { return roster_; }
  bool needed() const override { return cause_.ok() && !over() && (leads() || !pending_.empty()); }
  bool over() const override { return gone_.size() == roster_.ranks.size(); }
  bool broken() const override { return !cause_.ok() || !gone_.empty(); }
  const Status& cause() const override { return cause_; }
  const std::vector<int>& departures() const override { return departures_; }
  WorldStats stats() const override;

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // Group, seq.
  struct Pending {
    std::map<int, Call> calls;  // By local rank of the group.
    bool started = false;
    uint64_t runs_as = 0;  // The engine's number for it, once started.
    Loop::TimerId timer = 0;
    TimePoint deadline = TimePoint::max();
    uint32_t timeout_ms = 0;
    const Signature& signature() const { return calls.begin()->second.signature; }
  };

  bool leads() const { return self_ == 0; }

  using Caller = std::pair<uint32_t, int>;  // Group, local rank of it.

  // ---- The member ----
  void enter(const Caller& caller, Call call);
  void announce(const Key& key, const Communicator& group, int rank, const Call& call,
                uint32_t timeout_ms);
  void watch_deadline(const Key& key, Pending& pending, uint32_t timeout_ms, uint32_t waited_ms);
  void past_deadline(const Key& key);
  Hurry hurry_of(const Key& key, const Signature& signature) const;
  void obey_start(const StartOrder& order);
  bool fold_here(const StartOrder& order, const Communicator& group);
  bool can_start(const Pending& pending, const Communicator& group) const;
  Operation bare_operation(const StartOrder& order, const Signature& signature);
  Operation operation_of(const StartOrder& order, const Pending& pending);
  Operation fused_operation(const StartOrder& order, const std::vector<Pending*>& parts);
  void finish(const StartOrder& order, const Status& status);
  Status of_the_job(const Status& status, const Communicator& group) const;
  void obey_fail(const Key& key, const Status& status);
  void complete(const Key& key, const Status& status);
  void answer(const Call& call, const Status& status);
  void end_epoch(const Status& cause);

  // ---- The leader ----
  void judge(const Arrival& arrival, int host);
  void proclaim(const Verdict& verdict);
  void proclaim_failure(const Verdict& verdict, const Communicator& group);
  void launch(const StartOrder& order);
  void launch_fused();
  void rearm_matcher();
  void find_machine();
  void make_adviser();
  void lead_gone(int rank, const Status& cause);

  // ---- Frames ----
  void on_frame(int host, Frame frame) override;
  void on_lost(int host, Status cause) override;
  std::shared_ptr<Landing> place(int host, const FrameHeader& header) override;
  Status check_data(int host, const FrameHeader& header) const;
  Status on_data(int host, Frame frame);
  void on_controls(int host, const Frame& frame);
  void on_control(int host, const v1::Control& control);
  void on_arrive(int host, const v1::Control& control);
  bool could_be_group(uint32_t number, const std::vector<int>& members) const;
  bool is_sound(int host, const v1::Control& control, const std::vector<int>& members) const;
  void on_gone(int host, const v1::Gone& gone);
  bool on_verdict(const Key& key, const v1::Control& control);
  bool on_start(const Key& key, const v1::Start& start);
  bool on_probe(int host, const v1::Probe& probe);
  void tell_rates();
  void to_others(const v1::Control& control);
  void note_gone(int rank, const Status& cause);
  Status host_lost(int host, const Status& why) const;

  WorldParts parts_;
  const Roster roster_;
  const std::vector<Host> hosts_;
  const int self_;  // This host in hosts_.
  const WorldOptions options_;
  Strategies job_strategies_;
  std::map<uint32_t, Communicator> groups_;
  std::map<std::vector<int>, std::map<int, uint32_t>> subgroup_counts_;  // List, job rank: asked.
  std::map<Key, Pending> pending_;
  std::map<Key, Status> failed_;  // For local ranks that have not arrived yet.
  std::set<int> gone_;            // Ranks of the job.
  std::vector<int> departures_;   // The same, in order.
  Status cause_;
  WorldStats stats_;

  OpClock op_clock_;
  RateMeter rates_;
  v1::Probe machine_;  // This one, as an answer says it.

  std::unique_ptr<Adviser> adviser_;      // Where leads().
  Matcher matcher_;                       // Used where leads().
  std::map<uint32_t, Communicator> led_;  // Where leads(): the groups of verdicts so far.
  Fuser fuser_;                           // Likewise.
  bool fusing_ = false;                   // What fuser_ holds is launched at the end of the turn.
  Loop::TimerId matcher_timer_ = 0;
  TimePoint matcher_wakes_{};  // Where matcher_timer_ is set.
  Outbox outbox_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Loop thread only.
  std::unique_ptr<Links> links_;
};

}  // namespace tutti
