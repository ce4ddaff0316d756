#include "daemon/cli/strategy_report.h"

#include "daemon/base/text.h"
#include "proto/types.h"

namespace tutti {
namespace {

std::string collective_of(const v1::StrategyTime& time) {
  return std::string(name_of(static_cast<Collective>(time.collective() % kCollectives)));
}

// "-" for a value that was not measured.
std::string measured(double value) { return value > 0 ? format_number(value) : "-"; }

double gigabytes_a_second(const v1::LinkTime& link) {
  return link.byte_us() > 0 ? 1 / link.byte_us() / 1000 : 0;
}

std::string times_table(const v1::Tuning& tuning) {
  Table table({"OP", "SIZE", "HOSTS", "RANKS", "STRATEGY", "PREDICTED(us)", "MEASURED(us)",
               "SAMPLES", "AUTO"});
  for (const v1::StrategyTime& time : tuning.times())
    table.add({collective_of(time), format_byte_size(time.bytes()), std::to_string(time.hosts()),
               std::to_string(time.ranks()), time.strategy(), format_number(time.predicted_us()),
               measured(time.measured_us()), std::to_string(time.samples()),
               time.chosen() ? "*" : ""});
  return table.text() + "* what auto takes now; SIZE: up to this many bytes\n";
}

std::string links_table(const v1::Tuning& tuning) {
  Table table({"FROM", "TO", "LATENCY(us)", "GB/s"});
  for (const v1::LinkTime& link : tuning.links())
    table.add(
        {link.from(), link.to(), measured(link.message_us()), measured(gigabytes_a_second(link))});
  return table.text();
}

}  // namespace

const v1::WorkerReport* find_leader(const v1::StatusReply& reply, const std::string& job) {
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers())
      if (worker.job() == job && worker.has_tuning()) return &worker;
  return nullptr;
}

std::string strategy_text(const v1::WorkerReport& leader) {
  const v1::Tuning& tuning = leader.tuning();
  std::string out = "job " + leader.job() + ", epoch " + std::to_string(leader.epoch()) +
                    ", strategy " + leader.strategy() + "\n\n";
  out += tuning.times().empty() ? "no operation between hosts yet\n" : times_table(tuning);
  out += "\n";
  out += tuning.links().empty() ? "no link measured yet\n" : links_table(tuning);
  return out;
}

std::string strategy_json(const v1::WorkerReport& leader) {
  Json json;
  json.open('{')
      .field("job", leader.job())
      .field("epoch", leader.epoch())
      .field("strategy", leader.strategy())
      .key("strategies")
      .open('[');
  for (const v1::StrategyTime& time : leader.tuning().times()) {
    json.open('{')
        .field("op", collective_of(time))
        .field("bytes", time.bytes())
        .field("hosts", time.hosts())
        .field("ranks", time.ranks())
        .field("strategy", time.strategy())
        .field("predicted_us", time.predicted_us())
        .field("measured_us", time.measured_us())
        .field("samples", time.samples())
        .field("chosen", time.chosen())
        .close();
  }
  json.close().key("links").open('[');
  for (const v1::LinkTime& link : leader.tuning().links()) {
    json.open('{')
        .field("from", link.from())
        .field("to", link.to())
        .field("latency_us", link.message_us())
        .field("GBs", gigabytes_a_second(link))
        .close();
  }
  json.close().close();
  return json.line();
}

}  // namespace tutti
