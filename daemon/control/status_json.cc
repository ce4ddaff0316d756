// What `tutti status --json` prints, and what the page at / reads.
#include "daemon/control/status_json.h"

#include "daemon/base/status.h"
#include "daemon/base/text.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

void add_rank(Json& json, const v1::RankReport& rank) {
  json.open('{')
      .field("rank", rank.rank())
      .field("pid", rank.pid())
      .field("epoch", rank.epoch())
      .field("operations", rank.operations())
      .field("bytes", rank.bytes())
      .close();
}

void add_path(Json& json, const v1::LinkTime& path) {
  json.open('{')
      .field("from", path.from())
      .field("to", path.to())
      .field("message_us", path.message_us())
      .field("bytes_per_s", path.byte_us() > 0 ? 1e6 / path.byte_us() : 0)
      .close();
}

void add_link(Json& json, const v1::LinkPace& link) {
  json.open('{')
      .field("to", link.to())
      .field("window_us", link.window_us())
      .field("busy_us", link.busy_us())
      .field("latency_us", link.latency_us())
      .field("waited_us", link.waited_us())
      .field("acked_bytes", link.acked_bytes())
      .field("retransmits", link.retransmits())
      .field("round_trip_us", link.round_trip_us())
      .field("usual_bytes_per_s", link.usual_bytes_per_second())
      .close();
}

void add_departure(Json& json, const v1::Departure& departure) {
  json.open('{')
      .field("rank", departure.rank())
      .field("host", departure.host())
      .field("pid", departure.pid())
      .field("cause", departure.cause().message())
      .field("time_ms", departure.time_ms())
      .close();
}

void add_worker(Json& json, const v1::WorkerReport& worker) {
  json.open('{')
      .field("job", worker.job())
      .field("pid", worker.pid())
      .field("uid", worker.uid())
      .field("subject", worker.pass().subject())
      .field("state", worker.state())
      .field("world_size", worker.world_size())
      .field("epoch", worker.epoch())
      .field("strategy", worker.strategy())
      .field("operations", worker.operations())
      .field("failures", worker.failures())
      .field("bytes", worker.bytes())
      .field("sent_bytes", worker.sent_bytes())
      .field("sent_frames", worker.sent_frames())
      .field("received_bytes", worker.received_bytes())
      .field("folded_by_ranks_bytes", worker.folded_by_ranks_bytes())
      .field("folded_by_worker_bytes", worker.folded_by_worker_bytes())
      .field("memory_bytes", worker.memory_bytes())
      .field("gpu_staging_bytes", worker.gpu_staging_bytes())
      .field("gpu_link", worker.gpu_link())
      .field("gpu_link_why", worker.gpu_link_why())
      .key("ranks")
      .open('[');
  for (const v1::RankReport& rank : worker.ranks()) add_rank(json, rank);
  json.close().key("paths").open('[');
  for (const v1::LinkTime& path : worker.tuning().links()) add_path(json, path);
  json.close().key("links").open('[');
  for (const v1::LinkPace& link : worker.links()) add_link(json, link);
  json.close().key("gone").open('[');
  for (const uint32_t rank : worker.departures().ranks()) json.value(rank);
  json.close().key("departures").open('[');
  for (const v1::Departure& departure : worker.departures().first()) add_departure(json, departure);
  json.close().field("ranks_died", worker.ranks_died()).close();
}

void add_ended(Json& json, const v1::EndedJob& ended) {
  json.open('{')
      .field("outcome", ended.outcome())
      .field("time_ms", ended.time_ms())
      .field("sentence", ended.sentence())
      .field("worker_end", ended.worker_end())
      .key("last");
  add_worker(json, ended.last());
  json.close();
}

void add_refused_join(Json& json, const v1::RefusedJoin& refused) {
  json.open('{')
      .field("job", refused.job())
      .field("uid", refused.owner().uid())
      .field("subject", refused.owner().subject())
      .field("rank", refused.rank())
      .field("host", refused.host())
      .field("code", name_of(code_of(refused.status().code())))
      .field("message", refused.status().message())
      .field("ago_ms", refused.ago_ms())
      .close();
}

