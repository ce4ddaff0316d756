#include "daemon/agent/agent.h"

#include <fcntl.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "daemon/agent/start_checks.h"
#include "daemon/agent/trace_report.h"
#include "daemon/base/address.h"
#include "daemon/base/job_check.h"
#include "daemon/base/program.h"
#include "daemon/base/reload.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "daemon/control/address.h"
#include "daemon/control/passes.h"
#include "proto/segment.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr int kSocketMode = 0666;  // Anybody may connect; credentials and token decide.
constexpr size_t kKeyBytes = 32;
constexpr Millis kAcceptPause{100};
constexpr int kAcceptsAtOnce = 64;
constexpr size_t kFreeBytesKept = size_t{16} << 20;
constexpr Millis kTrimEvery{10'000};
constexpr Millis kWorkerReportTimeout{500};
constexpr Millis kReportTimeout{800};
constexpr Millis kStopTimeout{3'000};
constexpr Millis kLockTimeout{
    1'000};  // A predecessor that was killed holds its lock until it is gone.
constexpr Millis kLockPoll{10};

// Others must not be able to put files, or links, where the agent keeps its own.
Status check_directory(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return errno_status("cannot look at " + path);
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return permission_denied(path + " belongs to user " + std::to_string(info.st_uid) +
                             "; give it to root, or choose another run_dir");
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return permission_denied("others may write to " + path +
                             "; choose another run_dir, or run: chmod go-w " + path);
  if (fs::is_symlink(path + "/workers"))
    return permission_denied(path + "/workers is a link; remove it");
  return {};
}

// "cannot open /run/tutti/agent.lock: Permission denied; ..." for errno.
Status unusable(const std::string& what, const char* setting) {
  const bool read_only = errno == EROFS;
  const Status why = errno_status(what);
  const std::string remedy = read_only ? "; under systemd, name it in ReadWritePaths= of the unit"
                                       : "; make it writable for user " + std::to_string(geteuid());
  return {why.code(), why.message() + remedy + ", or choose another with the setting " + setting};
}

Status make_directories(const std::string& path, const char* setting) {
  std::error_code error;
  if (fs::create_directories(path, error))  // Whatever the umask is.
    fs::permissions(path, fs::perms(0755), error);
  errno = error.value();
  return error ? unusable("cannot make the directory " + path, setting) : Status();
}

// The key with which agents of this host sign, one after the other: running workers show what an
// earlier agent signed. The caller holds the lock of the directory.
Result<std::string> read_or_make_key(const std::string& path) {
  if (fs::exists(path)) {
    Result<std::string> key = read_token_file(path);
    if (key.ok() && key->size() == 2 * kKeyBytes) return key;
    return failed_precondition("the key " + path + " cannot be used" +
                               (key.ok() ? "" : ": " + key.status().message()) +
                               "; end the jobs of this node, then remove it");
  }
  const std::string made = path + ".new";
  std::error_code none_there;
  fs::remove(made, none_there);
  const std::string key = random_hex(kKeyBytes);
  const Fd file(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || write(file.get(), key.data(), key.size()) != ssize_t(key.size()) ||
      fsync(file.get()) != 0 || rename(made.c_str(), path.c_str()) != 0)
    return unusable("cannot write " + path, "run_dir");
  return key;
}

void report_usage(v1::AgentReport& report) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto ms = [](const timeval& time) { return time.tv_sec * 1'000 + time.tv_usec / 1'000; };
    report.set_processor_ms(static_cast<uint64_t>(ms(usage.ru_utime) + ms(usage.ru_stime)));
  }
  uint64_t pages = 0;
  uint64_t resident = 0;
  if (std::ifstream("/proc/self/statm") >> pages >> resident)
    report.set_resident_bytes(resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

void report_descriptors(v1::AgentReport& report) {
  std::error_code error;
  const auto open = std::ranges::distance(fs::directory_iterator("/proc/self/fd", error),
                                          fs::directory_iterator());
  rlimit limit{};
  if (error || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  report.set_descriptors(static_cast<uint64_t>(open));
  report.set_descriptors_max(limit.rlim_cur);
}

void report_run_dir(const std::string& run_dir, v1::AgentReport& report) {
  struct statvfs info {};
  const bool can_write = statvfs(run_dir.c_str(), &info) == 0 && (info.f_flag & ST_RDONLY) == 0 &&
                         (info.f_files == 0 || info.f_favail != 0);
  report.set_run_dir_free_bytes(can_write ? uint64_t{info.f_bavail} * info.f_frsize : 0);
}

}  // namespace

Agent::Agent(Loop& loop, Settings settings, Credentials credentials,
             std::function<uint64_t()> dropped_log_lines)
    : loop_(loop),
      settings_(with_defaults(std::move(settings))),
      credentials_(std::move(credentials)),
      dropped_log_lines_(std::move(dropped_log_lines)),
      traces_(loop, settings_),
      ended_(settings_),
      gpus_(loop, [this](const auto& failed) { workers_->set_failed_gpus(failed); }) {}

Agent::~Agent() {
  http_door_.reset();  // Before what its threads ask.
  admin_door_.reset();
  control_.reset();  // Before the rest, because its threads call this object.
  loop_.cancel(resume_timer_);
  loop_.cancel(trim_timer_);
  if (listener_.valid()) loop_.unwatch(listener_.get());
}

Status Agent::start(std::function<void()> on_stop) {
  on_stop_ = std::move(on_stop);
  Status status = check_worker_binary(settings_.worker_binary);
  if (status.ok()) status = lock_run_dir();
  if (!status.ok()) return status;
  Result<std::string> key = read_or_make_key(settings_.run_dir + "/mesh.key");
  if (!key.ok()) return key.status();
  credentials_.own_key = *std::move(key);
  status = serve_control_plane();
  if (!status.ok()) return status;
  workers_ = std::make_unique<Workers>(loop_, settings_, credentials_, traces_, ended_);
  status = workers_->adopt_running();
  if (!status.ok()) return status;
  Result<std::unique_ptr<AdminDoor>> door =
      AdminDoor::open(loop_, *control_, credentials_, settings_.admin_group);
  if (!door.ok()) return door.status();
  admin_door_ = *std::move(door);
  gpus_.find(settings_.nvml_library);
  status = serve_http();
  if (!status.ok()) return status;
  trim_memory();
  return serve();
}

Status Agent::serve_control_plane() {
  const Names names;
  if (Status checked = check_addresses(settings_.listen, settings_.data_address,
                                       settings_.coordinator, settings_.etcd, names);
      !checked.ok())
    return checked;
  Result<Tls> tls =
      settings_.tls == "require" ? open_agent_tls(settings_.tls_dir) : Result<Tls>(Tls());
  if (!tls.ok()) return tls.status();
  ControlOptions options = control_options(settings_, credentials_);
  options.tls = *std::move(tls);
  options.on_coordinator = [this](const std::string& address, const std::string& obstacle) {
    on_coordinator(address, obstacle);
  };
  Result<std::unique_ptr<ControlServer>> control = serve_control(options, *this, names);
  if (!control.ok()) return control.status();
  control_ = *std::move(control);
  const std::string address = control_->address();
  settings_.coordinator = control_->coordinator();
  if (settings_.data_address.empty())
    settings_.data_address = address.substr(0, address.rfind(':'));
  return {};
}

Status Agent::serve_http() {
  const Result<Address> listen = parse_address(settings_.metrics_listen);
  if (!listen.ok()) return {};  // It is empty.
  if (Status open = check_metrics_listen(settings_, credentials_, is_wildcard(listen->host));
      !open.ok())
    return open;
  Result<std::unique_ptr<HttpDoor>> door =
      HttpDoor::open({.loop = loop_,
                      .settings = settings_,
                      .credentials = credentials_,
                      .agent = *this,
                      .control = *control_,
                      .refusals = refusals_,
                      .traces = traces_,
                      .serves = [this] { return why_not_serving(); }});
  if (!door.ok()) return door.status();
  http_door_ = *std::move(door);
  return {};
}

Status Agent::why_not_serving() const {
  if (is_stopping_) return unavailable("host " + settings_.host + " is stopping");
  if (is_draining_) return unavailable("host " + settings_.host + " is draining");
  return {};
}

// On a thread of the control plane.
void Agent::on_coordinator(const std::string& address, const std::string& obstacle) {
  v1::AgentToWorker::Coordinator coordinator;
  coordinator.set_address(address);
  coordinator.set_obstacle(obstacle);
  loop_.post([this, coordinator] { workers_->set_coordinator(coordinator); });
}

Status Agent::lock_run_dir() {
  const std::string socket_dir = fs::absolute(settings_.socket).parent_path();
  Status made = make_directories(settings_.run_dir, "run_dir");
  if (made.ok()) made = make_directories(socket_dir, "socket");
  if (!made.ok()) return made;
  if (Status safe = check_directory(settings_.run_dir); !safe.ok()) return safe;
  const std::string path = settings_.run_dir + "/agent.lock";
  run_dir_lock_.reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!run_dir_lock_.valid()) return unusable("cannot open " + path, "run_dir");
  const TimePoint until = Clock::now() + kLockTimeout;
  while (flock(run_dir_lock_.get(), LOCK_EX | LOCK_NB) != 0 && Clock::now() < until)
    std::this_thread::sleep_for(kLockPoll);
  if (flock(run_dir_lock_.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return errno_status("cannot lock " + path);
  return already_exists("another tuttid uses " + settings_.run_dir +
                        "; stop it or choose another run_dir");
}

Status Agent::serve() {
  Result<Fd> listener = listen_unix(settings_.socket, SOCK_STREAM, kSocketMode);
  if (!listener.ok())
    return {listener.status().code(),
            listener.status().message() + "; choose another path with the setting socket"};
  listener_ = *std::move(listener);
  return loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_trainers(); });
}

void Agent::reload(const Settings& read) {
  copy_reloadable(settings_, read);
  workers_->set_settings(settings_);
}

void Agent::finish(Millis wait) {
  is_draining_ = is_stopping_ = true;
  control_->set_serving(false);
  workers_->await_end(wait, [this] { workers_->stop(kStopTimeout, on_stop_); });
}

std::string Agent::describe() const {
  const std::string address = control_->address();
  const bool coordinates = control_->coordinator() == address;
  return "socket " + settings_.socket + ", control plane " + address +
         (coordinates ? " (coordinator)" : ", coordinator " + control_->coordinator()) +
         (http_door_ == nullptr ? "" : ", metrics http://" + http_door_->address() + "/metrics");
}

std::string Agent::describe_state() const {
  Status ready = why_not_serving();
  if (ready.ok()) ready = control_->registered();
  return ready.ok() ? "serves: " + describe() : "takes no joins: " + ready.message();
}

// A few at once: those that were accepted earlier get their turn before others displace them.
void Agent::accept_trainers() {
  for (int accepted = 0; accepted < kAcceptsAtOnce; ++accepted) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid())
      await_hello(std::move(socket));
    else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      return pause_accepting();
    else if (errno != EINTR && errno != ECONNABORTED)
      return;
  }
}

