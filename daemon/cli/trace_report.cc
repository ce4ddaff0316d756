#include "daemon/cli/trace_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "daemon/base/text.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/types.h"

namespace tutti {
namespace {

// "14:03:07.123456", by this machine's time zone.
std::string time_text(uint64_t ns) {
  const auto seconds = static_cast<time_t>(ns / 1'000'000'000);
  tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%02d:%02d:%02d.%06u", local.tm_hour, local.tm_min,
                local.tm_sec, static_cast<unsigned>(ns % 1'000'000'000 / 1'000));
  return text.data();
}

std::string us_text(uint64_t ns) { return format_number(static_cast<double>(ns) / 1'000); }

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (text.empty() ? "" : ",") + std::to_string(ranks[i]);
  return ranks.size() > kShown ? text + ",..." : text;
}

// Those in force where they are known, else what was asked for.
std::string strategies_text(const TracedAcrossRanks& operation) {
  const v1::TracedOperation& from =
      operation.hosts.empty() ? operation.any() : *operation.hosts.begin()->second;
  const std::string local = strategy_text(from.local_strategy());
  const std::string global = strategy_text(from.global_strategy());
  return local == global ? local : local + "," + global;
}

std::string outcome_text(const TracedAcrossRanks& operation) {
  if (operation.code() != TUTTI_OK)
    return code_text(operation.code()) + (operation.disagrees() ? " (ranks disagree)" : "");
  if (!operation.missing.empty() && !operation.ended())
    return "waits for " + ranks_text(operation.missing);
  return operation.ended() ? "OK" : "under way";
}

std::string among_hosts_text(const TracedAcrossRanks& operation) {
  uint64_t most = 0;
  for (const auto& [host, global] : operation.hosts)
    if (global->ended()) most = std::max(most, global->duration_ns());
  return most == 0 ? "-" : us_text(most);
}

void add_row(Table& table, const TracedAcrossRanks& operation) {
  const v1::TracedOperation& any = operation.any();
  const auto last = operation.last();
  const auto duration = operation.duration_ns();
  const std::string reduction = op_text(any);
  table.add({time_text(operation.begun_ns()), std::to_string(operation.epoch),
             std::to_string(operation.group), std::to_string(operation.number),
             collective_text(any) + (reduction.empty() ? "" : " " + reduction), dtype_text(any),
             std::to_string(any.count()), strategies_text(operation),
             last ? std::to_string(last->rank) : "-", last ? us_text(last->late_ns) : "-",
             among_hosts_text(operation), duration ? us_text(*duration) : "-",
             outcome_text(operation)});
}

std::vector<TracedAcrossRanks> last_operations(const v1::TraceReply& reply, uint64_t last) {
  std::vector<TracedAcrossRanks> operations = operations_of(reply);
  if (last != 0 && operations.size() > last)
    operations.erase(operations.begin(), operations.end() - static_cast<std::ptrdiff_t>(last));
  return operations;
}

void write(Json& json, const v1::TracedOperation& operation) {
  json.field("begun_ns", operation.begun_ns());
  json.field("ended", operation.ended());
  if (operation.ended())
    json.field("duration_ns", operation.duration_ns()).field("code", code_text(operation.code()));
}

void write(Json& json, const TracedAcrossRanks& operation,
           const std::map<uint32_t, std::string>& hosts) {
  const v1::TracedOperation& any = operation.any();
  json.open('{').field("uid", operation.owner.uid).field("epoch", operation.epoch);
  json.field("group", operation.group).field("number", operation.number);
  json.field("collective", collective_text(any)).field("dtype", dtype_text(any));
  json.field("op", op_text(any)).field("count", any.count()).field("bytes", any.bytes());
  json.field("root", any.root()).field("strategy", strategies_text(operation));
  json.field("disagrees", operation.disagrees()).key("ranks").open('[');
  for (const auto& [rank, own] : operation.ranks) {
    const auto host = hosts.find(rank);
    json.open('{').field("rank", rank).field("host", host == hosts.end() ? "" : host->second);
    json.field("count", own->count());
    write(json, *own);
    json.close();
  }
  json.close().key("hosts").open('[');
  for (const auto& [host, own] : operation.hosts) {
    json.open('{').field("host", host);
    write(json, *own);
    json.close();
  }
  json.close().key("waits_for").open('[');
  for (const uint32_t rank : operation.missing) json.value(rank);
  json.close().close();
}

// Where nobody coordinates, nobody knows who the others are.
std::string missing_line(const v1::AgentReport& agent) {
  const std::string& name = agent.host().empty() ? agent.address() : agent.host();
  return (name.empty() ? "every other host" : "host " + name) + " is missing: " + agent.state() +
         "\n";
}

}  // namespace

std::string trace_text(const v1::TraceReply& reply, uint64_t last) {
  Table table({"TIME", "EPOCH", "GROUP", "CALL", "COLLECTIVE", "DTYPE", "COUNT", "STRATEGY", "LAST",
               "LATE_US", "HOSTS_US", "US", "OUTCOME"});
  for (const TracedAcrossRanks& operation : last_operations(reply, last)) add_row(table, operation);
  std::string text = table.text();
  for (const v1::HostTrace& trace : reply.hosts())
    if (trace.cut())
      text += "host " + trace.host() + " has more than a reply may hold; ask with --last\n";
  for (const v1::AgentReport& agent : reply.missing()) text += missing_line(agent);
  return text;
}

std::string trace_json(const v1::TraceReply& reply, uint64_t last) {
  Json json;
  json.open('{').key("hosts").open('[');
  for (const v1::HostTrace& trace : reply.hosts()) {
    json.open('{').field("host", trace.host()).field("job", trace.job());
    json.field("uid", trace.owner().uid()).field("epoch", trace.epoch());
    json.field("world_size", trace.world_size()).field("ended", trace.ended());
    json.field("cut", trace.cut()).close();
  }
  json.close().key("missing").open('[');
  for (const v1::AgentReport& agent : reply.missing())
    json.open('{')
        .field("host", agent.host())
        .field("address", agent.address())
        .field("state", agent.state())
        .close();
  json.close().key("operations").open('[');
  for (const TracedAcrossRanks& operation : last_operations(reply, last))
    write(json, operation, hosts_of_ranks(reply, operation.owner, operation.epoch));
  return json.close().close().line();
}

}  // namespace tutti
