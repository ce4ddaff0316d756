// The part of Worker that joins trainers: from their adoption to their welcome or refusal.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/base/status_message.h"
#include "daemon/base/threads.h"
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

// That the others have not joined may be the consequence of what refused one of them since this
// join began, at `began`.
void keep_failed_join(const Status& why, TimePoint began, v1::Failure& failed) {
  const int64_t now_ms = unix_time<Millis>();
  const int64_t began_ms = now_ms - std::chrono::ceil<Millis>(Clock::now() - began).count();
  const bool is_consequence = failed.has_status() && failed.time_ms() >= began_ms;
  if (why.code() == Code::deadline_exceeded && is_consequence) return;
  write_status(why, *failed.mutable_status());
  failed.set_time_ms(now_ms);
}

}  // namespace

void Worker::on_hand_over(const v1::AgentToWorker::HandOver& handed, Fd socket) {
  const v1::Hello& hello = handed.hello();
  ++handed_over_;
  report_soon();
  const int raw = socket.get();
  if (stopping_)
    return refuse_trainer(raw, aborted("the worker of job " + job_ + " is ending; join again"));
  if (!unreachable_.ok()) {
    refuse_trainer(raw, unreachable_);
    return on_stop();  // Anyone who joins again gets another worker, which may have more luck.
  }
  // The rank's last connection may have ended in this turn of the loop, but be handled after this.
  for (const auto& [number, served] : trainers_)
    if (served.rank == hello.rank() && !served.ended) served.trainer->poll_end();
  const auto first = find_joining(hello.rank());
  // A pid that is not visible from here may be that of several processes.
  if (first != trainers_.end() && first->second.pid == handed.pid() &&
      first->second.trainer->pid() != 0)
    cancel_join(first);  // It timed out and joins again.
  else if (first != trainers_.end())
    return refuse_trainer(
        raw, already_exists("rank " + std::to_string(hello.rank()) + " of job " + job_ +
                                " is joining already (host " + settings_.host + ", pid " +
                                std::to_string(first->second.pid) + ")",
                            {static_cast<int>(hello.rank()), settings_.host}));
  Result<std::unique_ptr<Trainer>> trainer = Trainer::open(loop_, std::move(socket), *this);
  if (!trainer.ok()) {
    spdlog::error("job {}: rank {} refused: {}", job_, hello.rank(), trainer.status().to_string());
    return;
  }
  loop_.cancel(idle_timer_);
  idle_timer_ = 0;
  world_size_ = hello.world_size();
  leave_broken_epoch(hello.rank());
  Served& served = trainers_[next_trainer_++];
  served.trainer = *std::move(trainer);
  served.rank = hello.rank();
  served.world_size = hello.world_size();
  served.pid = handed.pid();
  const auto timeout_ms = hello.timeout_ms() != 0
                              ? hello.timeout_ms()
                              : static_cast<uint32_t>(settings_.join_timeout_ms);
  pass_ = handed.pass();
  coordinator_->join({job_, hello.rank(), hello.world_size(), handed.pid(), timeout_ms, pass_});
}

// A rank that joins again after its epoch broke has left it, even if its old socket is still open
// and the coordinator does not know of the break yet.
void Worker::leave_broken_epoch(uint32_t rank) {
  for (const auto& [number, served] : trainers_) {
    const Epoch* epoch = find_epoch(served.epoch);
    if (served.rank == rank && epoch != nullptr && epoch->broken())
      coordinator_->report_gone(served.epoch, rank, {});
  }
}

void Worker::on_roster(const Roster& roster) {
  if (epochs_.contains(roster.epoch)) return;
  auto made = std::make_unique<JobEpoch>(settings_, gpu_memory_, [this] { watch_gpus(); });
  JobEpoch& epoch = *made;
  const Status shared = make_board(roster, epoch);
  epoch.set_group(make_epoch({loop_, *transport_, *engine_, epoch.local(), tuner_,
                              [this] { return gpu_memory_.gpus(); }, nccl_, nccl_failure_},
                             roster, settings_.host, epoch_options(settings_)));
  epochs_[roster.epoch] = std::move(made);
  link_watch_.start();
  strategy_ = roster.strategy;
  past_.clear_failed_join();
  link_router_->on_epoch_formed(roster.epoch);
  if (shared.ok()) recorders_[roster.epoch] = epoch.board()->recorder();
  if (recorders_.size() > kRecordersKept) recorders_.erase(recorders_.begin());
  report_soon();
  for (auto& [number, served] : trainers_)
    if (served.epoch == 0 && !served.ended && is_in(roster, served))
      shared.ok() ? welcome(served, epoch) : refuse_join(number, served, shared);
  bind_to_trainers_cores();
  report_missing(epoch.group(), shared);
}