// Without descriptors the listener stays readable, and the loop would spin.
void Agent::pause_accepting() {
  spdlog::warn("cannot accept trainers: out of descriptors or memory; trying again");
  loop_.unwatch(listener_.get());
  resume_timer_ = loop_.at(Clock::now() + kAcceptPause, [this] {
    (void)loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_trainers(); });
  });
}

// Gives back what a crowd of connections has left behind, which glibc keeps by itself.
void Agent::trim_memory() {
  if (mallinfo2().fordblks > kFreeBytesKept) malloc_trim(0);
  trim_timer_ = loop_.at(Clock::now() + kTrimEvery, [this] { trim_memory(); });
}

void Agent::await_hello(Fd socket) {
  const Result<PeerCredentials> peer = peer_credentials(socket.get());
  if (!peer.ok()) return refuse_trainer(socket.get(), peer.status());
  if (pending_hellos_.size() >= static_cast<size_t>(settings_.half_open_hellos))
    make_room_for_hello();
  const auto pending =
      pending_hellos_.insert(pending_hellos_.end(), {std::move(socket), peer->uid, nullptr});
  const TimePoint deadline = Clock::now() + Millis(settings_.hello_timeout_ms);
  pending->reader = std::make_unique<HelloReader>(
      loop_, pending->socket.get(), deadline,
      [this, pending](const Result<v1::Hello>& hello) { on_hello(pending, hello); });
}

