#include "daemon/agent/start_checks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/agent/admin_door.h"
#include "daemon/base/program.h"
#include "daemon/base/text.h"
#include "daemon/control/address.h"

namespace tutti {
namespace {

EtcdSettings etcd_settings(const Settings& settings) {
  return {.members = settings.etcd,
          .prefix = settings.etcd_prefix,
          .ttl = Millis(settings.etcd_ttl_ms),
          .user = settings.etcd_user,
          .password_file = settings.etcd_password_file,
          .tls_dir = settings.etcd_tls_dir};
}

std::string beside_this_program(const char* name) { return program_path().parent_path() / name; }

void keep(const Status& status, Faults& faults) {
  if (!status.ok()) faults.push_back(status);
}

Status check_socket(const char* setting, const std::string& value, const std::string& path) {
  const Status usable = unix_address(path).status();
  if (usable.ok()) return {};
  return invalid_argument("setting " + std::string(setting) + " = '" + value +
                          "': " + usable.message());
}

// The shortest name of a worker's socket, see Workers::path_of().
std::string shortest_worker_socket(const std::string& run_dir) {
  return run_dir + "/workers/0-0123456789abcdef.sock";
}

Faults check_sockets(const Settings& settings) {
  Faults faults;
  keep(check_socket("socket", settings.socket, settings.socket), faults);
  keep(settings.run_dir.empty()
           ? invalid_argument("setting run_dir = '': name a directory, as /run/tutti")
           : check_socket("run_dir", settings.run_dir, shortest_worker_socket(settings.run_dir)),
       faults);
  return faults;
}

// The agent will make a directory or a socket at `path`; `kind` is S_IFDIR or S_IFSOCK.
Status check_place(const std::string& name, const std::string& path, mode_t kind) {
  struct stat found {};
  const int error = stat(path.c_str(), &found) == 0 ? 0 : errno;
  const std::string begin = "setting " + name + " = '" + path + "': ";
  if (error == ENOTDIR)
    return failed_precondition(begin + "a part of that path is a file; choose another");
  if (error != 0 || (found.st_mode & S_IFMT) == kind) return {};
  return failed_precondition(begin + "that is no " + (kind == S_IFDIR ? "directory" : "socket") +
                             "; move it, or choose another");
}

// As gRPC and the HTTP server cannot listen on one port. Any port (0) is never the other's.
Status check_ports(const Settings& settings) {
  const Result<Address> listen = parse_address(settings.listen);
  const Result<Address> metrics = parse_address(settings.metrics_listen);
  if (!listen.ok() || !metrics.ok() || listen->port == 0 || listen->port != metrics->port)
    return {};
  if (listen->host != metrics->host && !is_wildcard_number(listen->host) &&
      !is_wildcard_number(metrics->host))
    return {};
  return invalid_argument("setting metrics_listen = '" + settings.metrics_listen +
                          "' has the port of listen = " + settings.listen + "; choose another");
}

}  // namespace

Settings with_defaults(Settings settings) {
  if (settings.host.empty()) settings.host = hostname();
  if (settings.worker_binary.empty()) settings.worker_binary = beside_this_program("tutti-worker");
  return settings;
}

ControlOptions control_options(const Settings& settings, const Credentials& credentials) {
  return {.listen = settings.listen,
          .coordinator = settings.coordinator,
          .host = settings.host,
          .credentials = credentials,
          .tls_admin = settings.tls_admin,
          .tls_published = settings.run_dir + "/tls",
          .hello_timeout_ms = static_cast<int>(settings.hello_timeout_ms),
          .coordinator_grace = Millis(settings.coordinator_grace_ms),
          .state_file = settings.run_dir + "/epochs",
          .etcd = etcd_settings(settings),
          .on_coordinator = {}};
}

Faults check_texts(const Settings& given, const Credentials& credentials) {
  const Settings settings = with_defaults(given);
  Faults faults = check_sockets(settings);
  keep(check_ports(settings), faults);
  keep(check_control_texts(control_options(settings, credentials)), faults);
  const Result<Address> metrics = parse_address(settings.metrics_listen);
  const bool is_everywhere = metrics.ok() && is_wildcard_number(metrics->host);
  keep(check_metrics_listen(settings, credentials, is_everywhere), faults);
  return faults;
}

Faults check_start(const Settings& given, const Credentials& credentials) {
  const Settings settings = with_defaults(given);
  const Names names;
  Faults faults = check_sockets(settings);
  keep(check_place("run_dir", settings.run_dir, S_IFDIR), faults);
  keep(check_place("socket", settings.socket, S_IFSOCK), faults);
  keep(check_ports(settings), faults);
  const Status addresses = check_addresses(settings.listen, settings.data_address,
                                           settings.coordinator, settings.etcd, names);
  const bool may_come = addresses.code() == Code::unavailable;
  const ControlOptions control = control_options(settings, credentials);
  const Status texts = check_control_texts(control);
  keep(texts, faults);
  if (texts.ok() && addresses.ok()) keep(check_control(control, names), faults);
  if (texts.ok() && (addresses.ok() || may_come)) keep(check_etcd_files(control), faults);
  if (!may_come) keep(addresses, faults);
  const Result<Address> metrics = parse_address(settings.metrics_listen);
  const bool is_everywhere = metrics.ok() && is_wildcard(metrics->host, names);
  keep(check_metrics_listen(settings, credentials, is_everywhere), faults);
  keep(find_group(settings.admin_group).status(), faults);
  keep(check_worker_binary(settings.worker_binary), faults);
  return faults;
}

// Every join needs it: better no start than an agent that refuses them all.
Status check_worker_binary(const std::string& path) {
  struct stat info {};
  const std::string remedy =
      "; install tutti-worker there, or name it with the setting worker_binary";
  if (stat(path.c_str(), &info) != 0)
    return failed_precondition("there is no worker binary " + path + ": " + std::strerror(errno) +
                               remedy);
  if (S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0) return {};
  return failed_precondition("the worker binary " + path + " cannot be executed by user " +
                             std::to_string(geteuid()) + remedy);
}

// As for the control plane, though this port shows strangers no job.
Status check_metrics_listen(const Settings& settings, const Credentials& credentials,
                            bool is_everywhere) {
  const bool guarded = !credentials.tokens.empty() || credentials.trust_network ||
                       settings.tls == "require" || settings.metrics_public == "yes";
  if (guarded || !is_everywhere) return {};
  return failed_precondition("setting metrics_listen = '" + settings.metrics_listen +
                             "' is open to every network, and there are neither tokens nor TLS; "
                             "set token_file, or metrics_public = yes, or listen on 127.0.0.1");
}

Status check_certificates_of(const Settings& settings) {
  if (settings.tls != "require") return {};
  const std::string host = with_defaults(settings).host;
  const auto certificates = look_at_certificates(settings.tls_dir, host);
  if (!certificates.ok()) return certificates.status();
  if (certificates->fits) return {};
  return failed_precondition("the certificate in tls_dir = " + settings.tls_dir + " is for " +
                             certificates->names + ", so others refuse it from host = " + host +
                             "; issue one for this name, or set host to one of those");
}

}  // namespace tutti
