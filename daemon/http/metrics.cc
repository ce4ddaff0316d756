#include "daemon/http/metrics.h"

#include <prometheus/text_serializer.h>

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

constexpr Figure<v1::AgentReport> kOfNode[] = {
    {"tutti_agent_serving", MetricType::Gauge, "1: the agent takes joins; 0: it drains or is busy.",
     [](const auto& node) { return node.state() == "serving" ? 1.0 : 0.0; }},
    {"tutti_agent_coordinator", MetricType::Gauge, "1: this agent coordinates the mesh.",
     [](const auto& node) { return node.coordinator() ? 1.0 : 0.0; }},
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

void add_node(Families& families, const v1::AgentReport& node) {
  const Labels host = {{"host", node.host()}};
  families.add("tutti_build_info", MetricType::Gauge, "1, for the version in its label.",
               with(host, "version", node.version()), 1);
  add_all(families, kOfNode, node, host);
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

void add_job(Families& families, const v1::WorkerReport& job, const Labels& labels) {
  families.add("tutti_job_info", MetricType::Gauge,
               "1, for the state of the job on this node and the strategy that is set.",
               with(with(labels, "state", state_of(job)), "strategy", job.strategy()), 1);
  add_all(families, kOfJob, job, labels);
  const auto ranks = newest_ranks(job);
  families.add("tutti_job_ranks", MetricType::Gauge,
               "Ranks of the job that are joined on this node.", labels,
               static_cast<double>(ranks.size()));
  for (const auto& [number, rank] : ranks)
    add_all(families, kOfRank, *rank, with(labels, "rank", std::to_string(number)));
  for (const v1::LinkTime& path : job.tuning().links())
    add_all(families, kOfPath, path, with(with(labels, "from", path.from()), "to", path.to()));
}

Labels labels_of(const std::string& host, const std::string& job, uint32_t uid,
                 const std::string& subject) {
  return {{"host", host}, {"job_name", job}, {"uid", std::to_string(uid)}, {"subject", subject}};
}

}  // namespace

std::string metrics_text(const v1::AgentReport& report, std::span<const RecordedJob> recorded,
                         bool named) {
  Families families;
  add_node(families, report);
  std::set<Labels> seen;  // Prometheus takes no answer in which a series stands twice.
  for (const v1::WorkerReport& job : report.workers()) {
    const Labels labels = labels_of(report.host(), job.job(), job.uid(), job.pass().subject());
    if (named && seen.insert(labels).second) add_job(families, job, labels);
  }
  for (const RecordedJob& job : recorded) {
    const v1::Pass& pass = job.pass;
    const Labels labels = labels_of(report.host(), pass.job(), pass.uid(), pass.subject());
    if (named && seen.contains(labels)) add_recorded(families, job.trace, labels);
  }
  for (const v1::UserReport& user : report.users())
    if (named)
      add_all(families, kOfUser, user,
              {{"host", report.host()}, {"uid", std::to_string(user.uid())}});
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families.all());
  return out.str();
}

}  // namespace tutti
