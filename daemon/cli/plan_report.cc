#include "daemon/cli/plan_report.h"

#include <algorithm>

#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr double kBitsAByte = 8;
constexpr double kGbpsAByteUs = 1000;  // 1 Gbit/s is 1,000 bits a microsecond.

double gbps_of(const LinkCost& link) { return kBitsAByte / kGbpsAByteUs / link.byte_us; }

std::vector<PlanRow> rows_of(const PlanQuestion& question, int hosts) {
  std::vector<PlanRow> rows;
  const Workload work{question.collective, question.bytes, hosts, hosts * question.per_host};
  for (const Strategy& strategy : candidates(question.collective, hosts)) {
    const Traffic traffic = traffic_of(question.collective, strategy, hosts);
    rows.push_back({hosts, work.ranks, strategy, predict(work, traffic, question.link)});
  }
  std::ranges::sort(rows, {}, [](const PlanRow& row) { return row.prediction.us; });
  rows.front().best = true;
  return rows;
}

double time_us(const PlanRow& row) { return row.prediction.start_us + row.prediction.us; }

}  // namespace

std::vector<int> usual_host_counts() {
  std::vector<int> counts;
  for (int hosts = 8; hosts <= 4096; hosts *= 2) counts.push_back(hosts);
  return counts;
}

Result<LinkCost> link_cost_of(double link_us, double link_gbps) {
  if (!(link_us > 0) || !(link_gbps > 0))
    return invalid_argument("--link-us " + format_number(link_us) + " --link-gbps " +
                            format_number(link_gbps) + ": both must be above 0");
  return LinkCost{link_us, kBitsAByte / kGbpsAByteUs / link_gbps};
}

std::vector<PlanRow> plan_rows(const PlanQuestion& question) {
  std::vector<PlanRow> rows;
  for (const int hosts : question.hosts) {
    const std::vector<PlanRow> some = rows_of(question, hosts);
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return rows;
}

std::string plan_text(const PlanQuestion& question, const std::vector<PlanRow>& rows) {
  std::string out = std::string(name_of(question.collective)) + " of " +
                    format_byte_size(question.bytes) + ", " + std::to_string(question.per_host) +
                    (question.per_host == 1 ? " rank" : " ranks") + " a host; links of " +
                    format_number(question.link.message_us) + " us and " +
                    format_number(gbps_of(question.link)) + " Gbit/s, " + question.source + "\n\n";
  Table table({"HOSTS", "RANKS", "STRATEGY", "TIME(ms)", "ROUNDS", "SENT(MiB)", ""});
  for (const PlanRow& row : rows)
    table.add({std::to_string(row.hosts), std::to_string(row.ranks), to_string(row.strategy),
               format_number(time_us(row) / 1000), std::to_string(row.prediction.rounds),
               format_number(row.prediction.sent_bytes / (1 << 20)), row.best ? "*" : ""});
  return out + table.text() +
         "* best; SENT: between hosts, by the host that sends most; times are predictions\n";
}

std::string plan_json(const PlanQuestion& question, const std::vector<PlanRow>& rows) {
  Json json;
  json.open('{')
      .field("op", name_of(question.collective))
      .field("bytes", question.bytes)
      .field("per_host", question.per_host)
      .field("link_us", question.link.message_us)
      .field("link_gbps", gbps_of(question.link))
      .key("plans")
      .open('[');
  for (const PlanRow& row : rows) {
    json.open('{')
        .field("hosts", row.hosts)
        .field("ranks", row.ranks)
        .field("strategy", to_string(row.strategy))
        .field("predicted_us", time_us(row))
        .field("rounds", row.prediction.rounds)
        .field("sent_bytes", row.prediction.sent_bytes)
        .field("best", row.best)
        .close();
  }
  json.close().close();
  return json.line();
}

}  // namespace tutti
