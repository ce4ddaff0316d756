// What `tutti status --json` prints, and what the page at / reads.
#include "daemon/control/status_json.h"

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
  json.close().key("gone").open('[');
  for (const uint32_t rank : worker.departures().ranks()) json.value(rank);
  json.close().close();
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
  json.close().close();
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
