#include "daemon/http/metrics.h"

#include <prometheus/text_serializer.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "daemon/http/families.h"
#include "daemon/http/recorded_metrics.h"

namespace tutti {
namespace {

using prometheus::MetricType;

// A figure of one kind of thing: its name, what it is, and how a report tells it.
template <class T>
struct Figure {
  const char* name;
  MetricType type;
  const char* help;
  double (*value)(const T&);
};

double sum_of_workers(const v1::AgentReport& node, uint64_t (*value)(const v1::WorkerReport&)) {
  uint64_t sum = 0;
  for (const v1::WorkerReport& worker : node.workers()) sum += value(worker);
  return static_cast<double>(sum);
}

// An agent that needs no such peer says nothing of it.
bool is_reached(const std::string& state) { return state.empty() || state == "connected"; }

constexpr Figure<v1::AgentReport> kOfNode[] = {
    {"tutti_agent_draining", MetricType::Gauge, "1: an administrator has it take no joins.",
     [](const auto& node) { return node.state() == "draining" ? 1.0 : 0.0; }},
    {"tutti_coordinator_reachable", MetricType::Gauge,
     "1: the agent is registered at its coordinator, or coordinates itself.",
     [](const auto& node) { return is_reached(node.coordinator_state()) ? 1.0 : 0.0; }},
    {"tutti_etcd_reachable", MetricType::Gauge, "1: the agent reaches etcd, or needs none.",
     [](const auto& node) { return is_reached(node.etcd_state()) ? 1.0 : 0.0; }},
    {"tutti_certificate_expiry_timestamp_seconds", MetricType::Gauge,
     "When the agent's certificate expires, since 1970; 0: it has none.",
     [](const auto& node) { return static_cast<double>(node.certificate_expires()); }},
    {"tutti_log_lines_dropped_total", MetricType::Counter,
     "Lines of the agent's log that were not written, because its reader is slow.",
     [](const auto& node) { return static_cast<double>(node.dropped_log_lines()); }},
    {"tutti_run_dir_free_bytes", MetricType::Gauge,
     "What run_dir has room for; 0: nothing, or it cannot be written.",
     [](const auto& node) { return static_cast<double>(node.run_dir_free_bytes()); }},
    {"tutti_ranks_died_total", MetricType::Counter,
     "Ranks of this node that ended without leaving, since the agent started.",
     [](const auto& node) { return static_cast<double>(node.totals().ranks_died()); }},
    {"tutti_operations_failed_total", MetricType::Counter,
     "Operations that ended with an error, of all jobs of this node since the agent started.",
     [](const auto& node) { return static_cast<double>(node.totals().operations_failed()); }},
    {"process_cpu_seconds_total", MetricType::Counter, "Processor time of the agent.",
     [](const auto& node) { return static_cast<double>(node.processor_ms()) / 1e3; }},
    {"process_resident_memory_bytes", MetricType::Gauge, "Memory of the agent.",
     [](const auto& node) { return static_cast<double>(node.resident_bytes()); }},
    {"tutti_agent_uptime_seconds", MetricType::Gauge, "Since the agent started.",
     [](const auto& node) { return static_cast<double>(node.uptime_ms()) / 1e3; }},
    {"tutti_agent_descriptors", MetricType::Gauge, "Descriptors that the agent has open.",
     [](const auto& node) { return static_cast<double>(node.descriptors()); }},
    {"tutti_agent_descriptors_max", MetricType::Gauge, "Descriptors that the agent may have open.",
     [](const auto& node) { return static_cast<double>(node.descriptors_max()); }},
    {"tutti_jobs", MetricType::Gauge, "Jobs with a worker on this node.",
     [](const auto& node) { return static_cast<double>(node.workers_size()); }},
    {"tutti_segments", MetricType::Gauge, "Segments of shared memory, one for each joined rank.",
     [](const auto& node) {
       return sum_of_workers(node,
                             [](const auto& worker) { return uint64_t(worker.ranks_size()); });
     }},
    {"tutti_segment_bytes", MetricType::Gauge,
     "Memory that the segments and the flight recorders have touched.",
     [](const auto& node) {
       return sum_of_workers(node, [](const auto& worker) { return worker.memory_bytes(); });
     }},
};

constexpr Figure<v1::Gpu> kOfGpu[] = {
    {"tutti_gpu_failed", MetricType::Gauge, "1: the GPU does no more work before it is reset.",
     [](const auto& gpu) { return gpu.failed() ? 1.0 : 0.0; }},
    {"tutti_gpu_memory_bytes", MetricType::Gauge, "Memory of the GPU.",
     [](const auto& gpu) { return static_cast<double>(gpu.memory_bytes()); }},
    {"tutti_gpu_used_bytes", MetricType::Gauge, "Memory of the GPU that is in use.",
     [](const auto& gpu) { return static_cast<double>(gpu.used_bytes()); }},
    {"tutti_gpu_ecc_errors", MetricType::Gauge, "Uncorrected, since the driver was loaded.",
     [](const auto& gpu) { return static_cast<double>(gpu.ecc_errors()); }},
};

constexpr Figure<v1::UserReport> kOfUser[] = {
    {"tutti_user_jobs", MetricType::Gauge, "Jobs of a user on this node.",
     [](const auto& user) { return static_cast<double>(user.jobs()); }},
    {"tutti_user_ranks", MetricType::Gauge, "Ranks of a user, joined or joining.",
     [](const auto& user) { return static_cast<double>(user.ranks()); }},
    {"tutti_user_segment_bytes", MetricType::Gauge,
     "Memory of the segments and flight recorders of a user's ranks.",
     [](const auto& user) { return static_cast<double>(user.memory_bytes()); }},
};

constexpr Figure<v1::WorkerReport> kOfJob[] = {
    {"tutti_job_world_size", MetricType::Gauge, "Ranks that the job is to have, on all nodes.",
     [](const auto& job) { return static_cast<double>(job.world_size()); }},
    {"tutti_job_ranks_gone", MetricType::Gauge, "Ranks that have left the newest epoch.",
     [](const auto& job) { return static_cast<double>(job.departures().ranks_size()); }},
    {"tutti_job_epoch", MetricType::Gauge, "The newest epoch: how often the ranks have joined.",
     [](const auto& job) { return static_cast<double>(job.epoch()); }},
    {"tutti_job_operations_total", MetricType::Counter,
     "Operations that ended OK, summed over the ranks of this node, gone ones, too.",
     [](const auto& job) { return static_cast<double>(job.operations()); }},
    {"tutti_job_failures_total", MetricType::Counter,
     "Operations that ended with an error, summed the same way.",
     [](const auto& job) { return static_cast<double>(job.failures()); }},
    {"tutti_job_bytes_total", MetricType::Counter,
     "Bytes of the tensors of operations that ended OK, summed the same way.",
     [](const auto& job) { return static_cast<double>(job.bytes()); }},
    {"tutti_job_sent_bytes_total", MetricType::Counter, "Bytes sent to other nodes.",
     [](const auto& job) { return static_cast<double>(job.sent_bytes()); }},
    {"tutti_job_received_bytes_total", MetricType::Counter, "Bytes received from other nodes.",
     [](const auto& job) { return static_cast<double>(job.received_bytes()); }},
    {"tutti_job_sent_frames_total", MetricType::Counter,
     "Messages of data and of control sent to other nodes.",
     [](const auto& job) { return static_cast<double>(job.sent_frames()); }},
    {"tutti_job_folded_by_ranks_bytes_total", MetricType::Counter,
     "Bytes read by folds of operations among nodes that ranks of this node have done.",
     [](const auto& job) { return static_cast<double>(job.folded_by_ranks_bytes()); }},
    {"tutti_job_folded_by_worker_bytes_total", MetricType::Counter,
     "Bytes read by those that the worker has done, where no rank waited or it is faster.",
     [](const auto& job) { return static_cast<double>(job.folded_by_worker_bytes()); }},
    {"tutti_job_segment_bytes", MetricType::Gauge,
     "Memory of the segments and flight recorders of the job's ranks.",
     [](const auto& job) { return static_cast<double>(job.memory_bytes()); }},
    {"tutti_job_gpu_staging_bytes", MetricType::Gauge,
     "Pinned memory through which tensors of GPUs pass.",
     [](const auto& job) { return static_cast<double>(job.gpu_staging_bytes()); }},
};

constexpr Figure<v1::RankReport> kOfRank[] = {
    {"tutti_operations_total", MetricType::Counter, "Operations of a rank that ended OK.",
     [](const auto& rank) { return static_cast<double>(rank.operations()); }},
    {"tutti_operation_bytes_total", MetricType::Counter,
     "Bytes of the tensors of a rank's operations that ended OK.",
     [](const auto& rank) { return static_cast<double>(rank.bytes()); }},
};

// As strategies are chosen by them. The worker of rank 0's node alone knows them.
constexpr Figure<v1::LinkTime> kOfPath[] = {
    {"tutti_path_bytes_per_second", MetricType::Gauge,
     "What was measured of the way from one node to another; 0: not yet.",
     [](const auto& path) { return path.byte_us() > 0 ? 1e6 / path.byte_us() : 0.0; }},
    {"tutti_path_latency_seconds", MetricType::Gauge,
     "What a message takes from one node to another; 0: not yet measured.",
     [](const auto& path) { return path.message_us() / 1e6; }},
};

template <class T, size_t N>
void add_all(Families& families, const Figure<T> (&figures)[N], const T& of, const Labels& labels) {
  for (const Figure<T>& figure : figures)
    families.add(figure.name, figure.type, figure.help, labels, figure.value(of));
}

void add_node(Families& families, const v1::AgentReport& node, bool is_ready) {
  const Labels host = {{"host", node.host()}};
  families.add(
      "tutti_build_info", MetricType::Gauge,
      "1, for the versions of release and protocol in its labels.",
      with(with(host, "version", node.version()), "protocol", std::to_string(node.protocol())), 1);
  families.add("tutti_agent_serving", MetricType::Gauge,
               "1: the agent takes joins, as /readyz has it; 0: it drains, is busy, or cannot "
               "reach what it needs.",
               host, is_ready ? 1 : 0);
  families.add("tutti_agent_coordinator", MetricType::Gauge,
               "1: this agent coordinates the mesh; by its setting of that name.",
               with(host, "coordinator", node.coordinator_setting()), node.coordinator() ? 1 : 0);
  add_all(families, kOfNode, node, host);
  const v1::Totals& totals = node.totals();
  for (const auto& [outcome, count] : {std::pair("ok", totals.jobs_ok()),
                                       {"failed", totals.jobs_failed()},
                                       {"stopped", totals.jobs_stopped()}})
    families.add("tutti_jobs_ended_total", MetricType::Counter,
                 "Jobs whose worker on this node has ended, since the agent started, by outcome.",
                 with(host, "outcome", outcome), static_cast<double>(count));
  for (const v1::RefusedCallers& refused : node.refused())
    families.add("tutti_refused_callers_total", MetricType::Counter,
                 "Trainers and tools that this agent turned away, by door and code.",
                 with(with(host, "door", refused.door()), "code", refused.code()),
                 static_cast<double>(refused.count()));
  for (const v1::Gpu& gpu : node.gpus())
    add_all(families, kOfGpu, gpu,
            with(with(host, "gpu", std::to_string(gpu.index())), "name", gpu.name()));
}

// "failed: rank 3 left" is the state "failed": a label with a message in it would be a series for
// each.
std::string state_of(const v1::WorkerReport& job) {
  return job.state().substr(0, job.state().find(':'));
}

// A rank that joins again has another handle, while its old one may still be open.
std::map<uint32_t, const v1::RankReport*> newest_ranks(const v1::WorkerReport& job) {
  std::map<uint32_t, const v1::RankReport*> ranks;
  for (const v1::RankReport& rank : job.ranks()) {
    const v1::RankReport*& newest = ranks[rank.rank()];
    if (newest == nullptr || newest->epoch() <= rank.epoch()) newest = &rank;
  }
  return ranks;
}

void add_job(Families& families, const v1::WorkerReport& job, const Labels& labels, bool per_rank) {
  families.add("tutti_job_info", MetricType::Gauge,
               "1, for the state of the job on this node and the strategy that is set.",
               with(with(labels, "state", state_of(job)), "strategy", job.strategy()), 1);
  add_all(families, kOfJob, job, labels);
  const auto ranks = newest_ranks(job);
  families.add("tutti_job_ranks", MetricType::Gauge,
               "Ranks of the job that are joined on this node.", labels,
               static_cast<double>(ranks.size()));
  for (const auto& [number, rank] : ranks)
    if (per_rank) add_all(families, kOfRank, *rank, with(labels, "rank", std::to_string(number)));
  for (const v1::LinkTime& path : job.tuning().links())
    add_all(families, kOfPath, path, with(with(labels, "from", path.from()), "to", path.to()));
}

Labels labels_of(const std::string& host, const std::string& job, uint32_t uid,
                 const std::string& subject) {
  return {{"host", host}, {"job_name", job}, {"uid", std::to_string(uid)}, {"subject", subject}};
}

std::string format_shortest(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// The bound of a bucket is the last label of its line; the others may hold anything.
std::string with_short_bound(const std::string& line) {
  constexpr std::string_view kBound = "le=\"";
  const size_t found = line.rfind(kBound);
  if (!line.substr(0, line.find('{')).ends_with("_bucket") || found == std::string::npos)
    return line;
  const size_t at = found + kBound.size();
  const double bound = std::strtod(line.c_str() + at, nullptr);
  return line.substr(0, at) + (std::isinf(bound) ? "+Inf" : format_shortest(bound)) +
         line.substr(std::min(line.find('"', at), line.size()));
}

// The serializer writes bounds of buckets with all 17 digits: "8.1920000000000008e-06".
std::string with_short_bounds(const std::string& text) {
  std::string out;
  for (size_t from = 0, end = 0; from < text.size(); from = end) {
    end = std::min(text.find('\n', from), text.size() - 1) + 1;
    out += with_short_bound(text.substr(from, end - from));
  }
  return out;
}

std::string text_of(const Families& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families.all());
  return with_short_bounds(out.str());
}

struct Node {
  bool has_failed = false;
  int agents = 0;
  int64_t clock_ahead_ms = 0;
};

// By name, because two agents of one name are one series, which has the worse of both.
std::map<std::string, Node> nodes_of(const v1::StatusReply& status) {
  std::map<std::string, Node> nodes;
  for (const v1::AgentReport& agent : status.agents()) {
    Node& node = nodes[agent.host()];
    node.has_failed |= grade_of(agent) == Grade::fail;
    node.agents += is_gone(agent) ? 0 : 1;
    const int64_t ahead_ms = clock_ahead_ms(status, agent);
    if (std::abs(ahead_ms) > std::abs(node.clock_ahead_ms)) node.clock_ahead_ms = ahead_ms;
  }
  return nodes;
}

}  // namespace

std::string metrics_text(const v1::AgentReport& report, std::span<const RecordedJob> recorded,
                         const MetricsScope& scope) {
  const bool named = scope.named;
  Families families;
  add_node(families, report, scope.is_ready);
  std::set<Labels> seen;  // Prometheus takes no answer in which a series stands twice.
  for (const v1::WorkerReport& job : report.workers()) {
    const Labels labels = labels_of(report.host(), job.job(), job.uid(), job.pass().subject());
    if (named && seen.insert(labels).second) add_job(families, job, labels, scope.per_rank);
  }
  for (const RecordedJob& job : recorded) {
    const v1::Pass& pass = job.pass;
    const Labels labels = labels_of(report.host(), pass.job(), pass.uid(), pass.subject());
    if (named && seen.contains(labels)) add_recorded(families, job.trace, labels, scope.per_rank);
  }
  for (const v1::UserReport& user : report.users())
    if (named)
      add_all(families, kOfUser, user,
              {{"host", report.host()}, {"uid", std::to_string(user.uid())}});
  return text_of(families);
}

std::string findings_text(const v1::StatusReply& status, const MeshDiagnosis& mesh, bool named) {
  Families families;
  for (const auto& [node, found] : nodes_of(status)) {
    const Labels labels = {{"node", node}};
    families.add("tutti_node_failed", MetricType::Gauge,
                 "1: the coordinator has lost the node, or it does not answer.", labels,
                 found.has_failed ? 1 : 0);
    families.add("tutti_node_agents", MetricType::Gauge,
                 "Agents of that name that the coordinator has now.", labels, found.agents);
    families.add("tutti_node_clock_offset_seconds", MetricType::Gauge,
                 "How far the node's clock is ahead of the coordinator's; below 0: behind.", labels,
                 static_cast<double>(found.clock_ahead_ms) / 1e3);
    families.add("tutti_node_coordinates_alone", MetricType::Gauge,
                 "1: ranks wait for others, while the node coordinates by another host's name and "
                 "no other agent is registered.",
                 labels, node == mesh.doubtful_coordinator ? 1 : 0);
  }
  for (const JobDiagnosis& job : mesh.jobs)
    if (named)
      families.add("tutti_job_verdict", MetricType::Gauge,
                   "1, for what tutti explain finds of the job.",
                   {{"job_name", job.key.first},
                    {"uid", std::to_string(job.key.second.uid)},
                    {"subject", job.key.second.subject},
                    {"verdict", std::string(name_of(job.diagnosis.verdict))}},
                   1);
  return text_of(families);
}

}  // namespace tutti
