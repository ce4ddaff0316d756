#include "daemon/cli/status_report.h"

#include "daemon/base/text.h"

namespace tutti {
namespace {

std::string duration(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds / 3600) + " h";
}

std::string ranks_of(const v1::WorkerReport& worker) {
  std::string out;
  for (const v1::RankReport& rank : worker.ranks())
    out += (out.empty() ? "" : ",") + std::to_string(rank.rank());
  return (out.empty() ? "-" : out) + " of " + std::to_string(worker.world_size());
}

std::string agents_table(const v1::StatusReply& reply) {
  Table table({"HOST", "ADDRESS", "PID", "STATE", "JOBS", "UP", "VERSION"});
  for (const v1::AgentReport& agent : reply.agents())
    table.add({agent.host() + (agent.coordinator() ? "*" : ""), agent.address(),
               std::to_string(agent.pid()), agent.state(), std::to_string(agent.workers_size()),
               duration(agent.uptime_ms()), agent.version()});
  return table.text();
}

std::string jobs_table(const v1::StatusReply& reply) {
  Table table({"JOB", "HOST", "RANKS", "EPOCH", "STATE", "STRATEGY", "OPERATIONS", "FAILED",
               "BYTES", "SENT", "FRAMES", "RECEIVED", "PID"});
  bool any = false;
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      any = true;
      table.add({worker.job(), agent.host(), ranks_of(worker), std::to_string(worker.epoch()),
                 worker.state(), worker.strategy(), std::to_string(worker.operations()),
                 std::to_string(worker.failures()), format_byte_size(worker.bytes()),
                 format_byte_size(worker.sent_bytes()), std::to_string(worker.sent_frames()),
                 format_byte_size(worker.received_bytes()), std::to_string(worker.pid())});
    }
  return any ? table.text() : "no jobs\n";
}

void add_rank(Json& json, const v1::RankReport& rank) {
  json.open('{')
      .field("rank", rank.rank())
      .field("pid", rank.pid())
      .field("epoch", rank.epoch())
      .field("operations", rank.operations())
      .field("bytes", rank.bytes())
      .close();
}

void add_worker(Json& json, const v1::WorkerReport& worker) {
  json.open('{')
      .field("job", worker.job())
      .field("pid", worker.pid())
      .field("uid", worker.uid())
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
      .key("ranks")
      .open('[');
  for (const v1::RankReport& rank : worker.ranks()) add_rank(json, rank);
  json.close().key("gone").open('[');
  for (const uint32_t rank : worker.departures().ranks()) json.value(rank);
  json.close().close();
}

void add_agent(Json& json, const v1::AgentReport& agent) {
  json.open('{')
      .field("host", agent.host())
      .field("address", agent.address())
      .field("pid", agent.pid())
      .field("state", agent.state())
      .field("coordinator", agent.coordinator())
      .field("version", agent.version())
      .field("uptime_ms", agent.uptime_ms())
      .key("workers")
      .open('[');
  for (const v1::WorkerReport& worker : agent.workers()) add_worker(json, worker);
  json.close().close();
}

}  // namespace

std::string status_text(const v1::StatusReply& reply) {
  return agents_table(reply) + "* coordinator\n\n" + jobs_table(reply);
}

std::string status_json(const v1::StatusReply& reply) {
  Json json;
  json.open('{').key("agents").open('[');
  for (const v1::AgentReport& agent : reply.agents()) add_agent(json, agent);
  json.close().close();
  return json.line();
}

}  // namespace tutti
