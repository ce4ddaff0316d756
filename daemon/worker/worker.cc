#include "daemon/worker/worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/base/status_message.h"
#include "daemon/base/text.h"
#include "daemon/worker/data_port.h"
#include "daemon/worker/limits.h"
#include "daemon/worker/tuning_report.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr size_t kDeparturesMax = 1024;  // A report must fit a packet.
constexpr size_t kCausesMax = 16;
// How long communicators of NCCL may end after the loop has.
constexpr Millis kNcclEndTime{2'000};

void add(RankCounters& sum, const RankCounters& more) {
  sum.operations += more.operations;
  sum.failures += more.failures;
  sum.bytes += more.bytes;
}

void add(EpochStats& sum, const EpochStats& more) {
  sum.sent_bytes += more.sent_bytes;
  sum.sent_frames += more.sent_frames;
  sum.received_bytes += more.received_bytes;
}

void add(FoldSharing::Counts& sum, const FoldSharing::Counts& more) {
  sum.by_ranks += more.by_ranks;
  sum.by_worker += more.by_worker;
}

v1::Departure departure_of(const Roster& roster, const Departure& departed) {
  v1::Departure out;
  const RosterRank& rank = roster.ranks[static_cast<size_t>(departed.rank)];
  out.set_rank(static_cast<uint32_t>(departed.rank));
  out.set_host(rank.host);
  out.set_pid(rank.pid);
  write_status(departed.cause, *out.mutable_cause());
  const auto ago = std::chrono::floor<Millis>(Clock::now() - departed.at);
  out.set_time_ms(unix_time<Millis>() - ago.count());
  return out;
}

// Adds what is new since `departures` were taken.
void update(const Epoch& epoch, v1::Departures& departures) {
  if (departures.epoch() != epoch.roster().epoch) departures.Clear();
  departures.set_epoch(epoch.roster().epoch);
  const std::vector<Departure>& all = epoch.departures();
  for (size_t i = departures.ranks_size(); i < std::min(all.size(), kDeparturesMax); ++i) {
    departures.add_ranks(static_cast<uint32_t>(all[i].rank));
    if (i < kCausesMax) *departures.add_first() = departure_of(epoch.roster(), all[i]);
  }
  if (!epoch.cause().ok()) write_status(epoch.cause(), *departures.mutable_cause());
}

}  // namespace

Worker::Worker(Loop& loop, const Settings& settings, const std::string& job, uint32_t owner)
    : loop_(loop),
      settings_(settings),
      job_(job),
      owner_(owner),
      device_(make_host_device()),
      gpu_fault_(
          std::make_shared<GpuFault>("the worker of job " + job + " on host " + settings.host,
                                     [this] { loop_.post([this] { on_gpu_fault(); }); })),
      nccl_(std::make_shared<nccl::CommunicatorParts>(nccl::CommunicatorParts{
          .loop = loop,
          .library = settings.nccl_library,
          .timeout = Millis(settings.nccl_timeout_ms),
          .on_hang = [fault = gpu_fault_](const std::string& what) { fault->set(what); }})),
      post_([&loop](std::function<void()> task) { loop.post(std::move(task)); }),
      gpu_memory_(settings_, gpu_fault_, post_) {
  engine_ = make_engine(*device_, engine_limits(settings_), post_);
  tuner_ = std::make_shared<Tuner>(pipeline(settings_));
  link_router_ = std::make_unique<LinkRouter>(loop_, job_, Millis(settings_.connect_timeout_ms),
                                              static_cast<size_t>(settings_.parked_links), *this);
  loop_.stay_awake([this] { return stay_awake_time(); });
  transport_ =
      make_network_transport(loop_, settings_.transport, link_limits(settings_, cores_.count()));
}

Worker::~Worker() {
  gpu_fault_->tell_nobody();  // A thread that opens a GPU may outlive this.
  loop_.cancel(idle_timer_);
  loop_.cancel(gpu_timer_);
  trainers_.clear();
  epochs_.clear();
  coordinator_.reset();
  transport_.reset();
}

