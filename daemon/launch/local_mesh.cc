#include "daemon/launch/local_mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <random>

#include "daemon/base/program.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "daemon/control/admin_client.h"
#include "daemon/launch/notify_socket.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr Millis kReadyTimeout{20'000};
constexpr Millis kStopTimeout{5'000};
constexpr int kCallTimeoutMs = 2'000;
constexpr int kRecordTimeoutMs = 1'000;
constexpr int kStartTries = 3;  // A free port may be taken before the agent binds it.
constexpr size_t kTailLines = 20;
constexpr size_t kTokenBytes = 32;
// In network namespaces every host has all ports to itself.
constexpr const char* kNetnsPort = ":7601";
constexpr const char* kNetnsRendezvousPort = ":29500";
// Below the ephemeral ports, so that the port stays free until rank 0 binds it.
constexpr int kRendezvousPortMin = 20'000;
constexpr int kRendezvousPortMax = 32'000;
constexpr int kRendezvousTries = 100;

// Returns `port`, or any for 0, if it is free at this address.
Result<int> free_port(in_addr_t interface, int port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<uint16_t>(port)),
                      .sin_addr = {.s_addr = htonl(interface)}};
  socklen_t bytes = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), generic, bytes) != 0 || getsockname(socket.get(), generic, &bytes) != 0)
    return errno_status("cannot find a free port");
  return ntohs(address.sin_port);
}

Result<std::string> free_local_address() {
  const Result<int> port = free_port(INADDR_LOOPBACK, 0);
  if (!port.ok()) return port.status();
  return "127.0.0.1:" + std::to_string(*port);
}

// Tries random ports, so that meshes that start at the same time choose different ones.
Result<std::string> free_rendezvous_address() {
  std::random_device entropy;
  std::uniform_int_distribution<int> ports(kRendezvousPortMin, kRendezvousPortMax);
  Result<int> port = free_port(INADDR_ANY, ports(entropy));
  for (int tries = 1; tries < kRendezvousTries && !port.ok(); ++tries)
    port = free_port(INADDR_ANY, ports(entropy));
  if (!port.ok()) return port.status();
  return "127.0.0.1:" + std::to_string(*port);
}

// Lines are "<time> <level> ...", but for those of a crash.
bool is_below_warning(const std::string& line) {
  const size_t at = line.find(' ') + 1;
  const std::string level = line.substr(at, line.find(' ', at) - at);
  return level == "info" || level == "debug" || level == "trace";
}

std::string tail_of(const std::string& path, bool warnings_only) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (warnings_only && is_below_warning(line)) continue;
    lines.push_back(line);
    if (lines.size() > kTailLines) lines.pop_front();
  }
  std::string out;
  for (const std::string& line : lines) out += "  " + line + "\n";
  return out;
}

Result<fs::path> make_directory() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return not_found("TMPDIR is no directory (" + error.message() + "); set it to one");
  std::string path = parent / "tutti-run-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return errno_status("cannot make " + path);
  return fs::path(path);
}

}  // namespace

fs::path program_directory() { return program_path().parent_path(); }

Result<std::unique_ptr<LocalMesh>> LocalMesh::start(Loop& loop, ChildProcesses& children,
                                                    const LocalMeshOptions& options,
                                                    const std::function<bool()>& interrupted) {
  std::unique_ptr<LocalMesh> mesh(new LocalMesh(loop, children));
  Status status = mesh->prepare(options);
  for (Host& host : mesh->hosts_)
    if (status.ok()) status = mesh->start_agent(host, interrupted);
  mesh->starting_ = false;
  if (status.ok()) return mesh;
  return Status(status.code(), status.message() + mesh->log_tails());
}

LocalMesh::~LocalMesh() {
  stop();
  std::error_code ignored;
  if (!directory_.empty()) fs::remove_all(directory_, ignored);
}

Status LocalMesh::prepare(const LocalMeshOptions& options) {
  if (options.netns) {
    Result<std::vector<HostNetwork>> networks =
        create_networks(options.hosts, options.rate_bits_per_s);
    if (!networks.ok()) return networks.status();
    networks_ = std::move(*networks);
  }
  Result<fs::path> directory = make_directory();
  if (!directory.ok()) return directory.status();
  directory_ = *directory;
  Result<FolderKeeper> keeper = FolderKeeper::start(directory_);
  if (!keeper.ok()) return keeper.status();
  keeper_ = *std::move(keeper);
  if (const Status written = write_token(); !written.ok()) return written;
  worker_idle_ = options.worker_idle;
  agent_flags_ = options.agent_flags;
  const fs::path logs = options.log_dir.empty() ? directory_ : fs::path(options.log_dir);
  std::error_code error;
  fs::create_directories(logs, error);
  if (error) return invalid_argument("cannot make " + logs.string() + ": " + error.message());
  for (int index = 0; index < options.hosts; ++index) {
    Host host{.name = host_name(index)};
    fs::create_directory(directory_ / host.name);
    host.socket = directory_ / host.name / "tuttid.sock";
    host.address = "unix:" + host.socket;
    host.log = logs / (host.name + ".log");
    if (options.netns) host.netns = networks_[static_cast<size_t>(index)].netns.get();
    hosts_.push_back(std::move(host));
  }
  const Result<std::string> rendezvous =
      options.netns ? Result(networks_.front().address + kNetnsRendezvousPort)
                    : free_rendezvous_address();
  if (!rendezvous.ok()) return rendezvous.status();
  rendezvous_ = *rendezvous;
  return {};
}

