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
  json.open('{').key("rank").number(uint64_t{rank.rank()});
  json.key("pid").number(uint64_t{rank.pid()});
  json.key("epoch").number(uint64_t{rank.epoch()});
  json.key("operations").number(uint64_t{rank.operations()});
  json.key("bytes").number(uint64_t{rank.bytes()}).close();
}

void add_worker(Json& json, const v1::WorkerReport& worker) {
  json.open('{').key("job").text(worker.job());
  json.key("pid").number(uint64_t{worker.pid()});
  json.key("uid").number(uint64_t{worker.uid()});
  json.key("state").text(worker.state());
  json.key("world_size").number(uint64_t{worker.world_size()});
  json.key("epoch").number(uint64_t{worker.epoch()});
  json.key("strategy").text(worker.strategy());
  json.key("operations").number(uint64_t{worker.operations()});
  json.key("failures").number(uint64_t{worker.failures()});
  json.key("bytes").number(uint64_t{worker.bytes()});
  json.key("sent_bytes").number(uint64_t{worker.sent_bytes()});
  json.key("sent_frames").number(uint64_t{worker.sent_frames()});
  json.key("received_bytes").number(uint64_t{worker.received_bytes()});
  json.key("ranks").open('[');
  for (const v1::RankReport& rank : worker.ranks()) add_rank(json, rank);
  json.close().key("gone").open('[');
  for (const uint32_t rank : worker.departures().ranks()) json.number(uint64_t{rank});
  json.close().close();
}

void add_agent(Json& json, const v1::AgentReport& agent) {
  json.open('{').key("host").text(agent.host());
  json.key("address").text(agent.address());
  json.key("pid").number(uint64_t{agent.pid()});
  json.key("state").text(agent.state());
  json.key("coordinator").boolean(agent.coordinator());
  json.key("version").text(agent.version());
  json.key("uptime_ms").number(uint64_t{agent.uptime_ms()});
  json.key("workers").open('[');
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
