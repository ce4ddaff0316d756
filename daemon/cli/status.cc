// `tutti status`, and the exit codes of all commands.
#include <cstdio>

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
