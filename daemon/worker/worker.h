// The data plane of one job on one node: creates, connects and stops trainers, epochs, the engine,
// links and the coordinator's client.
//
// The agent hands over a trainer's socket; the worker announces its rank to the coordinator. When
// the roster arrives, it makes the board of the ranks here and the epoch among the hosts, and
// welcomes its trainers. From then on requests go board -> epoch -> engine -> epoch -> board.
// Everything runs on the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/control/coordinator_client.h"
#include "daemon/device/device.h"
#include "daemon/engine/engine.h"
#include "daemon/group/group.h"
#include "daemon/nccl/nccl.h"
#include "daemon/session/session.h"
#include "daemon/transport/transport.h"
#include "daemon/worker/agent_channel.h"
#include "daemon/worker/cores.h"
#include "daemon/worker/gpu_memory.h"
#include "daemon/worker/job_epoch.h"
#include "daemon/worker/link_router.h"
#include "daemon/worker/link_watch.h"
#include "proto/mesh.pb.h"
#include "proto/session.pb.h"

namespace tutti {

class Worker final : public Trainer::Events,
                     public CoordinatorClient::Events,
                     public AgentChannel::Events,
                     public LinkRouter::Events {
 public:
  // `owner` is the user who owns the job, who may differ from the user of this process.
  Worker(Loop& loop, const Settings& settings, const std::string& job, uint32_t owner);
  ~Worker() override;

  // `control`: a listening SEQPACKET socket that the agent connects to.
  Status start(Fd control);
  // Fails all epochs, naming this worker or who stopped it, and stops the loop soon after.
  // Idempotent.
  void on_stop(const std::string& by = "") override;
  // Ends everything, once the loop has stopped. False: a GPU has failed or hangs, and the process
  // must end by _Exit(), because the driver's own end might wait for it.
  bool close();

 private:
  // A trainer, from when the agent hands it over to its end.
  struct Served {
    std::unique_ptr<Trainer> trainer;
    uint32_t rank = 0;
    uint32_t world_size = 0;
    uint32_t pid = 0;
    uint32_t epoch = 0;  // 0: it is joining.
    bool ended = false;  // Dead, left or refused; about to be erased.
    TimePoint at = Clock::now();
  };
  using Trainers = std::map<uint64_t, Served>;  // By a serial number.
  static constexpr size_t kRecordersKept = 2;
  // For the last frames and answers to be sent.
  static constexpr Millis kShutdownGrace{200};

  // From the agent.
  void on_hand_over(const v1::AgentToWorker::HandOver& handed, Fd socket) override;
  v1::WorkerReport on_report() override;
  std::vector<AgentChannel::Recorder> recorders() const override;
  void on_failed_gpus(const v1::AgentToWorker::FailedGpus& failed) override;
  void on_coordinator(const v1::AgentToWorker::Coordinator& coordinator) override;

  // From trainers.
  void on_end(Trainer& trainer, bool leaving, Status why) override;

  // From the coordinator.
  void on_roster(const Roster& roster) override;
  void on_refused(uint32_t rank, Status why) override;
  void on_aborted(uint32_t epoch, Status cause) override;
  void on_strategy(const std::string& strategy) override;

  // From other workers.
  const std::string* secret_of(uint32_t epoch) const override;
  void add_link(uint32_t epoch, const std::string& host, std::shared_ptr<Link> link,
                std::shared_ptr<LoopHandler> handler) override;

  void watch_gpus();
  void on_gpu_fault();
  void refuse_joining(const Status& why);
  void leave_broken_epoch(uint32_t rank);
  Trainers::iterator find_joining(uint32_t rank);
  void cancel_join(Trainers::iterator trainer);
  void bind_to_trainers_cores();
  Micros stay_awake_time() const;
  // `shared` is make_board()'s result; if it is not OK, no trainer here was welcomed.
  void report_missing(Epoch& epoch, const Status& shared);
  Status make_board(const Roster& roster, JobEpoch& epoch);
  // As large as these ranks' processes can map. `trainers`: theirs, or null.
  Result<uint64_t> fit_segments_of(const std::vector<HostRanks::Rank>& ranks,
                                   std::span<const Trainer* const> trainers) const;
  bool is_in(const Roster& roster, const Served& served) const;
  void welcome(Served& served, const JobEpoch& epoch);
  void refuse_join(uint64_t number, Served& served, const Status& why);
  Epoch* find_epoch(uint32_t epoch) const;
  void erase_trainer(uint64_t number);
  // Tells the agent of trainers that came or went, once for those of one turn of the loop.
  void report_soon();
  void drop_finished_epochs();
  void keep_past(const JobEpoch& epoch);
  void start_idle_timer();
  void on_idle_timeout();
  std::string state() const;
  uint64_t joining_ms() const;

  Loop& loop_;
  const Settings settings_;
  const std::string job_;
  const uint32_t owner_;
  Cores cores_;
  std::unique_ptr<Device> device_;
  const std::shared_ptr<GpuFault> gpu_fault_;
  Loop::TimerId gpu_timer_ = 0;
  const std::shared_ptr<const nccl::CommunicatorParts> nccl_;
  const std::shared_ptr<Status> nccl_failure_ = std::make_shared<Status>();
  const std::function<void(std::function<void()>)> post_;  // Any thread.
  GpuMemory gpu_memory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LinkRouter> link_router_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<AgentChannel> agent_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::shared_ptr<Tuner> tuner_;  // Shared by all epochs.
  // By epoch, those of the newest: the agent is notified of them, and so is the next one.
  std::map<uint32_t, std::shared_ptr<HostRecorder>> recorders_;
  std::map<uint32_t, std::unique_ptr<JobEpoch>> epochs_;  // By epoch.
  LinkWatch link_watch_{
      loop_, [this] {
        const Epoch* newest = epochs_.empty() ? nullptr : &epochs_.rbegin()->second->group();
        return newest == nullptr ? std::vector<LinkCounts>() : newest->stats().links;
      }};
  Trainers trainers_;
  uint64_t next_trainer_ = 1;
  uint64_t handed_over_ = 0;
  bool reporting_ = false;  // A report is about to be sent.
  uint32_t world_size_ = 0;
  v1::Pass pass_;  // The newest from the agent.
  std::string strategy_;
  RankCounters ended_ranks_;  // Of trainers that are gone.
  EpochStats ended_epochs_;   // Of epochs that were dropped.
  FoldSharing::Counts ended_folds_;
  v1::WorkerReport past_;  // What it says of departures and failures; nothing else.
  const int64_t started_ms_ = unix_time<Millis>();
  uint64_t ranks_died_ = 0;  // Trainers that ended without leaving.
  Loop::TimerId idle_timer_ = 0;
  bool stopping_ = false;
  Status unreachable_;  // Why the job's other workers cannot reach this one; joins fail with it.
};

}  // namespace tutti
