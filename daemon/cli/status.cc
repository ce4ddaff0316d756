// `tutti status`, and the exit codes of all commands.
#include <algorithm>
#include <cstdio>

#include "daemon/base/text.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/private_agents.h"
#include "daemon/cli/status_report.h"
#include "daemon/control/admin_client.h"
#include "daemon/control/status_json.h"
#include "proto/mesh.pb.h"

namespace tutti {

int report_status(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "tutti: %s\n", status.message().c_str());
  return status.code() == Code::invalid_argument ? kExitUsage : kExitFailure;
}

Status suggest_job(const Status& status, const std::string& address, const std::string& job) {
  if (status.code() != Code::not_found) return status;
  const Result<v1::StatusReply> reply = admin_history(address, kCallTimeoutMs);
  if (!reply.ok()) return status;
  std::vector<std::string_view> jobs;
  for (const v1::AgentReport& agent : reply->agents()) {
    for (const v1::WorkerReport& worker : agent.workers()) jobs.push_back(worker.job());
    for (const v1::EndedJob& ended : agent.ended()) jobs.push_back(ended.last().job());
  }
  if (std::ranges::find(jobs, job) != jobs.end()) return status;
  return not_found(status.message() + did_you_mean(job, jobs));
}

int status_command(const StatusOptions& options) {
  const std::vector<std::string> addresses = agents_to_ask(options.address);
  int code = 0;
  for (const std::string& address : addresses) {
    const Result<v1::StatusReply> reply = admin_status(address, false, kCallTimeoutMs);
    if (addresses.size() > 1 && !options.json) std::printf("%s:\n", address.c_str());
    if (reply.ok())
      std::fputs((options.json ? status_json(*reply) + "\n" : status_text(*reply)).c_str(), stdout);
    else
      code = report_status(reply.status());
  }
  return code;
}

}  // namespace tutti
