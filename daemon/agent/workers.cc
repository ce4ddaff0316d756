#include "daemon/agent/workers.h"

#include <linux/sockios.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "daemon/agent/spawn.h"
#include "daemon/agent/trace_report.h"
#include "daemon/base/foreign_text.h"
#include "daemon/base/hash.h"
#include "daemon/control/passes.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr Millis kFirstReportTimeout{2'000};
constexpr Millis kAskEvery{200};
constexpr Millis kTellAgain{1'000};  // What a worker's queue had no room for.
constexpr Millis kRefreshObstacle{10'000};
constexpr Millis kJudgedEvery{1'000};  // Epochs of one job that have failed.
constexpr int kWorkerSocketMode = 0600;
constexpr int kPacketsAtOnce = 16;
constexpr uint32_t kJudgedOperations = 64;  // Of each rank of a job that has ended.

// The same in every run, so that the next agent finds the file.
std::string hash_of(const std::string& text) {
  std::array<char, 17> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(fnv1a(text)));
  return digits.data();
}

bool is_hung_up(int socket) {
  pollfd poll_for{.fd = socket, .events = 0, .revents = 0};
  return poll(&poll_for, 1, 0) > 0 && (poll_for.revents & (POLLHUP | POLLERR)) != 0;
}

bool has_read_all(int socket) {
  int unread = 0;
  return ioctl(socket, SIOCOUTQ, &unread) == 0 && unread == 0;
}

std::string bytes_of_report_request() {
  v1::AgentToWorker message;
  message.set_report(true);
  return message.SerializeAsString();
}

// Without the token: the worker's user need not have it.
std::string bytes_of_adopt(const v1::Hello& hello, const v1::Pass& pass,
                           const PeerCredentials& peer) {
  v1::AgentToWorker message;
  v1::AgentToWorker::HandOver& hand_over = *message.mutable_hand_over();
  hand_over.set_uid(peer.uid);
  // The pid is 0 if the trainer is in a pid namespace that is not visible from here.
  hand_over.set_pid(peer.pid != 0 ? peer.pid : hello.pid());
  *hand_over.mutable_hello() = hello;
  hand_over.mutable_hello()->clear_token();
  *hand_over.mutable_pass() = pass;
  return message.SerializeAsString();
}

std::string bytes_of_coordinator(const v1::AgentToWorker::Coordinator& coordinator) {
  v1::AgentToWorker message;
  *message.mutable_coordinator() = coordinator;
  return message.SerializeAsString();
}

std::string bytes_of_failed_gpus(const v1::AgentToWorker::FailedGpus& failed) {
  v1::AgentToWorker message;
  *message.mutable_failed_gpus() = failed;
  return message.SerializeAsString();
}

// The worker's user can read it. So another user's worker has of the agent's own what is listed,
// and none gets the token: that is for those who ask to join.
std::map<std::string, std::string> environment_of_worker(const Settings& settings, uint32_t uid) {
  const std::string everything = "*";
  std::map<std::string, std::string> environment =
      inherited_environment(uid == geteuid() ? everything : settings.worker_environment);
  for (const SettingRow& row : setting_rows())
    environment[environment_name_of(row)] = setting_text(settings, row);
  environment.erase("TUTTI_TOKEN");
  environment.erase("TUTTI_TOKEN_FILE");
  for (const char* of_manager : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
    environment.erase(of_manager);
  environment["TUTTI_WORKER_UID"] = std::to_string(uid);
  return environment;
}

// The kernel knows them: a worker has the groups of the trainer that it is started for, and nobody
// waits for a directory service that does not answer. The primary one alone where a kernel does not
// tell.
std::vector<uint32_t> groups_of(int socket, const PeerCredentials& peer) {
  Result<std::vector<uint32_t>> groups = peer_groups(socket);
  return groups.ok() ? *std::move(groups) : std::vector{peer.gid};
}

// For reports, which more people see than the job's user.
v1::Pass without_signature(v1::Pass pass) {
  pass.clear_signature();
  return pass;
}

std::string log_of(const std::string& path) { return fs::path(path).replace_extension(".log"); }

void remove_files(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
  fs::remove(log_of(path), ignored);
}

void log_stale_socket(const std::string& path) {
  spdlog::info("removed {}, which a dead worker left", path);
}

// Logs how a worker ended, and says so where it ended otherwise than it should.
std::string log_end(const std::string& job, pid_t pid, int wait_status) {
  const bool expected = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  const std::string end = describe_end(wait_status);
  spdlog::log(expected ? spdlog::level::info : spdlog::level::err,
              "the worker of job \"{}\" (pid {}) {}", job, pid, end);
  return expected ? "" : end;
}

}  // namespace

Workers::Workers(Loop& loop, const Settings& settings, const Credentials& credentials,
                 Traces& traces, EndedJobs& ended)
    : loop_(loop),
      settings_(settings),
      credentials_(credentials),
      traces_(traces),
      ended_(ended),
      directory_(settings.run_dir + "/workers"),
      failed_gpus_(bytes_of_failed_gpus({})) {}

Workers::~Workers() {
  for (auto& [path, worker] : workers_) loop_.unwatch(worker.socket.get());
  for (auto& [number, wait] : waits_) loop_.cancel(wait.timer);
  loop_.cancel(ask_timer_);
  loop_.cancel(tell_timer_);
}

// The user stands in the name itself, so that nobody can choose a job whose worker has the path of
// another user's.
std::string Workers::path_of(const v1::Pass& pass) const {
  return directory_ + "/" + std::to_string(pass.uid()) + "-" +
         hash_of(pass.subject() + "\n" + pass.job()) + ".sock";
}

Status Workers::adopt_running() {
  std::error_code error;
  fs::create_directories(directory_, error);
  fs::permissions(directory_, fs::perms::owner_all, error);
  if (error) return unavailable("cannot use " + directory_ + ": " + error.message());
  for (const fs::directory_entry& file : fs::directory_iterator(directory_, error)) {
    if (file.path().extension() != ".sock" || connect(file.path()).ok()) continue;
    log_stale_socket(file.path());
    remove_files(file.path());
  }
  bool over = false;
  report(kFirstReportTimeout, [&over](const Reports&) { over = true; });
  while (!over) loop_.run_once(TimePoint::max());
  for (const auto& [path, worker] : workers_)
    if (!worker.is_known)
      spdlog::warn("the worker at {} does not answer, or shows no pass of this agent", path);
  return {};
}

Status Workers::hand_over(const v1::Hello& hello, const v1::Pass& pass, const PeerCredentials& peer,
                          int socket) {
  const Entry found = workers_.find(path_of(pass));
  const Status allowed = quotas().check_join(pass.uid(), found == workers_.end());
  ask_workers_of(pass.uid());  // For the next join.
  if (!allowed.ok()) return allowed;
  if (found != workers_.end()) {
    const Status status = hand_over(found, hello, pass, peer, socket);
    if (status.ok() || !is_hung_up(found->second.socket.get())) return status;
    on_hangup(found);
  }
  const Result<Entry> started = start(pass, peer, groups_of(socket, peer));
  if (!started.ok()) return started.status();
  return hand_over(*started, hello, pass, peer, socket);
}

Status Workers::hand_over(Entry entry, const v1::Hello& hello, const v1::Pass& pass,
                          const PeerCredentials& peer, int socket) {
  Worker& worker = entry->second;
  const bool same = worker.pass.job() == pass.job() && worker.pass.subject() == pass.subject();
  if (!worker.is_known || !same)
    return unavailable("the worker of job \"" + hello.job() + "\" on host " + settings_.host +
                       " does not answer; try again, or end it");
  const Status sent =
      send_packet(worker.socket.get(), bytes_of_adopt(hello, pass, peer), {&socket, 1});
  if (sent.ok()) ++worker.handed_over;
  // On ABORTED the client joins again, and gets another worker.
  return sent.ok() ? sent
                   : aborted("the worker of job \"" + hello.job() + "\" on host " + settings_.host +
                             " takes no more trainers: " + sent.message() + "; join again");
}

Result<Workers::Entry> Workers::start(const v1::Pass& pass, const PeerCredentials& peer,
                                      std::vector<uint32_t> groups) {
  const std::string path = path_of(pass);
  const Result<Fd> listener = listen_unix(path, SOCK_SEQPACKET, kWorkerSocketMode);
  if (!listener.ok()) return listener.status();
  const Result<pid_t> pid = spawn(pass, peer, std::move(groups), listener->get(), log_of(path));
  if (!pid.ok()) {
    spdlog::error("job \"{}\" cannot start: {}", pass.job(), pid.status().message());
    remove_files(path);
    return pid.status();
  }
  Result<Entry> entry = connect(path);
  if (!entry.ok()) return entry;
  Worker& worker = (*entry)->second;
  worker.child = *pid;
  worker.pass = pass;
  worker.log->start(pass.job());
  worker.is_known = true;
  worker.last.set_job(pass.job());
  *worker.last.mutable_pass() = without_signature(pass);
  worker.last.set_pid(static_cast<uint32_t>(*pid));
  worker.last.set_uid(peer.uid);
  worker.last.set_state("starting");
  spdlog::info("job \"{}\" started for user {}: worker pid {}", pass.job(), peer.uid, *pid);
  return entry;
}

Result<pid_t> Workers::spawn(const v1::Pass& pass, const PeerCredentials& peer,
                             std::vector<uint32_t> groups, int listener,
                             const std::string& log) const {
  const Result<Fd> output = WorkerLog::make(log);
  if (!output.ok()) return output.status();
  WorkerProgram program{
      .binary = settings_.worker_binary,
      .arguments = {"--job=" + pass.job(), "--control-fd=" + std::to_string(kControlFd)},
      .uid = peer.uid,
      .gid = peer.gid,
      .groups = std::move(groups)};
  program.environment = environment_of_worker(settings_, peer.uid);
  return spawn_worker(program, listener, output->get());
}

Result<Workers::Entry> Workers::connect(const std::string& path) {
  Result<Fd> socket = connect_unix(path, SOCK_SEQPACKET);
  if (!socket.ok()) return socket.status();
  const Status watched =
      loop_.watch(socket->get(), EPOLLIN, [this, path](uint32_t) { read_packets(path); });
  if (!watched.ok()) return watched;
  Worker worker;
  worker.socket = *std::move(socket);
  worker.log = std::make_unique<WorkerLog>(loop_, log_of(path));
  tell_all(worker);
  return workers_.insert_or_assign(path, std::move(worker)).first;
}

// A few at once: one that sends without end does not keep the others waiting.
void Workers::read_packets(const std::string& path) {
  const Entry entry = workers_.find(path);
  for (int packets = 0; packets < kPacketsAtOnce; ++packets) {
    Result<std::optional<Packet>> packet = receive_packet(entry->second.socket.get());
    if (!packet.ok()) return on_hangup(entry);
    if (!packet->has_value()) return;
    on_report(entry, std::move(**packet));
  }
}

bool Workers::is_ours(const std::string& path, const v1::Pass& pass) const {
  return path_of(pass) == path && pass.host() == settings_.host &&
         check_signature(pass, credentials_).ok();
}

void Workers::on_report(Entry entry, Packet packet) {
  Worker& worker = entry->second;
  v1::WorkerReport report;
  if (!report.ParseFromString(packet.bytes)) return;
  clean_texts(report);  // The worker's user may make it say anything.
  if (!worker.is_known && is_ours(entry->first, report.pass())) {
    worker.is_known = true;
    worker.pass = report.pass();
    worker.log->start(worker.pass.job());
    worker.handed_over = report.handed_over();
    spdlog::info("took over job \"{}\": worker pid {}", worker.pass.job(), report.pid());
  }
  // Whose it is was settled when it started.
  report.set_uid(worker.pass.uid());
  report.set_job(worker.pass.job());
  *report.mutable_pass() = without_signature(worker.pass);
  if (worker.is_known) remember_epoch(worker, report);
  if (worker.is_known && report.recorder_epoch() != 0 && packet.descriptors.size() == 1)
    traces_.add(worker.pass, report.recorder_epoch(), std::move(packet.descriptors[0]));
  const bool is_first = worker.last.pid() == 0;  // Of a worker that an earlier agent started.
  if (worker.is_known && !is_first) ended_.count(worker.last, report);
  worker.last = std::move(report);
  worker.report_pending = false;
  if (worker.is_untold) tell_all(worker);
  check_waits();
}

void Workers::on_hangup(Entry entry) {
  const Worker& worker = entry->second;
  Gone gone{worker.pass, worker.last, worker.is_stopped, trace_of(worker.pass)};
  if (worker.is_known) traces_.end(worker.pass);
  if (worker.child != 0)
    ending_.emplace(worker.child, std::move(gone));
  else if (worker.is_known)
    on_adopted_end(gone);
  else
    log_stale_socket(entry->first);
  loop_.unwatch(worker.socket.get());
  remove_files(entry->first);
  workers_.erase(entry);
  reap();
  check_waits();
}

// Nobody else can tell how a process ended that is no child.
void Workers::on_adopted_end(const Gone& gone) {
  const bool has_crashed = !gone.last.ranks().empty() && !gone.is_stopped;
  if (has_crashed)
    spdlog::error("the worker of job \"{}\" (pid {}) is gone", gone.last.job(), gone.last.pid());
  remember(gone, has_crashed ? "is gone" : "");
}

// What its ranks called last, before it may be dropped.
v1::TraceReply Workers::trace_of(const v1::Pass& pass) const {
  v1::TraceRequest request;
  request.set_job(pass.job());
  request.mutable_owner()->set_uid(pass.uid());
  request.mutable_owner()->set_subject(pass.subject());
  request.set_last(kJudgedOperations);
  v1::TraceReply trace = answer_trace(traces_.find(pass.job()), request, settings_.host);
  for (v1::HostTrace& host : *trace.mutable_hosts()) host.set_ended(true);
  return trace;
}

// Called before the epoch's recorder makes room for the next one's. At most one epoch a second is
// judged, because that takes the agent's time and a worker's user may let it claim any number.
void Workers::remember_epoch(Worker& worker, const v1::WorkerReport& report) {
  const uint32_t epoch = epoch_of(worker.last);
  if (epoch == 0 || epoch_of(report) <= epoch) return;
  if (Clock::now() < worker.judged_at + kJudgedEvery) return;
  worker.judged_at = Clock::now();
  v1::WorkerReport last = worker.last;
  if (report.failure().epoch() == epoch) *last.mutable_failure() = report.failure();
  ended_.add_epoch(last, epoch_of(report), trace_of(worker.pass));
}

void Workers::remember(const Gone& gone, const std::string& worker_end) {
  ended_.add(gone.last, worker_end, gone.is_stopped, gone.trace);
}

void Workers::reap() {
  std::erase_if(ending_, [this](auto& child) {
    int wait_status = 0;
    if (waitpid(child.first, &wait_status, WNOHANG) != child.first) return false;
    const std::string end = log_end(child.second.pass.job(), child.first, wait_status);
    remember(child.second, end);
    return true;
  });
}

void Workers::report(Millis timeout, std::function<void(Reports)> done) {
  for (auto& [path, worker] : workers_) ask(worker);
  call_when(
      timeout, [this] { return !reports_pending(); },
      [this, done = std::move(done)] {
        Reports reports;
        for (const auto& [path, worker] : workers_) {
          if (!worker.is_known) continue;
          reports.push_back(worker.last);
          reports.back().set_silent(worker.report_pending);
        }
        std::ranges::sort(reports, {}, [](const auto& report) { return report.job(); });
        done(std::move(reports));
      });
}

void Workers::ask(Worker& worker) {
  static const std::string kRequest = bytes_of_report_request();
  if (!worker.report_pending)
    worker.report_pending = send_packet(worker.socket.get(), kRequest, {}).ok();
}

void Workers::ask_workers_of(uint32_t uid) {
  for (auto& [path, worker] : workers_)
    if (worker.pass.uid() == uid) ask(worker);
}

// Its user controls a worker, so it may say less than it has, but not less than none.
uint64_t Workers::Worker::ranks() const {
  const auto reported = static_cast<uint64_t>(last.ranks_size());
  return reported + handed_over - std::min(handed_over, last.handed_over());
}

Quotas Workers::quotas() const {
  Quotas quotas(settings_, geteuid());
  for (const auto& [path, worker] : workers_)
    if (worker.is_known)
      quotas.count_job(worker.pass.uid(), worker.ranks(), worker.last.memory_bytes());
  return quotas;
}

bool Workers::reports_pending() const {
  return std::ranges::any_of(workers_,
                             [](const auto& entry) { return entry.second.report_pending; });
}

// One whose pass is not known may have ranks.
bool Workers::has_ranks() const {
  return std::ranges::any_of(workers_, [](const auto& entry) {
    return !entry.second.is_known || entry.second.ranks() != 0;
  });
}

void Workers::ask_all_again() {
  for (auto& [path, worker] : workers_) ask(worker);
  ask_timer_ = loop_.at(Clock::now() + kAskEvery, [this] { ask_all_again(); });
}

void Workers::await_end(Millis timeout, std::function<void()> done) {
  ask_all_again();
  call_when(
      timeout, [this] { return !has_ranks(); },
      [this, done = std::move(done)] {
        loop_.cancel(ask_timer_);
        done();
      });
}

void Workers::stop(Millis timeout, std::function<void()> done) {
  v1::AgentToWorker message;
  message.set_stop(true);
  for (auto& [path, worker] : workers_)
    worker.is_stopped = send_packet(worker.socket.get(), message.SerializeAsString(), {}).ok();
  call_when(
      timeout, [this] { return workers_.empty(); }, std::move(done));
}

int Workers::stop_job(const v1::StopJobRequest& request) {
  v1::AgentToWorker stop;  // For workers of an older release.
  stop.set_stop(true);
  v1::AgentToWorker stopped_by;
  stopped_by.set_stopped_by(request.by());
  int told = 0;
  for (auto& [path, worker] : workers_) {
    const v1::Owner& owner = request.owner();
    const bool is_owner = !request.has_owner() || (owner.uid() == worker.pass.uid() &&
                                                   owner.subject() == worker.pass.subject());
    if (!worker.is_known || worker.pass.job() != request.job() || !is_owner) continue;
    for (const v1::AgentToWorker& message : {stopped_by, stop})
      worker.is_stopped |= send_packet(worker.socket.get(), message.SerializeAsString(), {}).ok();
    told += worker.is_stopped ? 1 : 0;
  }
  return told;
}

// While nobody coordinates it is called again and again, with a reason that tells for how long.
// That is sent once in a while, and not to a worker that is stopped: it would fill the queue.
void Workers::set_coordinator(const v1::AgentToWorker::Coordinator& coordinator) {
  const bool is_news = coordinator.address() != coordinator_.address() ||
                       coordinator.obstacle().empty() != coordinator_.obstacle().empty();
  const bool is_same = coordinator.obstacle() == coordinator_.obstacle();
  if (!is_news && (is_same || Clock::now() < refresh_at_)) return;
  refresh_at_ = Clock::now() + kRefreshObstacle;
  coordinator_ = coordinator;
  const std::string bytes = bytes_of_coordinator(coordinator_);
  for (auto& [path, worker] : workers_)
    if (is_news || has_read_all(worker.socket.get())) tell(worker, bytes);
}

void Workers::set_failed_gpus(const v1::AgentToWorker::FailedGpus& failed) {
  failed_gpus_ = bytes_of_failed_gpus(failed);
  for (auto& [path, worker] : workers_) tell(worker, failed_gpus_);
}

void Workers::tell(Worker& worker, const std::string& bytes) {
  if (send_packet(worker.socket.get(), bytes, {}).ok()) return;
  worker.is_untold = true;
  if (tell_timer_ != 0) return;
  tell_timer_ = loop_.at(Clock::now() + kTellAgain, [this] {
    tell_timer_ = 0;
    for (auto& [path, untold] : workers_)
      if (untold.is_untold) tell_all(untold);
  });
}

void Workers::tell_all(Worker& worker) {
  worker.is_untold = false;
  tell(worker, failed_gpus_);
  const bool is_in_the_settings = coordinator_.address().empty() && coordinator_.obstacle().empty();
  if (!is_in_the_settings) tell(worker, bytes_of_coordinator(coordinator_));
}

void Workers::call_when(Millis timeout, std::function<bool()> is_done, std::function<void()> done) {
  const uint64_t number = ++last_wait_;
  const Loop::TimerId timer = loop_.at(Clock::now() + timeout, [this, number] {
    const auto late = waits_.extract(number);
    late.mapped().done();
  });
  waits_.emplace(number, Wait{timer, std::move(is_done), std::move(done)});
  check_waits();
}

void Workers::check_waits() {
  std::vector<std::function<void()>> over;
  std::erase_if(waits_, [&](auto& entry) {
    if (!entry.second.is_done()) return false;
    loop_.cancel(entry.second.timer);
    over.push_back(std::move(entry.second.done));
    return true;
  });
  for (const auto& done : over) done();
}

}  // namespace tutti