bool Worker::close() {
  if (gpu_fault_->is_set()) return false;
  // Whatever would use the engine, while the loop runs below.
  loop_.cancel(std::exchange(idle_timer_, 0));
  loop_.cancel(std::exchange(gpu_timer_, 0));
  trainers_.clear();
  epochs_.clear();
  coordinator_.reset();
  agent_.reset();
  engine_.reset();
  const auto ends = [this] { return *nccl_->running != 0 && !gpu_fault_->is_set(); };
  const TimePoint limit = Clock::now() + kNcclEndTime;
  while (ends() && Clock::now() < limit) loop_.run_once(Clock::now() + Millis(1));
  const bool closed = *nccl_->running == 0 && gpu_memory_.close();
  if (!closed) spdlog::warn("job {}: work on GPUs does not end; the worker does not wait", job_);
  return closed;
}

Status Worker::start(Fd control) {
  agent_ = std::make_unique<AgentChannel>(loop_, std::move(control), *this);
  start_idle_timer();
  const Result<std::string> address =
      listen_for_peers(*transport_, settings_, link_router_->acceptor());
  unreachable_ = address.status();
  if (!address.ok()) {  // The trainer that is about to come is notified.
    spdlog::error("job {}: {}", job_, address.status().message());
    return agent_->start();
  }
  // The agent's certificates without their key, which the job's user may not read.
  Result<Tls> tls =
      settings_.tls == "require" ? open_client_tls(settings_.run_dir + "/tls") : Result<Tls>(Tls());
  if (!tls.ok()) return tls.status();
  coordinator_ = connect_coordinator(
      loop_, {settings_.coordinator, job_, settings_.host, *address, *tls}, *this);
  spdlog::info("job {}: worker of host {} at {}", job_, settings_.host, *address);
  return agent_->start();
}

// ---- From the agent ----

v1::WorkerReport Worker::on_report() {
  for (const auto& [number, epoch] : epochs_) keep_past(*epoch);
  v1::WorkerReport report = past_;
  report.set_job(job_);
  report.set_pid(static_cast<uint32_t>(getpid()));
  report.set_uid(owner_);
  report.set_world_size(world_size_);
  report.set_epoch(epochs_.empty() ? 0 : epochs_.rbegin()->first);
  report.set_strategy(strategy_.empty() ? "auto" : strategy_);
  report.set_state(state());
  *report.mutable_pass() = pass_;
  RankCounters counters = ended_ranks_;
  uint64_t staging_bytes = 0;
  uint64_t memory_bytes = 0;
  for (const auto& [epoch, recorder] : recorders_)
    memory_bytes += trace::touched_bytes(recorder->descriptor());
  for (const auto& [number, served] : trainers_) {
    v1::RankReport& rank = *report.add_ranks();
    rank.set_rank(served.rank);
    rank.set_pid(served.pid);
    rank.set_epoch(served.epoch);
    if (served.epoch == 0) continue;
    const HostBoard& board = *epochs_.at(served.epoch)->board();
    memory_bytes += board.memory_bytes(served.rank);
    const RankCounters own = board.counters(served.rank);
    rank.set_operations(own.operations);
    rank.set_bytes(own.bytes);
    add(counters, own);
  }
  report.set_operations(counters.operations);
  report.set_failures(counters.failures);
  report.set_bytes(counters.bytes);
  for (const auto& [number, epoch] : epochs_) staging_bytes += epoch->staging_bytes();
  report.set_gpu_staging_bytes(staging_bytes);
  report.set_memory_bytes(memory_bytes);
  report.set_handed_over(handed_over_);
  report.set_joining_ms(joining_ms());
  const Epoch* newest = epochs_.empty() ? nullptr : &epochs_.rbegin()->second->group();
  const GpuLinkState link = newest == nullptr ? GpuLinkState() : newest->gpu_link();
  report.set_gpu_link(link.name);
  report.set_gpu_link_why(link.why);
  EpochStats stats = ended_epochs_;
  FoldSharing::Counts folded = ended_folds_;
  for (const auto& [number, epoch] : epochs_) {
    add(stats, epoch->group().stats());
    add(folded, epoch->fold_counts());
  }
  report.set_folded_by_ranks_bytes(folded.by_ranks);
  report.set_folded_by_worker_bytes(folded.by_worker + engine_->folded_bytes());
  report.set_sent_bytes(stats.sent_bytes);
  report.set_sent_frames(stats.sent_frames);
  report.set_received_bytes(stats.received_bytes);
  report.set_ranks_died(ranks_died_);
  report.set_started_ms(started_ms_);
  if (newest != nullptr && newest->roster().ranks.front().host == settings_.host)  // The leader's.
    *report.mutable_tuning() = tuning_report(*tuner_);
  for (v1::LinkPace& pace : link_watch_.paces()) *report.add_links() = std::move(pace);
  return report;
}

