// Takes the view of a node: asks its kernel, its files, its agent and the others.
#include <fcntl.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "daemon/base/address.h"
#include "daemon/base/credentials.h"
#include "daemon/base/fd.h"
#include "daemon/base/program.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "daemon/control/address.h"
#include "daemon/control/admin_client.h"
#include "daemon/doctor/network_probes.h"
#include "daemon/doctor/system_probes.h"
#include "daemon/session/session.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr const char* kUnix = "unix:";
constexpr const char* kTcp = "/proc/sys/net/ipv4/";
constexpr int kPathTimeoutMs = 300;

void look_at_tokens(NodeView& node) {
  node.has_agent_token = node.has_tokens = !node.settings.token.empty();
  if (node.has_agent_token || node.settings.token_file.empty()) return;
  const Result<std::string> lines = read_secret_file(node.settings.token_file);
  node.credentials_read = lines.status();
  if (!lines.ok()) return;
  Result<std::vector<Token>> tokens = parse_tokens(*lines, node.settings.token_file);
  node.credentials_read = tokens.status();
  if (!tokens.ok()) return;
  node.has_tokens = !tokens->empty();
  const Credentials credentials{.tokens = *std::move(tokens)};
  node.has_agent_token = credentials.has_agent_token();
}

void ask_agent(const DoctorOptions& options, NodeView& node) {
  node.address = options.address.empty() ? kUnix + node.settings.socket : options.address;
  const Result<v1::StatusReply> own = admin_status(node.address, true, options.timeout_ms);
  node.agent = own.status();
  if (own.ok() && own->agents_size() == 0)
    node.agent = internal_error("what answers at " + node.address + " reports no agent");
  if (!node.agent.ok()) return;
  node.own = own->agents(0);
  if (node.address.starts_with(kUnix)) node.agent_uid = user_of(node.own.pid());
  node.asked_ms = unix_time<Millis>();
  Result<v1::StatusReply> agents = admin_status(node.address, false, options.timeout_ms);
  node.answered_ms = unix_time<Millis>();
  node.mesh = agents.status();
  if (agents.ok()) node.agents = *std::move(agents);
}

// As tuttid opens them before it speaks to etcd.
Status look_at_etcd_files(const Settings& settings) {
  const std::string& directory = settings.etcd_tls_dir;
  std::vector<std::string> files;
  if (!directory.empty()) files.push_back(directory + "/ca.crt");
  if (!directory.empty() && look_at_file(directory + "/tls.crt").exists)
    files.insert(files.end(), {directory + "/tls.crt", directory + "/tls.key"});
  for (const std::string& path : files)
    if (!Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)).valid())
      return errno_status(path + " cannot be read");
  return settings.etcd_user.empty() ? Status()
                                    : read_secret_file(settings.etcd_password_file).status();
}

void look_at_etcd(int timeout_ms, NodeView& node) {
  if (node.settings.etcd.empty()) return;
  for (const std::string& member : split(node.settings.etcd, ','))
    node.etcd.push_back(dial(member, timeout_ms));
  node.etcd_files = look_at_etcd_files(node.settings);
}

void look_at_network(int timeout_ms, NodeView& node) {
  const Settings& settings = node.settings;
  if (!settings.coordinator.empty()) node.coordinator = dial(settings.coordinator, timeout_ms);
  look_at_etcd(timeout_ms, node);
  const bool answers = node.agent.code() != Code::unavailable;  // If only to refuse.
  if (!answers) node.listen = try_bind(settings.listen);
  if (!answers && !settings.metrics_listen.empty())
    node.metrics = try_bind(settings.metrics_listen);
  const Result<Address> metrics = parse_address(settings.metrics_listen);
  node.metrics_wildcard = metrics.ok() && is_wildcard(metrics->host);
  node.addresses =
      check_addresses(settings.listen, settings.data_address, settings.coordinator, settings.etcd);
  const Result<PortRange> ports = parse_port_range(settings.data_ports);
  if (ports.ok() && ports->first != 0) {
    node.data_ports = static_cast<int>(ports->count());
    node.data_ports_taken = count_taken_ports(*ports);
  }
  node.congestion_available = first_line(std::string(kTcp) + "tcp_available_congestion_control");
  node.congestion_allowed = first_line(std::string(kTcp) + "tcp_allowed_congestion_control");
  for (const v1::AgentReport& agent : node.agents.agents())
    if (agent.host() != node.own.host() && !agent.address().empty())
      node.paths.push_back(look_at_path(agent.host(), agent.address(), kPathTimeoutMs));
}

void look_at_own_certificates(NodeView& node) {
  if (node.settings.tls != "require") return;
  Result<CertificateSummary> read = look_at_certificates(node.settings.tls_dir, node.hostname);
  if (read.ok())
    node.certificates =
        CertificateView{std::move(read->names), read->fits, read->renewal, read->expires};
  else
    node.certificates = read.status();
}

void look_at_gpus(NodeView& node) {
  node.has_nvidia_driver = look_at_file("/proc/driver/nvidia/version").exists;
  const Result<std::unique_ptr<GpuInventory>> found =
      GpuInventory::open(node.settings.nvml_library);
  node.nvml = found.status();
  if (found.ok()) node.gpus = (*found)->gpus();
}

// As tuttid looks for it: beside itself, unless it is set. Where tuttid is, only a running one
// tells.
Status look_at_worker_binary(const NodeView& node) {
  if (!node.settings.worker_binary.empty()) return check_program(node.settings.worker_binary);
  if (!node.agent_uid) return {};
  std::error_code unknown;
  const std::filesystem::path agent =
      std::filesystem::read_symlink("/proc/" + std::to_string(node.own.pid()) + "/exe", unknown);
  return unknown ? Status() : check_program(agent.parent_path() / "tutti-worker");
}

void look_at_machine(NodeView& node) {
  const std::filesystem::path socket = std::filesystem::absolute(node.settings.socket);
  node.limits = look_at_limits(node.agent_uid ? node.own.pid() : 0);
  node.available_bytes = available_memory_bytes();
  node.overcommit = std::atoi(first_line("/proc/sys/vm/overcommit_memory").c_str());
  node.kernel = kernel_release();
  node.pidfd = check_pidfd();
  node.sealed_memory = check_sealed_memory();
  node.run_dir = look_at_file(node.settings.run_dir);
  node.run_dir_space = check_space(node.settings.run_dir);
  node.worker_binary = look_at_worker_binary(node);
  node.socket_dir = look_at_file(socket.parent_path());
  look_at_gpus(node);
}

}  // namespace

NodeView look_at_node(const DoctorOptions& options) {
  NodeView node;
  node.settings = options.settings;
  node.settings_read = options.settings_read;
  node.config = options.config;
  node.config_exists = options.config_exists;
  node.version = options.version;
  node.protocol = kProtocolVersion;
  node.uid = geteuid();
  node.now = std::time(nullptr);
  look_at_tokens(node);
  ask_agent(options, node);
  node.hostname = !node.settings.host.empty() ? node.settings.host : hostname();
  look_at_own_certificates(node);
  look_at_network(options.timeout_ms, node);
  look_at_machine(node);
  return node;
}

}  // namespace tutti