void Worker::bind_to_trainers_cores() {
  if (settings_.worker_cores != "trainers") return;
  std::vector<pid_t> processes;
  for (const auto& [number, served] : trainers_)
    if (served.epoch != 0 && !served.ended) processes.push_back(served.trainer->pid());
  cores_.bind_to(processes);
}

// A rank that ended while joining has its entries on the board and no trainer.
Status Worker::make_board(const Roster& roster, JobEpoch& epoch) {
  HostRanks here{settings_.host, {}, static_cast<uint32_t>(roster.ranks.size())};
  std::vector<const Trainer*> trainers;
  for (uint32_t rank = 0; rank < here.world_size; ++rank) {
    if (roster.ranks[rank].host != settings_.host) continue;
    const auto joining = find_joining(rank);
    const bool present = joining != trainers_.end() && is_in(roster, joining->second);
    trainers.push_back(present ? joining->second.trainer.get() : nullptr);
    here.ranks.push_back({rank, static_cast<pid_t>(roster.ranks[rank].pid), !present});
  }
  const Result<uint64_t> segment_bytes = fit_segments_of(here.ranks, trainers);
  if (!segment_bytes.ok()) return segment_bytes.status();
  const uint64_t window_bytes = std::max(kWindowSlices * slice_bytes(settings_), kBoardBlockBytes);
  const auto ranks_fold = [this] { return do_ranks_fold(settings_, cores_.count()); };
  return epoch.make_board(loop_, here, {*segment_bytes, window_bytes, ranks_fold}, roster.epoch);
}

// Each of these ranks' processes, and this one, maps the segments of all.
Result<uint64_t> Worker::fit_segments_of(const std::vector<HostRanks::Rank>& ranks,
                                         std::span<const Trainer* const> trainers) const {
  std::map<pid_t, size_t> joins;
  for (const Trainer* trainer : trainers)
    if (trainer != nullptr) ++joins[trainer->pid()];
  std::vector<SegmentRoom> rooms = {own_segment_room()};
  for (size_t i = 0; i < ranks.size(); ++i)
    if (const pid_t process = trainers[i] == nullptr ? 0 : trainers[i]->pid(); process != 0)
      rooms.push_back(segment_room(
          process,
          "rank " + std::to_string(ranks[i].rank) + " (pid " + std::to_string(process) + ")",
          joins[process]));
  const Result<SegmentFit> fit =
      fit_segments(static_cast<uint64_t>(settings_.segment_bytes), ranks.size(), rooms);
  if (!fit.ok())
    return Status(fit.status().code(), "host " + settings_.host + ": " + fit.status().message(),
                  {-1, settings_.host});
  if (!fit->why.empty())
    spdlog::warn("job {}: segments of {} bytes in place of segment_bytes = {}: the limit of {}",
                 job_, fit->bytes, settings_.segment_bytes, fit->why);
  return fit->bytes;
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

bool Worker::is_in(const Roster& roster, const Served& served) const {
  if (served.world_size != roster.ranks.size() || served.rank >= roster.ranks.size())
    return false;  // It is joining another epoch.
  const RosterRank& member = roster.ranks[served.rank];
  return member.pid == served.pid && member.host == settings_.host;
}

void Worker::welcome(Served& served, const JobEpoch& epoch) {
  const Roster& roster = epoch.group().roster();
  served.epoch = roster.epoch;
  const Status welcomed =
      served.trainer->welcome(epoch.board(), served.rank, roster.epoch, host_names(roster));
  if (!welcomed.ok())  // on_end() follows.
    spdlog::warn("job {}: {}", job_, welcomed.to_string());
}

void Worker::refuse_join(uint64_t number, Served& served, const Status& why) {
  served.ended = true;
  keep_failed_join(why, served.at, *past_.mutable_failed_join());
  served.trainer->refuse(why);
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