// How long the first rank that is joining has waited, at least 1; 0: none is.
uint64_t Worker::joining_ms() const {
  int64_t longest = 0;
  for (const auto& [number, served] : trainers_) {
    const auto waited = std::chrono::ceil<Millis>(Clock::now() - served.at).count();
    if (served.epoch == 0 && !served.ended) longest = std::max<int64_t>({longest, waited, 1});
  }
  return static_cast<uint64_t>(longest);
}

std::vector<AgentChannel::Recorder> Worker::recorders() const {
  std::vector<AgentChannel::Recorder> all;
  for (const auto& [epoch, recorder] : recorders_) all.push_back({epoch, recorder->descriptor()});
  return all;
}

std::string Worker::state() const {
  if (epochs_.empty()) {
    const auto joins = [](const auto& other) { return other.second.epoch == 0; };
    const bool ended = past_.departures().epoch() != 0 && std::ranges::none_of(trainers_, joins);
    return ended ? "ended" : "joining";
  }
  const Epoch& newest = epochs_.rbegin()->second->group();
  if (!newest.cause().ok()) return "failed: " + newest.cause().message();
  return newest.all_ranks_left() ? "ended" : "running";
}

void Worker::on_stop(const std::string& by) {
  if (stopping_) return;
  stopping_ = true;
  const std::string what = by.empty() ? "the worker of host " + settings_.host + " was stopped"
                                      : "job \"" + job_ + "\" was stopped by " + printable(by);
  for (auto& [number, epoch] : epochs_)
    epoch->group().abort(
        unavailable(what + "; join again to form a new group", {-1, settings_.host}));
  if (!by.empty()) refuse_joining(unavailable(what));  // Else they join again, with another worker.
  loop_.at(Clock::now() + kShutdownGrace, [this] { loop_.stop(); });
}

// ---- From trainers ----

// A rank that sleeps leaves its core to this worker; one that computes needs it.
Micros Worker::stay_awake_time() const {
  const bool waited_for =
      std::ranges::any_of(epochs_, [](const auto& epoch) { return epoch.second->is_waited_for(); });
  return Micros(waited_for || cores_.exceed(trainers_.size()) ? settings_.stay_awake_us : 0);
}

Epoch* Worker::find_epoch(uint32_t epoch) const {
  const auto found = epochs_.find(epoch);
  return found == epochs_.end() ? nullptr : &found->second->group();
}

void Worker::on_end(Trainer& trainer, bool leaving, Status why) {
  const auto found = std::ranges::find_if(
      trainers_, [&](const auto& entry) { return entry.second.trainer.get() == &trainer; });
  require(found != trainers_.end(), "an event comes from a trainer that is served");
  Served& served = found->second;
  if (std::exchange(served.ended, true)) return;  // Refused: its rank may be joining again.
  const Status cause = leaving ? Status() : why;
  if (!leaving) ++ranks_died_;
  coordinator_->report_gone(served.epoch, served.rank, cause);
  if (Epoch* epoch = find_epoch(served.epoch)) epoch->leave(static_cast<int>(served.rank), cause);
  loop_.post([this, number = found->first] { erase_trainer(number); });
}

void Worker::erase_trainer(uint64_t number) {
  const auto found = trainers_.find(number);
  if (found != trainers_.end() && found->second.epoch != 0) {
    JobEpoch& epoch = *epochs_.at(found->second.epoch);
    add(ended_ranks_, epoch.board()->counters(found->second.rank));
    epoch.forget(found->second.rank);
  }
  trainers_.erase(number);
  report_soon();
  drop_finished_epochs();
  start_idle_timer();
}