// The oldest of the user who has the most: others' joins go on, and so do this user's own, because
// trainers send their hello at once, and join again where they are asked to.
void Agent::make_room_for_hello() {
  std::map<uint32_t, size_t> counts;
  for (const PendingHello& pending : pending_hellos_) ++counts[pending.uid];
  const uint32_t most =
      std::ranges::max_element(counts, {}, [](auto& entry) { return entry.second; })->first;
  const auto oldest = std::ranges::find(pending_hellos_, most, &PendingHello::uid);
  refuse(oldest->socket.get(),
         aborted("host " + settings_.host + " has " + std::to_string(settings_.half_open_hellos) +
                 " connections that have not said who they are; join again"));
  pending_hellos_.erase(oldest);
}

void Agent::on_hello(PendingHellos::iterator pending, const Result<v1::Hello>& hello) {
  Fd socket = std::move(pending->socket);
  pending_hellos_.erase(pending);
  Status status = hello.ok() ? check_version(*hello) : hello.status();
  if (status.ok() && !hello->admin().empty()) return admin_door_->answer(std::move(socket), *hello);
  if (status.ok()) status = admit(*hello, socket.get());
  if (!status.ok()) refuse(socket.get(), status);
}

void Agent::refuse(int socket, const Status& why) {
  const bool is_new = refusals_.count("socket", why.code());
  spdlog::log(is_new ? spdlog::level::warn : spdlog::level::debug, "refused a trainer: {}",
              printable(why.to_string()));
  refuse_trainer(socket, why);
}

