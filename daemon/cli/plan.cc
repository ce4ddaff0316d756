// `tutti strategy JOB` and `tutti plan`: what auto measured in a job, and predictions for other
// meshes.
#include <cstdio>

#include "daemon/base/text.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/plan_report.h"
#include "daemon/cli/strategy_report.h"
#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

constexpr int kHostsMax = 65'535;

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

Result<v1::WorkerReport> ask_leader(const std::string& address, const std::string& job) {
  const Result<v1::StatusReply> reply = admin_status(address, false, kCallTimeoutMs);
  if (!reply.ok()) return reply.status();
  const v1::WorkerReport* leader = find_leader(*reply, job);
  if (leader == nullptr)
    return not_found("no running job " + job + " is known there: see tutti status");
  return *leader;
}

// Returns the typical one of the links that the job measured.
Result<LinkCost> measured_link(const std::string& address, const std::string& job) {
  const Result<v1::WorkerReport> leader = ask_leader(address, job);
  if (!leader.ok()) return leader.status();
  Tuner tuner;
  for (const v1::LinkTime& link : leader->tuning().links())
    tuner.set_link(link.from(), link.to(), {link.message_us(), link.byte_us()});
  if (tuner.links().empty()) return failed_precondition("job " + job + " has measured no link yet");
  return tuner.typical_link();
}

Status choose_link(PlanQuestion& question, const PlanOptions& options) {
  const Result<LinkCost> link = options.job.empty()
                                    ? link_cost_of(options.link_us, options.link_gbps)
                                    : measured_link(options.address, options.job);
  if (!link.ok()) return link.status();
  question.link = *link;
  question.source = options.job.empty() ? "as given" : "measured by job " + options.job;
  return {};
}

Result<PlanQuestion> parse_question(const PlanOptions& options) {
  PlanQuestion question;
  const auto collective = find_name<Collective>(kCollectiveNames, options.collective);
  if (!collective) return invalid_argument("unknown --op '" + options.collective + "'");
  const Result<uint64_t> bytes = parse_byte_size(options.bytes);
  if (!bytes.ok()) return bytes.status();
  question.collective = *collective;
  question.bytes = *collective == Collective::barrier ? 0 : *bytes;
  question.per_host = options.per_host;
  question.host = options.host;
  if (const Status status = check_host(question.host); !status.ok()) return status;
  question.hosts = options.hosts.empty() ? usual_host_counts() : options.hosts;
  for (const int hosts : question.hosts)
    if (hosts < 1 || hosts > kHostsMax)
      return invalid_argument("--hosts " + std::to_string(hosts) + ": expected 1 to " +
                              std::to_string(kHostsMax));
  if (const Status status = choose_link(question, options); !status.ok()) return status;
  return question;
}

}  // namespace

int strategy_command(const StrategyOptions& options) {
  if (!options.strategy.empty())
    return report_status(suggest_job(
        admin_set_strategy(options.address, options.job, options.strategy, kCallTimeoutMs),
        options.address, options.job));
  const Result<v1::WorkerReport> leader = ask_leader(options.address, options.job);
  if (!leader.ok())
    return report_status(suggest_job(leader.status(), options.address, options.job));
  return print(options.json ? strategy_json(*leader) + "\n" : strategy_text(*leader));
}

int plan_command(const PlanOptions& options) {
  const Result<PlanQuestion> question = parse_question(options);
  if (!question.ok()) return report_status(question.status());
  const std::vector<PlanRow> rows = plan_rows(*question);
  return print(options.json ? plan_json(*question, rows) + "\n" : plan_text(*question, rows));
}

}  // namespace tutti
