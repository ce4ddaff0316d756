// The commands that ask or tell a running agent.
#include <cstdio>
#include <cstdlib>

#include "daemon/cli/cli.h"
#include "daemon/cli/status_report.h"
#include "daemon/mesh/mesh.h"

namespace tutti {
namespace {

constexpr int kCallTimeoutMs = 10'000;

int finish(const Status& status) { return status.ok() ? 0 : report_failure(status); }

}  // namespace

int report_failure(const Status& status) {
  std::fprintf(stderr, "tutti: %s\n", status.message().c_str());
  return status.code() == Code::invalid_argument ? kExitUsage : kExitFailure;
}

int status_command(const StatusOptions& options) {
  const Result<v1::StatusReply> reply = admin_status(options.address, false, kCallTimeoutMs);
  if (!reply.ok()) return report_failure(reply.status());
  const std::string out = options.json ? status_json(*reply) + "\n" : status_text(*reply);
  std::fputs(out.c_str(), stdout);
  return 0;
}

int strategy_command(const std::string& address, const std::string& job, const std::string& text) {
  return finish(admin_set_strategy(address, job, text, kCallTimeoutMs));
}

int drain_command(const std::string& address, bool undo) {
  return finish(admin_drain(address, undo, kCallTimeoutMs));
}

int stop_command(const std::string& address, bool jobs) {
  return finish(admin_stop(address, jobs, kCallTimeoutMs));
}

}  // namespace tutti