// The agents know each other by it. Trainers need none.
Status LocalMesh::write_token() const {
  const std::string path = token_file();
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string line = random_hex(kTokenBytes) + " role=agent\n";
  if (file.valid() && write(file.get(), line.data(), line.size()) == ssize_t(line.size()))
    return {};
  return errno_status("cannot write " + path);
}

Status LocalMesh::start_agent(Host& host, const std::function<bool()>& interrupted) {
  Status status;
  for (int tries = 0; tries < kStartTries; ++tries) {
    status = try_start_agent(host, interrupted);
    if (status.code() != Code::unavailable) return status;
  }
  return status;
}

SpawnOptions LocalMesh::agent_options(const Host& host, int log) const {
  const fs::path home = directory_ / host.name;
  const bool elected = std::ranges::any_of(
      agent_flags_, [](const std::string& flag) { return flag.starts_with("--etcd="); });
  const bool coordinates = elected || &host == &hosts_.front();
  const std::string coordinator = coordinates ? "" : hosts_.front().control;
  SpawnOptions options;
  options.command = {program_directory() / "tuttid",
                     "--socket=" + host.socket,
                     "--run-dir=" + (home / "run").string(),
                     "--listen=" + host.control,
                     "--host=" + host.name,
                     "--token-file=" + token_file().string(),
                     "--config=/dev/null",  // Not the settings of this machine's own agent,
                     "--tls=off"};          // nor those with which tools reach others.
  options.command.insert(options.command.end(), agent_flags_.begin(), agent_flags_.end());
  options.environment.set("TUTTI_COORDINATOR", coordinator);
  options.environment.set("NOTIFY_SOCKET", home / "notify");
  if (worker_idle_ > Millis(0))
    options.environment.set_default("TUTTI_WORKER_IDLE_MS", std::to_string(worker_idle_.count()));
  options.netns = host.netns;
  options.out = options.err = log;
  return options;
}

// UNAVAILABLE: it ended before it was ready; another try may succeed.
Status LocalMesh::try_start_agent(Host& host, const std::function<bool()>& interrupted) {
  const size_t index = static_cast<size_t>(&host - hosts_.data());
  const Result<std::string> control =
      host.netns >= 0 ? Result<std::string>(networks_[index].address + kNetnsPort)
                      : free_local_address();
  if (!control.ok()) return control.status();
  host.control = *control;
  const Result<Fd> notify = bind_notify_socket(directory_ / host.name / "notify");
  if (!notify.ok()) return notify.status();
  const Fd log(open(host.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return errno_status("cannot write " + host.log);
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnOptions options = agent_options(host, log.get());
  options.in = null.get();
  const Result<pid_t> agent =
      children_.spawn(options, [this, name = host.name](int code) { on_agent_ended(name, code); });
  if (!agent.ok()) return agent.status();
  host.agent = *agent;

  bool ready = false;
  Status status = loop_.watch(notify->get(), EPOLLIN,
                              [&](uint32_t) { ready = receive_ready(notify->get()) || ready; });
  const TimePoint until = Clock::now() + kReadyTimeout;
  while (!ready && status.ok() && children_.is_running(host.agent) && Clock::now() < until) {
    if (interrupted()) status = Status(Code::cancelled, "interrupted");
    loop_.run_once(until);
  }
  loop_.unwatch(notify->get());
  if (ready || !status.ok()) return status;
  if (children_.is_running(host.agent))
    return deadline_exceeded("agent " + host.name + " does not become ready; its log:\n");
  return unavailable("agent " + host.name + " does not start; its log:\n");
}

void LocalMesh::on_agent_ended(const std::string& name, int code) {
  if (stopping_ || starting_) return;
  std::fprintf(stderr, "tutti: agent %s %s\n", name.c_str(), describe_exit(code).c_str());
}

void LocalMesh::stop() {
  if (stopping_) return;
  stopping_ = true;
  for (const Host& host : hosts_)
    if (children_.is_running(host.agent) && !admin_stop(host.address, true, kCallTimeoutMs).ok())
      children_.signal(host.agent, SIGTERM);
  const TimePoint until = Clock::now() + kStopTimeout;
  for (const Host& host : hosts_)
    while (children_.is_running(host.agent) && Clock::now() < until) loop_.run_once(until);
  children_.end_all();
}

JobRecord LocalMesh::record_of(const std::string& job, size_t world_size) const {
  const Result<v1::StatusReply> reply =
      admin_status(hosts_.front().address, true, kRecordTimeoutMs);
  return reply.ok() ? tutti::record_of(*reply, job, world_size) : JobRecord{.joined = true};
}

std::string LocalMesh::status_command() const {
  return "tutti status --address " + hosts_.front().address;
}

std::string LocalMesh::log_tails(bool warnings_only) const {
  std::string out;
  for (const Host& host : hosts_) {
    const std::string tail = tail_of(host.log, warnings_only);
    if (!tail.empty()) out += "log of host " + host.name + ":\n" + tail;
  }
  return out;
}

}  // namespace tutti