Status Agent::admit(const v1::Hello& hello, int socket) {
  if (Status serving = why_not_serving(); !serving.ok()) return serving;
  const Status valid = check_job(hello.job(), hello.rank(), hello.world_size());
  if (!valid.ok()) return valid;
  const Result<PeerCredentials> peer = peer_credentials(socket);
  if (!peer.ok()) return peer.status();
  const Result<v1::Pass> pass = pass_of(hello, *peer);
  if (!pass.ok()) return pass.status();
  return workers_->hand_over(hello, *pass, *peer, socket);
}

Result<v1::Pass> Agent::pass_of(const v1::Hello& hello, const PeerCredentials& peer) const {
  Result<std::string> subject =
      admit_trainer(credentials_, hello.token(), hello.job(), settings_.host);
  if (!subject.ok()) return subject.status();
  v1::Pass pass;
  pass.set_job(hello.job());
  pass.set_uid(peer.uid);
  pass.set_subject(*std::move(subject));
  pass.set_host(settings_.host);
  sign_pass(pass, credentials_);
  return pass;
}

Status Agent::check_version(const v1::Hello& hello) const {
  if (hello.version() != kProtocolVersion)
    return failed_precondition(
        std::string(hello.admin().empty() ? "the trainer's library" : "this tool") +
        " speaks protocol version " + std::to_string(hello.version()) + ", tuttid on host " +
        settings_.host + " version " + std::to_string(kProtocolVersion) +
        "; install the same release");
  return {};
}

v1::AgentReport Agent::report() {
  const auto answer = std::make_shared<std::promise<v1::AgentReport>>();
  std::future<v1::AgentReport> answered = answer->get_future();
  loop_.post([this, answer] {
    workers_->report(kWorkerReportTimeout, [this, answer](const Workers::Reports& workers) {
      v1::AgentReport report;
      report.set_state(is_draining_ ? "draining" : "serving");
      report.mutable_workers()->Assign(workers.begin(), workers.end());
      workers_->quotas().report(report);
      gpus_.report(report);
      refusals_.report(report);
      answer->set_value(std::move(report));
    });
  });
  v1::AgentReport report;
  if (answered.wait_for(kReportTimeout) == std::future_status::ready)
    report = answered.get();
  else
    report.set_state("busy");
  ended_.report(report);  // Counters do not fall where the agent is busy.
  report.set_host(settings_.host);
  report.set_pid(static_cast<uint32_t>(getpid()));
  report.set_version(TUTTI_VERSION);
  report.set_protocol(kProtocolVersion);
  const auto uptime = std::chrono::duration_cast<Millis>(Clock::now() - started_);
  report.set_uptime_ms(static_cast<uint64_t>(uptime.count()));
  report.set_time_ms(unix_time<Millis>());
  report.set_dropped_log_lines(dropped_log_lines_());
  report_descriptors(report);
  report_run_dir(settings_.run_dir, report);
  report_usage(report);
  if (http_door_ != nullptr) report.set_metrics_address(http_door_->address());
  return report;
}

v1::TraceReply Agent::trace(const v1::TraceRequest& request) {
  const auto answer = std::make_shared<std::promise<std::vector<KeptRecorder>>>();
  std::future<std::vector<KeptRecorder>> answered = answer->get_future();
  loop_.post([this, answer, job = request.job()] { answer->set_value(traces_.find(job)); });
  if (answered.wait_for(kReportTimeout) == std::future_status::ready)
    return answer_trace(answered.get(), request, settings_.host);
  v1::TraceReply busy;
  v1::AgentReport& self = *busy.add_missing();
  self.set_host(settings_.host);
  self.set_state("busy");
  return busy;
}

Status Agent::drain(bool undo) {
  if (undo && is_stopping_) return failed_precondition("host " + settings_.host + " is stopping");
  loop_.post([this, undo] {
    if (is_stopping_) return;  // It takes no joins, and never will.
    is_draining_ = !undo;
    control_->set_serving(!is_draining_);
    spdlog::info(undo ? "taking new joins again" : "draining: no new joins");
  });
  return {};
}

Status Agent::stop(bool jobs) {
  loop_.post([this, jobs] {
    spdlog::info(jobs ? "stopping, and the jobs with it" : "stopping; jobs go on");
    is_draining_ = is_stopping_ = true;
    control_->set_serving(false);
    if (!jobs) return on_stop_();
    workers_->stop(kStopTimeout, on_stop_);
  });
  return {};
}

v1::StopJobReply Agent::stop_job(const v1::StopJobRequest& request) {
  const auto answer = std::make_shared<std::promise<int>>();
  std::future<int> answered = answer->get_future();
  loop_.post([this, answer, request] { answer->set_value(workers_->stop_job(request)); });
  v1::StopJobReply reply;
  if (answered.wait_for(kReportTimeout) != std::future_status::ready) {
    reply.add_missing()->set_host(settings_.host);
    reply.mutable_missing(0)->set_state("busy");
  } else if (answered.get() != 0) {
    reply.add_hosts(settings_.host);
  }
  return reply;
}

}  // namespace tutti