void add_figures(Json& json, const v1::AgentReport& agent) {
  const v1::Totals& totals = agent.totals();
  json.field("protocol", agent.protocol())
      .field("lost", agent.lost())
      .field("lost_ms", agent.lost_ms())
      .field("certificate_expires", agent.certificate_expires())
      .field("dropped_log_lines", agent.dropped_log_lines())
      .field("processor_ms", agent.processor_ms())
      .field("resident_bytes", agent.resident_bytes())
      .field("run_dir_free_bytes", agent.run_dir_free_bytes())
      .key("totals")
      .open('{')
      .field("jobs_ok", totals.jobs_ok())
      .field("jobs_failed", totals.jobs_failed())
      .field("jobs_stopped", totals.jobs_stopped())
      .field("ranks_died", totals.ranks_died())
      .field("operations_failed", totals.operations_failed())
      .close();
}

void add_gpu(Json& json, const v1::Gpu& gpu) {
  json.open('{')
      .field("index", gpu.index())
      .field("name", gpu.name())
      .field("uuid", gpu.uuid())
      .field("pci_bus_id", gpu.pci_bus_id())
      .field("memory_bytes", gpu.memory_bytes())
      .field("used_bytes", gpu.used_bytes())
      .field("mig", gpu.mig())
      .field("ecc_errors", gpu.ecc_errors())
      .field("nvlinks", gpu.nvlinks())
      .field("state", gpu.state())
      .field("failed", gpu.failed())
      .field("xid", gpu.xid())
      .key("peers")
      .open('[');
  for (const v1::GpuPeer& peer : gpu.peers())
    json.open('{').field("index", peer.index()).field("path", peer.path()).close();
  json.close().close();
}

void add_user(Json& json, const v1::UserReport& user) {
  json.open('{')
      .field("uid", user.uid())
      .field("jobs", user.jobs())
      .field("jobs_max", user.jobs_max())
      .field("ranks", user.ranks())
      .field("ranks_max", user.ranks_max())
      .field("memory_bytes", user.memory_bytes())
      .field("memory_bytes_max", user.memory_bytes_max())
      .close();
}

void add_agent(Json& json, const v1::AgentReport& agent) {
  json.open('{')
      .field("host", agent.host())
      .field("address", agent.address())
      .field("pid", agent.pid())
      .field("state", agent.state())
      .field("coordinator", agent.coordinator())
      .field("coordinator_address", agent.coordinator_address())
      .field("coordinator_setting", agent.coordinator_setting())
      .field("coordinator_state", agent.coordinator_state())
      .field("etcd_state", agent.etcd_state())
      .field("version", agent.version())
      .field("uptime_ms", agent.uptime_ms())
      .field("descriptors", agent.descriptors())
      .field("descriptors_max", agent.descriptors_max())
      .field("metrics_address", agent.metrics_address())
      .key("workers")
      .open('[');
  for (const v1::WorkerReport& worker : agent.workers()) add_worker(json, worker);
  json.close().key("gpus").open('[');
  for (const v1::Gpu& gpu : agent.gpus()) add_gpu(json, gpu);
  json.close().key("users").open('[');
  for (const v1::UserReport& user : agent.users()) add_user(json, user);
  json.close().key("refused").open('[');
  for (const v1::RefusedCallers& refused : agent.refused())
    json.open('{')
        .field("door", refused.door())
        .field("code", refused.code())
        .field("count", refused.count())
        .close();
  json.close().key("refused_joins").open('[');
  for (const v1::RefusedJoin& refused : agent.refused_joins()) add_refused_join(json, refused);
  json.close().key("ended").open('[');
  for (const v1::EndedJob& ended : agent.ended()) add_ended(json, ended);
  json.close();
  add_figures(json, agent);
  json.close();
}

}  // namespace

std::string status_json(const v1::StatusReply& reply) {
  Json json;
  json.open('{').key("agents").open('[');
  for (const v1::AgentReport& agent : reply.agents()) add_agent(json, agent);
  json.close().close();
  return json.line();
}

}  // namespace tutti
