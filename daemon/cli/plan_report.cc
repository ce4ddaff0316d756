#include "daemon/cli/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/base/threads.h"

namespace tutti {
namespace {

constexpr double kBitsAByte = 8;
constexpr double kGbpsAByteUs = 1000;  // 1 Gbit/s is 1,000 bits a microsecond.

constexpr double kGainMin = 0.10;
constexpr double kClose = 0.01;  // Of the best: more streams or cores for less are not worth it.
constexpr int kCoresMax = 1024;
constexpr std::array<int, 4> kStreams = {2, 4, 8, 16};

// Whether one can divide by it.
bool is_rate(double gbps) { return gbps > 0 && std::isnormal(1 / gbps); }
double byte_us_of(double gbps) { return kBitsAByte / kGbpsAByteUs / gbps; }
double gbps_of(const LinkCost& link) { return kBitsAByte / kGbpsAByteUs / link.byte_us; }
double time_us(const PlanRow& row) { return row.prediction.start_us + row.prediction.us; }

Settings settings_of(const PlanHost& host) {
  Settings settings;
  settings.data_streams = host.streams;
  return settings;
}

std::vector<PlanRow> rows_of(const PlanQuestion& question, int hosts) {
  std::vector<PlanRow> rows;
  const Settings settings;
  const Pipeline pipeline{static_cast<uint64_t>(settings.slice_bytes),
                          static_cast<int>(settings.slices_in_flight)};
  const HostCost host = host_cost_of(question.host, hosts, question.per_host);
  const Workload work{question.collective, question.bytes, hosts, hosts * question.per_host};
  for (const Strategy& strategy : candidates(question.collective, hosts)) {
    const Traffic traffic = traffic_of(work, strategy);
    rows.push_back(
        {hosts, work.ranks, strategy, predict(work, traffic, question.link, host, pipeline)});
  }
  std::ranges::sort(rows, {}, [](const PlanRow& row) { return row.prediction.us; });
  rows.front().best = true;
  return rows;
}

// ---- Gains ----

double best_us(const PlanQuestion& question) {
  return time_us(rows_of(question, std::ranges::max(question.hosts)).front());
}

// Appends the first of `others`, questions by the text of their option, that comes close to the
// best of them.
void add_gain(const std::vector<std::pair<std::string, PlanQuestion>>& others, double now_us,
              std::vector<PlanGain>& gains) {
  std::vector<PlanGain> all;
  for (const auto& [option, question] : others) all.push_back({option, best_us(question)});
  if (all.empty()) return;
  const double best = std::ranges::min(all, {}, &PlanGain::us).us;
  const auto first = std::ranges::find_if(
      all, [&](const PlanGain& gain) { return gain.us <= best * (1 + kClose); });
  if (first->us < (1 - kGainMin) * now_us) gains.push_back(*first);
}

// ---- Texts ----

std::string count_of(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string describe_host(const PlanQuestion& question) {
  const PlanHost& host = question.host;
  const HostCost cost = host_cost_of(host, std::ranges::max(question.hosts), question.per_host);
  const std::string fold_gbps = format_number(host.fold_gbps) + " Gbit/s";
  return "hosts of " + count_of(static_cast<size_t>(host.cores), "core") + ", " +
         count_of(data_streams(settings_of(host), static_cast<size_t>(host.cores)), "data stream") +
         " of " + format_number(host.stream_gbps) + " Gbit/s; " +
         (cost.folding_ranks > 0 ? "waiting ranks fold " + fold_gbps + " each"
                                 : "the worker folds " + fold_gbps) +
         "; memory of " + format_number(host.memory_gbps) + " Gbit/s\n";
}

std::string describe_gains(const PlanQuestion& question) {
  std::string out;
  for (const PlanGain& gain : plan_gains(question))
    out += (out.empty() ? "" : ", ") + format_number(gain.us / 1000) + " ms with " + gain.option;
  if (out.empty()) return out;
  return "the best on " + count_of(static_cast<size_t>(std::ranges::max(question.hosts)), "host") +
         " would take " + out + "\n";
}

}  // namespace

std::vector<int> usual_host_counts() {
  std::vector<int> counts;
  for (int hosts = 8; hosts <= 4096; hosts *= 2) counts.push_back(hosts);
  return counts;
}

Result<LinkCost> link_cost_of(double link_us, double link_gbps) {
  if (!(link_us > 0) || !std::isfinite(link_us) || !is_rate(link_gbps))
    return invalid_argument("--link-us " + format_number(link_us) + " --link-gbps " +
                            format_number(link_gbps) + ": both must be above 0, and finite");
  return LinkCost{link_us, byte_us_of(link_gbps)};
}

Status check_host(const PlanHost& host) {
  Settings settings;
  if (!set_setting(settings, "data_streams", host.streams).ok())
    return invalid_argument("--streams " + host.streams + ": expected auto, 1, 2, 4, 8 or 16");
  for (const auto& [option, gbps] :
       {std::pair("--stream-gbps ", host.stream_gbps), std::pair("--fold-gbps ", host.fold_gbps),
        std::pair("--memory-gbps ", host.memory_gbps)})
    if (!is_rate(gbps))
      return invalid_argument(option + format_number(gbps) + ": must be above 0, and finite");
  return {};
}

HostCost host_cost_of(const PlanHost& host, int hosts, int per_host) {
  const Settings settings = settings_of(host);
  const auto cores = static_cast<size_t>(host.cores);
  const size_t streams = data_streams(settings, cores);
  HostCost cost;
  cost.copy_byte_us = byte_us_of(host.stream_gbps);
  cost.fold_byte_us = byte_us_of(host.fold_gbps);
  cost.memory_byte_us = byte_us_of(host.memory_gbps);
  cost.cores = host.cores;
  cost.streams = streams == 1 ? 0 : static_cast<int>(streams);
  // On one host always; between hosts a rank that is alone leaves it to the worker.
  const bool do_fold = hosts == 1 || (per_host > 1 && do_ranks_fold(settings, cores));
  cost.folding_ranks = do_fold ? per_host : 0;
  return cost;
}

std::vector<PlanRow> plan_rows(const PlanQuestion& question) {
  std::vector<PlanRow> rows;
  for (const int hosts : question.hosts) {
    const std::vector<PlanRow> some = rows_of(question, hosts);
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return rows;
}

std::vector<PlanGain> plan_gains(const PlanQuestion& question) {
  std::vector<std::pair<std::string, PlanQuestion>> by_streams, by_cores;
  const PlanHost& host = question.host;
  const size_t now = data_streams(settings_of(host), static_cast<size_t>(host.cores));
  for (const int streams : kStreams) {
    if (static_cast<size_t>(streams) <= now) continue;
    const std::string text = std::to_string(streams);
    by_streams.emplace_back("--streams " + text, question).second.host.streams = text;
  }
  for (int cores = 2 * host.cores; cores <= kCoresMax; cores *= 2)
    by_cores.emplace_back("--cores " + std::to_string(cores), question).second.host.cores = cores;
  std::vector<PlanGain> gains;
  const double now_us = best_us(question);
  add_gain(by_streams, now_us, gains);
  add_gain(by_cores, now_us, gains);
  return gains;
}

std::string plan_text(const PlanQuestion& question, const std::vector<PlanRow>& rows) {
  std::string out = std::string(name_of(question.collective)) + " of " +
                    format_byte_size(question.bytes) + ", " + std::to_string(question.per_host) +
                    (question.per_host == 1 ? " rank" : " ranks") + " a host; links of " +
                    format_number(question.link.message_us) + " us and " +
                    format_number(gbps_of(question.link)) + " Gbit/s, " + question.source + "\n" +
                    describe_host(question) + "\n";
  Table table({"HOSTS", "RANKS", "STRATEGY", "TIME(ms)", "BOUND", "ROUNDS", "SENT(MiB)", ""});
  for (const PlanRow& row : rows)
    table.add({std::to_string(row.hosts), std::to_string(row.ranks), to_string(row.strategy),
               format_number(time_us(row) / 1000), std::string(name_of(row.prediction.bound)),
               std::to_string(row.prediction.rounds),
               format_number(row.prediction.sent_bytes / (1 << 20)), row.best ? "*" : ""});
  return out + table.text() +
         "* best; BOUND: what most of the time goes to; SENT: by the host that sends most; all "
         "predicted\n" +
         describe_gains(question);
}

std::string plan_json(const PlanQuestion& question, const std::vector<PlanRow>& rows) {
  const PlanHost& host = question.host;
  Json json;
  json.open('{')
      .field("op", name_of(question.collective))
      .field("bytes", question.bytes)
      .field("per_host", question.per_host)
      .field("link_us", question.link.message_us)
      .field("link_gbps", gbps_of(question.link))
      .field("cores", host.cores)
      .field("streams", data_streams(settings_of(host), static_cast<size_t>(host.cores)))
      .field("stream_gbps", host.stream_gbps)
      .field("fold_gbps", host.fold_gbps)
      .field("memory_gbps", host.memory_gbps)
      .key("plans")
      .open('[');
  for (const PlanRow& row : rows) {
    json.open('{')
        .field("hosts", row.hosts)
        .field("ranks", row.ranks)
        .field("strategy", to_string(row.strategy))
        .field("predicted_us", time_us(row))
        .field("bound", name_of(row.prediction.bound))
        .field("rounds", row.prediction.rounds)
        .field("sent_bytes", row.prediction.sent_bytes)
        .field("best", row.best)
        .close();
  }
  json.close().close();
  return json.line();
}

}  // namespace tutti
