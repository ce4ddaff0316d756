#include "daemon/base/settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <utility>

#include "daemon/base/address.h"
#include "daemon/base/foreign_text.h"
#include "daemon/base/port_range.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kTebibyte = int64_t{1} << 40;

SettingRow text_row(SettingGroup group, std::string_view name, std::string Settings::*member,
                    std::string_view help) {
  return {.group = group, .name = name, .help = help, .text = member};
}
SettingRow number_row(SettingGroup group, std::string_view name, int64_t Settings::*member,
                      int64_t min, int64_t max, std::string_view help) {
  return {.group = group, .name = name, .help = help, .number = member, .min = min, .max = max};
}

SettingRow choice_row(SettingGroup group, std::string_view name, std::string Settings::*member,
                      std::string_view choices, std::string_view help) {
  return {.group = group, .name = name, .help = help, .text = member, .choices = choices};
}

using S = Settings;
using enum SettingGroup;
const std::array kRows = {
    text_row(basic, "socket", &S::socket, "Unix socket that trainers connect to"),
    text_row(expert, "run_dir", &S::run_dir,
             "directory of the workers' sockets; private to the agent"),
    text_row(basic, "listen", &S::listen,
             "host:port of the control plane; port 0 takes a free one"),
    text_row(basic, "coordinator", &S::coordinator,
             "host:port of the coordinating agent; empty: this one"),
    text_row(basic, "host", &S::host,
             "this host's name in rosters and messages; empty: the hostname"),
    text_row(basic, "data_address", &S::data_address,
             "address the workers' data links listen on; empty: the host part of listen"),
    text_row(expert, "worker_binary", &S::worker_binary,
             "path of tutti-worker; empty: beside this program"),
    text_row(expert, "worker_environment", &S::worker_environment,
             "variables of tuttid's environment that other users' workers get; * at the end "
             "matches any rest"),
    text_row(security, "token", &S::token,
             "a token that trainers and agents must show; its holders may act as agents: better a "
             "token_file"),
    text_row(security, "token_file", &S::token_file,
             "file of tokens, unless token is set, one a line: TOKEN role=trainer,agent,admin "
             "[jobs=PATTERN] [subject=NAME]; only its owner and group may read it"),
    text_row(security, "admin_group", &S::admin_group,
             "group whose members may administer through the socket, besides root and tuttid's "
             "user; empty: none"),
    choice_row(security, "trust_network", &S::trust_network, "no yes",
               "yes: without tokens and TLS, treat every caller of the control plane as an agent "
               "or worker of this mesh"),
    choice_row(security, "tls", &S::tls, "off require",
               "require: encrypt control plane and links; hosts prove their names by certificates"),
    text_row(security, "tls_dir", &S::tls_dir,
             "directory of this host's tls.crt, tls.key and ca.crt; read again when they change"),
    text_row(security, "tls_admin", &S::tls_admin,
             "name in the certificates of administrators on other hosts"),
    choice_row(basic, "log_level", &S::log_level, "trace debug info warn error off",
               "least severe messages that are logged"),
    choice_row(basic, "log_format", &S::log_format, "text json",
               "form of the log: lines of text, or a JSON object a line"),
    number_row(
        expert, "log_lines", &S::log_lines, 16, 1 << 20,
        "lines that wait to be written to the log; beyond, new ones are dropped and counted"),
    text_row(gpus, "nvml_library", &S::nvml_library,
             "library that lists the node's GPUs; if absent, there are none"),
    number_row(basic, "drain_ms", &S::drain_ms, 0, 24 * kHourMs,
               "how long the agent waits for its node's jobs after SIGTERM, refusing new ones, "
               "before it ends them; 0: it ends at once, and they continue"),
    text_row(basic, "metrics_listen", &S::metrics_listen,
             "host:port of /metrics, /healthz, /readyz and the page at /; empty: none"),
    choice_row(security, "metrics_public", &S::metrics_public, "no yes",
               "yes: show the metrics of all jobs to every caller; no: to tokens with role=admin"),
    choice_row(limits, "metrics_per_rank", &S::metrics_per_rank, "no yes",
               "no: metrics have a series for each job on a node, not for each of its ranks"),
    number_row(limits, "trace_jobs", &S::trace_jobs, 0, 65'536,
               "ended jobs whose last operations are kept for tutti trace"),
    number_row(limits, "trace_keep_ms", &S::trace_keep_ms, 0, 24 * kHourMs,
               "how long they are kept"),
    number_row(expert, "coordinator_grace_ms", &S::coordinator_grace_ms, 0, kHourMs,
               "how long workers have to come back to a coordinator"),
    text_row(basic, "etcd", &S::etcd,
             "host:port of the members of an etcd cluster, separated by commas, through which "
             "agents elect the coordinator; empty: coordinator names it"),
    text_row(expert, "etcd_prefix", &S::etcd_prefix, "prefix of this mesh's keys in etcd"),
    number_row(expert, "etcd_ttl_ms", &S::etcd_ttl_ms, 2'000, kHourMs, "lease of an agent in etcd"),
    text_row(security, "etcd_user", &S::etcd_user, "user for etcd; empty: none"),
    text_row(security, "etcd_password_file", &S::etcd_password_file,
             "file with the password of etcd_user; only its owner and group may read it"),
    text_row(security, "etcd_tls_dir", &S::etcd_tls_dir,
             "directory of ca.crt for etcd, and of tls.crt and tls.key if etcd requires a "
             "certificate; empty: no TLS"),
    number_row(basic, "join_timeout_ms", &S::join_timeout_ms, 1, 24 * kHourMs,
               "default time that a join waits for the other ranks"),
    number_row(expert, "worker_idle_ms", &S::worker_idle_ms, 1, 24 * kHourMs,
               "how long a worker stays without trainers"),
    number_row(expert, "hello_timeout_ms", &S::hello_timeout_ms, 1, kHourMs,
               "how long a connection has to send its hello"),
    number_row(limits, "half_open_hellos", &S::half_open_hellos, 1, 65'536,
               "connections of trainers without a hello yet; beyond, the oldest of the user with "
               "most is closed"),
    number_row(limits, "jobs_max", &S::jobs_max, 1, 65'536,
               "jobs on this node, each with a worker"),
    number_row(limits, "user_jobs_max", &S::user_jobs_max, 1, 65'536,
               "jobs of one user on this node"),
    number_row(limits, "user_ranks_max", &S::user_ranks_max, 1, 65'536,
               "ranks of one user on this node, joined or joining"),
    number_row(limits, "user_memory_bytes", &S::user_memory_bytes, 1 << 20, 64 * kTebibyte,
               "memory that the segments and flight recorders of one user's ranks have touched; "
               "beyond, the user's joins are refused"),
    number_row(basic, "op_timeout_ms", &S::op_timeout_ms, 1, 24 * kHourMs,
               "default deadline of an operation"),
    number_row(limits, "segment_bytes", &S::segment_bytes, 1 << 20, 64 * kTebibyte,
               "address space of one trainer's segment, or less (ulimit -v, ulimit -f); pages cost "
               "nothing until touched"),
    number_row(expert, "slice_bytes", &S::slice_bytes, 4096, int64_t{1} << 30,
               "what the engine moves at a time, rounded down to a power of two, at most half of "
               "frame_bytes_max; the same on all hosts"),
    number_row(expert, "slices_in_flight", &S::slices_in_flight, 1, 64,
               "slices of one operation in flight; the same on all hosts"),
    number_row(
        expert, "stay_awake_us", &S::stay_awake_us, 0, 1'000'000,
        "how long a worker polls before it sleeps, while ranks wait for it or leave it a core"),
    choice_row(expert, "worker_cores", &S::worker_cores, "trainers any",
               "trainers: a worker runs on the cores that its trainers are bound to; any: on all"),
    choice_row(expert, "folding", &S::folding, "auto ranks worker",
               "who reduces what goes between hosts: ranks, if any waits; worker; auto: ranks, if "
               "the worker may run on four cores or more"),
    number_row(expert, "ops_in_flight", &S::ops_in_flight, 1, 64,
               "operations of one worker in flight; the same on all hosts"),
    number_row(expert, "early_bytes", &S::early_bytes, 0, int64_t{1} << 40,
               "bytes that a worker sends to a host before the operation has started there; the "
               "same on all hosts"),
    text_row(gpus, "cuda_driver", &S::cuda_driver,
             "library of the CUDA driver; loaded when a rank first offers GPU memory"),
    number_row(gpus, "gpu_staging_bytes", &S::gpu_staging_bytes, 0, kTebibyte,
               "pinned memory of one rank for tensors in GPU memory that the worker cannot map"),
    number_row(gpus, "gpu_ranks", &S::gpu_ranks, 1, 4096, "ranks of one job that may use one GPU"),
    choice_row(gpus, "gpu_link", &S::gpu_link, "auto host nccl",
               "how operations on GPUs go between hosts: host, through host memory; nccl, where "
               "all hosts can; auto, as nccl without a warning"),
    text_row(gpus, "nccl_library", &S::nccl_library,
             "library of NCCL, 2.18 or later, the same on all hosts; loaded if gpu_link needs it"),
    number_row(gpus, "nccl_timeout_ms", &S::nccl_timeout_ms, 100, kHourMs,
               "how long NCCL has to make or to end a communicator"),
    choice_row(basic, "transport", &S::transport, "auto tcp grpc",
               "links to other hosts' workers: tcp (auto), or grpc for proxies"),
    text_row(basic, "data_ports", &S::data_ports,
             "ports of the workers' data links, such as 7610-7700; empty: the kernel chooses"),
    choice_row(expert, "data_streams", &S::data_streams, "auto 1 2 4 8 16",
               "connections of a tcp link that carry large payloads, each with a thread of the "
               "worker's; the fewer of both hosts'; 1: the link's only one; auto: by cores"),
    text_row(expert, "tcp_congestion", &S::tcp_congestion,
             "congestion control of tcp links, if the kernel allows it; empty: the kernel's"),
    number_row(limits, "frame_bytes_max", &S::frame_bytes_max, 512 << 10, int64_t{1} << 30,
               "largest frame that a link accepts"),
    number_row(limits, "link_queue_bytes", &S::link_queue_bytes, 4096, kTebibyte,
               "bytes that a link holds before it pushes back; at least what early_bytes and the "
               "slices in flight need"),
    number_row(expert, "connect_timeout_ms", &S::connect_timeout_ms, 1, kHourMs,
               "how long opening a link may take"),
    number_row(expert, "silence_ms", &S::silence_ms, 100, kHourMs,
               "a peer that answers nothing for so long is gone"),
    number_row(limits, "half_open_links", &S::half_open_links, 16, 65'536,
               "links of other hosts that have not proven the job's secret yet; beyond, the oldest "
               "of the address with most is closed"),
    number_row(limits, "parked_links", &S::parked_links, 1, 65'536,
               "links for an epoch that this worker does not know yet; beyond, the oldest of the "
               "address with most is closed"),
};

Status check_each_address(std::string_view separated_by_commas) {
  for (const std::string& one : split(separated_by_commas, ','))
    if (Status read = parse_address(one).status(); !read.ok()) return read;
  return {};
}

Status check_host(const std::string& text) {
  if (parse_address(text + ":0").ok()) return {};
  return invalid_argument("'" + text + "': expected an address without a port, such as 10.0.0.1");
}

// What rows do not say of a text: its form.
Status check_text(std::string_view name, const std::string& text) {
  if (name == "data_ports") return parse_port_range(text).status();
  if (name == "listen") return parse_address(text).status();
  if (text.empty()) return {};
  if (name == "coordinator" || name == "metrics_listen") return parse_address(text).status();
  if (name == "data_address") return check_host(text);
  if (name == "host") return check_name("the host's name", text, kHostNameBytesMax);
  return name == "etcd" ? check_each_address(text) : Status();
}

bool is_choice(std::string_view text, const SettingRow& row) {
  const std::vector<std::string> choices = split(row.choices, ' ');
  return row.choices.empty() || std::ranges::find(choices, text) != choices.end();
}

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view unquote(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// A # inside quotes belongs to the value.
std::string_view strip_comment(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    quoted ^= line[i] == '"';
    if (line[i] == '#' && !quoted) return line.substr(0, i);
  }
  return line;
}

// Editors of other systems begin files with it.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The lines on which settings were given.
using Given = std::map<std::string, int, std::less<>>;

Status check_once(Given& given, std::string_view name, int line) {
  const auto [first, is_first] = given.emplace(name, line);
  if (is_first) return {};
  return invalid_argument("setting " + first->first + " is given twice, first in line " +
                          std::to_string(first->second) + "; remove one of the lines");
}

// Messages leave out the value, which may be a token.
Status check_quotes(std::string_view name, std::string_view value) {
  const auto quotes = std::ranges::count(value, '"');
  if (quotes == 0 || (quotes == 2 && value.front() == '"' && value.back() == '"')) return {};
  return invalid_argument("setting " + std::string(name) +
                          ": the quotes are not balanced around its value; write " +
                          std::string(name) + " = \"...\"");
}

Status read_line(Settings& settings, std::string_view line, int number, Given& given) {
  line = trim(strip_comment(line));
  if (line.empty()) return {};
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return invalid_argument("expected: name = value");
  const std::string_view name = trim(line.substr(0, equals));
  const std::string_view value = trim(line.substr(equals + 1));
  if (Status quotes = check_quotes(name, value); !quotes.ok()) return quotes;
  if (Status set = set_setting(settings, name, unquote(value)); !set.ok()) return set;
  return check_once(given, name, number);
}

void keep(const Status& status, Status& first, Faults* faults) {
  if (status.ok()) return;
  if (first.ok()) first = status;
  if (faults != nullptr) faults->push_back(status);
}

std::vector<std::string_view> setting_names() {
  std::vector<std::string_view> names;
  for (const SettingRow& row : kRows) names.push_back(row.name);
  return names;
}

using Micros = std::chrono::microseconds;

constexpr std::string_view kFiner = "this is finer than the unit of the setting";
bool is_finer(const Status& status) { return status.message() == kFiner; }

Result<int64_t> parse_in(std::string_view text, Micros unit) {
  const Result<Micros> time = parse_duration(text);
  if (!time.ok()) return time.status();
  if (*time % unit != Micros(0)) return invalid_argument(std::string(kFiner));
  return *time / unit;
}

// What a number may be written as beside its digits, and how that is read.
Result<int64_t> parse_number(const SettingRow& row, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  if (row.name.ends_with("_ms")) return parse_in(text, Micros(1'000));
  if (row.name.ends_with("_us")) return parse_in(text, Micros(1));
  if (!row.name.ends_with("_bytes") && !row.name.ends_with("_bytes_max"))
    return invalid_argument("no number");
  const Result<uint64_t> bytes = parse_byte_size(text);
  if (!bytes.ok()) return bytes.status();
  if (!std::in_range<int64_t>(*bytes)) return invalid_argument("too large");
  return static_cast<int64_t>(*bytes);
}

std::string_view units_of(const SettingRow& row) {
  if (row.name.ends_with("_ms")) return " (milliseconds), or a time such as 500ms, 30s, 2m or 1h";
  if (row.name.ends_with("_us")) return " (microseconds), or a time such as 200us or 1ms";
  const bool is_size = row.name.ends_with("_bytes") || row.name.ends_with("_bytes_max");
  return is_size ? " (bytes), or a size such as 64K, 16M or 1G" : "";
}

Status set_number(Settings& settings, const SettingRow& row, std::string_view text) {
  const Result<int64_t> value = parse_number(row, text);
  if (!value.ok() || *value < row.min || *value > row.max)
    return invalid_argument("setting " + std::string(row.name) + " = '" + std::string(text) +
                            "': " + (is_finer(value.status()) ? std::string(kFiner) + "; " : "") +
                            "expected a number from " + std::to_string(row.min) + " to " +
                            std::to_string(row.max) + std::string(units_of(row)));
  settings.*row.number = *value;
  return {};
}

}  // namespace

std::span<const SettingRow> setting_rows() { return kRows; }

Status set_setting(Settings& settings, std::string_view name, std::string_view text) {
  const auto row = std::ranges::find(kRows, name, &SettingRow::name);
  if (row == kRows.end()) {
    const std::string hint = did_you_mean(name, setting_names());
    return not_found("there is no setting '" + std::string(name) + "'" +
                     (hint.empty() ? "; tuttid --help-all lists them" : hint));
  }
  if (row->text != nullptr) {
    if (!is_choice(text, *row))
      return invalid_argument("setting " + std::string(name) + " = '" + std::string(text) +
                              "': expected one of: " + std::string(row->choices));
    if (const Status checked = check_text(name, std::string(text)); !checked.ok())
      return invalid_argument("setting " + std::string(name) + " = " + checked.message());
    settings.*row->text = text;
    return {};
  }
  return set_number(settings, *row, text);
}

std::string setting_text(const Settings& settings, const SettingRow& row) {
  return row.text != nullptr ? settings.*row.text : std::to_string(settings.*row.number);
}

Status read_settings_file(Settings& settings, const std::string& path, Faults* faults) {
  std::ifstream file(path);
  const auto cannot_read = [&] {
    Status first;
    keep(errno_status("cannot read settings file " + path), first, faults);
    return first;
  };
  if (!file) return cannot_read();
  errno = 0;
  Status status = read_settings_lines(settings, file, path, faults);
  return status.ok() && file.bad() ? cannot_read() : status;
}

Status read_settings_lines(Settings& settings, std::istream& lines, const std::string& name,
                           Faults* faults) {
  Status first;
  Given given;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    const Status status = read_line(settings, line, number, given);
    if (!status.ok())
      keep(invalid_argument(name + ":" + std::to_string(number) + ": " + status.message()), first,
           faults);
  }
  return first;
}

Status read_settings_environment(Settings& settings, Faults* faults) {
  Status first;
  for (const SettingRow& row : kRows) {
    const std::string name = environment_name_of(row);
    const char* text = std::getenv(name.c_str());
    if (text == nullptr) continue;
    const Status status = set_setting(settings, row.name, text);
    if (!status.ok())
      keep({status.code(), "environment " + name + ": " + status.message()}, first, faults);
  }
  return first;
}

std::string flag_of(const SettingRow& row) {
  std::string flag = "--" + std::string(row.name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string environment_name_of(const SettingRow& row) {
  std::string name = "TUTTI_" + std::string(row.name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace tutti
