// The part of Worker that joins trainers: from their adoption to their welcome or refusal.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/worker/limits.h"
#include "daemon/worker/segment_fit.h"
#include "daemon/worker/worker.h"

namespace tutti {
namespace {

std::vector<std::string> host_names(const Roster& roster) {
  std::vector<std::string> names;
  for (const RosterRank& rank : roster.ranks) names.push_back(rank.host);
  return names;
}

}  // namespace

void Worker::on_adopt(const v1::AgentToWorker::Adopt& adopt, Fd socket) {
  const v1::Hello& hello = adopt.hello();
  ++adopted_;
  report_soon();
  const int raw = socket.get();
  if (stopping_)
    return refuse_trainer(raw, aborted("the worker of job " + job_ + " is ending; join again"));
  if (!unreachable_.ok()) {
    refuse_trainer(raw, unreachable_);
    return on_stop();  // Anyone who joins again gets another worker, which may have more luck.
  }
  // The rank's last connection may have ended in this turn of the loop, but be handled after this.
  for (const auto& [number, trainer] : trainers_)
    if (trainer.rank == hello.rank() && !trainer.ended) trainer.session->poll_end();
  const auto first = find_joining(hello.rank());
  // A pid that is not visible from here may be that of several processes.
  if (first != trainers_.end() && first->second.pid == adopt.pid() &&
      first->second.session->pid() != 0)
    cancel_join(first);  // It timed out and joins again.
  else if (first != trainers_.end())
    return refuse_trainer(
        raw, already_exists("rank " + std::to_string(hello.rank()) + " of job " + job_ +
                                " is joining already (host " + settings_.host + ", pid " +
                                std::to_string(first->second.pid) + ")",
                            {static_cast<int>(hello.rank()), settings_.host}));
  Result<std::unique_ptr<Session>> session =
      open_session(loop_, socket, static_cast<uint64_t>(settings_.segment_bytes), *this,
                   static_cast<pid_t>(adopt.pid()));
  if (!session.ok()) {
    spdlog::error("job {}: rank {} not adopted: {}", job_, hello.rank(),
                  session.status().to_string());
    if (socket.valid())
      refuse_trainer(socket.get(), session.status());  // Else the trainer is gone.
    return;
  }
  loop_.cancel(idle_timer_);
  idle_timer_ = 0;
  world_size_ = hello.world_size();
  leave_broken_epoch(hello.rank());
  Trainer trainer;
  trainer.session = *std::move(session);
  trainer.rank = hello.rank();
  trainer.world_size = hello.world_size();
  trainer.pid = adopt.pid();
  trainers_.emplace(next_trainer_++, std::move(trainer));
  const auto timeout_ms = hello.timeout_ms() != 0
                              ? hello.timeout_ms()
                              : static_cast<uint32_t>(settings_.join_timeout_ms);
  pass_ = adopt.pass();
  coordinator_->join({job_, hello.rank(), hello.world_size(), adopt.pid(), timeout_ms, pass_});
}

// A rank that joins again after its epoch broke has left it, even if its old socket is still open
// and the coordinator does not know of the break yet.
void Worker::leave_broken_epoch(uint32_t rank) {
  for (const auto& [number, trainer] : trainers_) {
    const auto epoch = epochs_.find(trainer.epoch);
    if (trainer.rank == rank && epoch != epochs_.end() && epoch->second->broken())
      coordinator_->report_gone(trainer.epoch, rank, {});
  }
}

void Worker::on_roster(const Roster& roster) {
  std::unique_ptr<Epoch>& epoch = epochs_[roster.epoch];
  if (epoch != nullptr) return;
  const auto let_ranks_fold = [this, of = roster.epoch](uint32_t group, uint64_t number) {
    Session* any = session_of(of);
    return any != nullptr && any->let_ranks_fold(group, number);
  };
  const auto release_window = [this, of = roster.epoch](uint32_t group, uint64_t number,
                                                        uint64_t bytes) {
    if (Session* any = session_of(of); any != nullptr) any->release_window(group, number, bytes);
  };
  const auto collect_requests = [this, of = roster.epoch](uint32_t group, uint64_t number) {
    if (Session* any = session_of(of); any != nullptr) any->collect_requests(group, number);
  };
  const auto on_over = [this](const Status&) { update_ranks_decide(); };
  const auto on_started = [this, of = roster.epoch](uint32_t group, uint64_t number,
                                                    const Signature& signature,
                                                    const Strategies& strategies) {
    if (const auto found = recorders_.find(of); found != recorders_.end())
      found->second->on_started(group, number, signature, strategies);
  };
  const auto on_ended = [this, of = roster.epoch](uint32_t group, uint64_t number, Code code) {
    if (const auto found = recorders_.find(of); found != recorders_.end())
      found->second->on_ended(group, number, code);
  };
  epoch = make_epoch(
      {loop_, *transport_, *engine_, tuner_, let_ranks_fold, release_window, collect_requests,
       on_over, on_started, on_ended, [this] { return gpu_memory_.gpus(); }, nccl_, nccl_failure_},
      roster, settings_.host, epoch_options(settings_));
  strategy_ = roster.strategy;
  link_router_->on_epoch_formed(roster.epoch);
  const Result<std::shared_ptr<HostRecorder>> recorder = create_board(roster);
  const Status& shared = recorder.status();
  if (recorder.ok()) keep_recorder(roster.epoch, *recorder);
  update_ranks_decide();
  for (auto& [number, trainer] : trainers_)
    if (trainer.epoch == 0 && !trainer.ended && is_in(roster, trainer))
      shared.ok() ? welcome(trainer, *epoch) : refuse_join(number, trainer, shared);
  bind_to_trainers_cores();
  report_missing(*epoch, shared);
}

void Worker::bind_to_trainers_cores() {
  if (settings_.worker_cores != "trainers") return;
  std::vector<pid_t> processes;
  for (const auto& [number, trainer] : trainers_)
    if (trainer.epoch != 0 && !trainer.ended) processes.push_back(trainer.session->pid());
  cores_.bind_to(processes);
}

// A rank that ended while joining has a seat on the board and no session.
Result<std::shared_ptr<HostRecorder>> Worker::create_board(const Roster& roster) {
  std::vector<Session*> sessions;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < roster.ranks.size(); ++rank) {
    if (roster.ranks[rank].host != settings_.host) continue;
    const auto here = find_joining(rank);
    const bool present = here != trainers_.end() && is_in(roster, here->second);
    sessions.push_back(present ? here->second.session.get() : nullptr);
    ranks.push_back(rank);
  }
  if (Status fitted = fit_segments_of(sessions, ranks); !fitted.ok()) return fitted;
  const uint64_t window_bytes = std::max(kWindowSlices * slice_bytes(settings_), kBoardBlockBytes);
  return tutti::create_board(loop_, sessions, ranks, static_cast<uint32_t>(roster.ranks.size()),
                             window_bytes, roster.epoch);
}

