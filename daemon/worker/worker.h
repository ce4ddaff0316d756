// The composition root of one job's data plane on one node: builds the rooms, joins them, stops
// them.
//
// A trainer's socket comes from the agent. Its rank is announced to the coordinator; when the
// roster comes, the epoch's Epoch is made and its local trainers are welcomed. From then on
// requests go session -> epoch -> engine -> session. Everything runs on the loop's thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/device/device.h"
#include "daemon/engine/engine.h"
#include "daemon/group/group.h"
#include "daemon/mesh/mesh.h"
#include "daemon/session/session.h"
#include "daemon/transport/transport.h"
#include "daemon/worker/agent_channel.h"
#include "daemon/worker/cores.h"
#include "daemon/worker/link_router.h"
#include "proto/session.pb.h"

namespace tutti {

class Worker final : public Session::Events,
                     public CoordinatorClient::Events,
                     public Wire,
                     public AgentChannel::Events,
                     public LinkRouter::Events {
 public:
  // `owner`: the user whose job it is, which need not be the user this process runs as.
  Worker(Loop& loop, const Settings& settings, const std::string& job, uint32_t owner);
  ~Worker() override;

  // `control`: a listening SEQPACKET socket that the agent connects to.
  Status start(Fd control);
  // Ends the epochs by name, and the loop soon after. Idempotent.
  void on_stop() override;

 private:
  // A trainer between its adoption and its end. Epoch 0: still joining.
  struct Trainer {
    std::unique_ptr<Session> session;
    uint32_t rank = 0;
    uint32_t world_size = 0;
    uint32_t pid = 0;
    uint32_t epoch = 0;
    bool ended = false;  // Dead, gone or refused: soon to be forgotten.
  };
  using Trainers = std::map<uint64_t, Trainer>;  // By a number of our own.

  // From the agent.
  void on_adopt(const v1::AgentToWorker::Adopt& adopt, Fd socket) override;
  v1::WorkerReport on_report() override;

  // From trainers.
  void on_request(Session& session, Call call) override;
  void on_window_filled(Session& session, uint32_t group, uint64_t number) override;
  void on_subgroup_request(Session& session, std::vector<uint32_t> ranks) override;
  void on_end(Session& session, bool leaving, Status why) override;
  void on_stuck(Session& session, Status why) override;

  // From the coordinator.
  void on_roster(const Roster& roster) override;
  void on_refused(uint32_t rank, Status why) override;
  void on_aborted(uint32_t epoch, Status cause) override;
  void on_strategy(const std::string& strategy) override;

  // From other workers, and the engine's way to them.
  Epoch* find_epoch(uint32_t epoch) override;
  Status send(const OpKey& key, int place, Outgoing frame) override;

  Trainers::iterator trainer_of(const Session& session);
  void free_place(uint32_t rank);
  Trainers::iterator joining(uint32_t rank);
  void withdraw(Trainers::iterator trainer);
  void follow_trainers();
  Micros patience() const;
  // `shared`: of the board; not OK: nobody here was welcomed.
  void report_missing(Epoch& epoch, const Status& shared);
  Status share_board(const Roster& roster);
  void gather(uint32_t epoch, uint32_t group, uint64_t number);
  bool fold(uint32_t epoch, uint32_t group, uint64_t number);
  void let_ranks_decide();
  bool is_in(const Roster& roster, const Trainer& trainer) const;
  void welcome(Trainer& trainer, Epoch& epoch);
  void turn_away(uint64_t number, Trainer& trainer, const Status& why);
  Session* session_of(uint32_t epoch);
  void forget(uint64_t number);
  void drop_finished_epochs();
  void keep_departures(const Epoch& epoch);
  void rest_if_idle();
  void end_if_idle();
  std::string state() const;
  bool leads() const;

  Loop& loop_;
  const Settings settings_;
  const std::string job_;
  const uint32_t owner_;
  Cores cores_;
  // Held by each blocking call of a rank until it ends.
  const std::shared_ptr<const bool> waited_for_ = std::make_shared<const bool>();
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LinkRouter> link_router_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<AgentChannel> agent_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::shared_ptr<Tuner> tuner_;                       // Of all epochs.
  std::map<uint32_t, std::unique_ptr<Epoch>> epochs_;  // By epoch.
  Trainers trainers_;
  uint64_t next_trainer_ = 1;
  uint32_t world_size_ = 0;
  std::string strategy_;
  EpochStats ended_;           // Of epochs that are no more.
  v1::Departures departures_;  // Of the newest epoch that was looked at.
  Loop::TimerId idle_timer_ = 0;
  bool stopping_ = false;
};

}  // namespace tutti
