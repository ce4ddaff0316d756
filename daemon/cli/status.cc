// `tutti status`, and the exit codes of all commands.
#include <cstdio>

#include "daemon/cli/cli.h"
#include "daemon/cli/status_report.h"
#include "daemon/mesh/mesh.h"

namespace tutti {

int report_status(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "tutti: %s\n", status.message().c_str());
  return status.code() == Code::invalid_argument ? kExitUsage : kExitFailure;
}

int status_command(const StatusOptions& options) {
  const Result<v1::StatusReply> reply = admin_status(options.address, false, kCallTimeoutMs);
  if (!reply.ok()) return report_status(reply.status());
  const std::string out = options.json ? status_json(*reply) + "\n" : status_text(*reply);
  std::fputs(out.c_str(), stdout);
  return 0;
}

}  // namespace tutti