void Worker::report_soon() {
  if (std::exchange(reporting_, true)) return;
  loop_.post([this] {
    reporting_ = false;
    if (agent_ != nullptr) agent_->send_report();
  });
}

// Erases epochs without local trainers if all their ranks are gone, or if they failed and are not
// the newest, whose last messages may still be on their way to other hosts.
void Worker::drop_finished_epochs() {
  std::erase_if(epochs_, [&](const auto& entry) {
    const auto& [number, epoch] = entry;
    const bool used = std::ranges::any_of(trainers_, [&, number = number](const auto& other) {
      return other.second.epoch == number;
    });
    const bool old = number != epochs_.rbegin()->first;
    const Epoch& group = epoch->group();
    const bool finished = !used && (group.all_ranks_left() || (old && !group.cause().ok()));
    if (finished) add(ended_epochs_, group.stats());
    if (finished) add(ended_folds_, epoch->fold_counts());
    if (finished) keep_past(*epoch);
    return finished;
  });
}

void Worker::keep_past(const JobEpoch& epoch) {
  const uint32_t number = epoch.group().roster().epoch;
  if (number < past_.departures().epoch()) return;
  update(epoch.group(), *past_.mutable_departures());
  if (epoch.board() == nullptr) return;
  const FailedOperation& failed = epoch.board()->recorder()->failure();
  if (failed.status.ok()) return;
  v1::Failure& failure = *past_.mutable_failure();
  write_status(failed.status, *failure.mutable_status());
  failure.set_epoch(number);
  failure.set_time_ms(failed.time_ms);
}

// The first trainer is on its way while the worker starts.
void Worker::start_idle_timer() {
  if (stopping_ || !trainers_.empty() || idle_timer_ != 0) return;
  const bool had_trainers = next_trainer_ != 1;
  const int64_t least_ms = had_trainers ? 0 : settings_.hello_timeout_ms;
  const Millis idle(std::max(settings_.worker_idle_ms, least_ms));
  idle_timer_ = loop_.at(Clock::now() + idle, [this] { on_idle_timeout(); });
}

// A trainer handed over just now gets ABORTED, and its client joins again through the agent.
void Worker::on_idle_timeout() {
  idle_timer_ = 0;
  if (!trainers_.empty()) return;
  const bool needed = std::ranges::any_of(
      epochs_, [](const auto& entry) { return entry.second->group().needed(); });
  if (needed) return start_idle_timer();
  stopping_ = true;
  agent_->send_report();  // What the agent remembers of the job.
  agent_->close();
  spdlog::info("job {}: no trainers left; the worker ends", job_);
  loop_.stop();
}

void Worker::on_coordinator(const v1::AgentToWorker::Coordinator& coordinator) {
  if (coordinator_ != nullptr)
    coordinator_->set_coordinator(coordinator.address(), coordinator.obstacle());
}

// ---- From the coordinator ----

// Called if a worker is gone. The leader reports deaths of trainers, in the order of operations.
void Worker::on_aborted(uint32_t number, Status cause) {
  if (Epoch* epoch = find_epoch(number)) epoch->abort(cause);
}

void Worker::on_strategy(const std::string& strategy) {
  const Result<Strategies> parsed = parse_strategies(strategy);
  if (!parsed.ok()) return;
  strategy_ = strategy;
  spdlog::info("job {}: strategy {}", job_, strategy);
  for (auto& [number, epoch] : epochs_) epoch->group().set_strategy(*parsed);
}

// ---- Between workers ----

const std::string* Worker::secret_of(uint32_t epoch) const {
  const Epoch* found = find_epoch(epoch);
  return found == nullptr ? nullptr : &found->roster().secret;
}

void Worker::add_link(uint32_t epoch, const std::string& host, std::shared_ptr<Link> link,
                      std::shared_ptr<LoopHandler> handler) {
  find_epoch(epoch)->add_link(host, std::move(link), std::move(handler));
}

}  // namespace tutti