// Each of these ranks' processes, and this one, maps the segments of all.
Status Worker::fit_segments_of(std::span<Session* const> sessions,
                               std::span<const uint32_t> ranks) const {
  std::map<pid_t, size_t> joins;
  for (const Session* session : sessions)
    if (session != nullptr) ++joins[session->pid()];
  std::vector<SegmentRoom> rooms = {own_segment_room()};
  for (size_t i = 0; i < ranks.size(); ++i)
    if (const pid_t process = sessions[i] == nullptr ? 0 : sessions[i]->pid(); process != 0)
      rooms.push_back(segment_room(
          process, "rank " + std::to_string(ranks[i]) + " (pid " + std::to_string(process) + ")",
          joins[process]));
  const Result<SegmentFit> fit =
      fit_segments(static_cast<uint64_t>(settings_.segment_bytes), ranks.size(), rooms);
  if (!fit.ok())
    return {fit.status().code(),
            "host " + settings_.host + ": " + fit.status().message(),
            {-1, settings_.host}};
  if (!fit->why.empty())
    spdlog::warn("job {}: segments of {} bytes in place of segment_bytes = {}: the limit of {}",
                 job_, fit->bytes, settings_.segment_bytes, fit->why);
  for (Session* session : sessions)
    if (session != nullptr) session->set_segment_bytes(fit->bytes);
  return {};
}

void Worker::keep_recorder(uint32_t epoch, const std::shared_ptr<HostRecorder>& recorder) {
  recorders_[epoch] = recorder;
  if (recorders_.size() > kRecordersKept) recorders_.erase(recorders_.begin());
  report_soon();
}

// In a failed epoch the worker decides how operations end, not the ranks.
void Worker::update_ranks_decide() {
  for (const auto& [number, trainer] : trainers_) {
    const auto epoch = epochs_.find(trainer.epoch);
    const bool failed = epoch != epochs_.end() && !epoch->second->cause().ok();
    trainer.session->set_ranks_decide(!failed);
  }
}

// Reports ranks of the roster without a trainer here: it died, timed out or was refused while
// joining.
void Worker::report_missing(Epoch& epoch, const Status& shared) {
  const Roster& roster = epoch.roster();
  for (int rank = 0; rank < static_cast<int>(roster.ranks.size()); ++rank) {
    if (roster.ranks[rank].host != settings_.host) continue;
    const bool here = std::ranges::any_of(trainers_, [&](const auto& entry) {
      return entry.second.epoch == roster.epoch && entry.second.rank == static_cast<uint32_t>(rank);
    });
    if (here) continue;
    const Status cause =
        shared.ok() ? unavailable(describe_rank(roster, rank) + " died, or gave up, while joining")
                    : shared;
    coordinator_->report_gone(roster.epoch, static_cast<uint32_t>(rank), cause);
    epoch.leave(rank, cause);
  }
}

bool Worker::is_in(const Roster& roster, const Trainer& trainer) const {
  if (trainer.world_size != roster.ranks.size() || trainer.rank >= roster.ranks.size())
    return false;  // It is joining another epoch.
  const RosterRank& member = roster.ranks[trainer.rank];
  return member.pid == trainer.pid && member.host == settings_.host;
}

void Worker::welcome(Trainer& trainer, Epoch& epoch) {
  const Roster& roster = epoch.roster();
  trainer.epoch = roster.epoch;
  const Status welcomed = trainer.session->welcome(roster.epoch, host_names(roster));
  if (!welcomed.ok())  // on_end() follows.
    spdlog::warn("job {}: {}", job_, welcomed.to_string());
}

void Worker::refuse_join(uint64_t number, Trainer& trainer, const Status& why) {
  trainer.ended = true;
  trainer.session->refuse(why);
  loop_.post([this, number] { erase_trainer(number); });
}

// Returns the trainer that is joining as this rank, of which there is at most one, or end().
Worker::Trainers::iterator Worker::find_joining(uint32_t rank) {
  return std::ranges::find_if(trainers_, [&](const auto& entry) {
    return entry.second.epoch == 0 && entry.second.rank == rank && !entry.second.ended;
  });
}

void Worker::cancel_join(Trainers::iterator trainer) {
  trainer->second.ended = true;
  coordinator_->report_gone(0, trainer->second.rank, {});
  loop_.post([this, number = trainer->first] { erase_trainer(number); });
}

void Worker::on_refused(uint32_t rank, Status why) {
  const auto found = find_joining(rank);
  if (found == trainers_.end()) return;
  refuse_join(found->first, found->second, why);
}

}  // namespace tutti
