// `tutti explain`: what is the matter with a job.
#include <cstdio>

#include "daemon/cli/cli.h"
#include "daemon/cli/diagnosis.h"
#include "daemon/mesh/mesh.h"

namespace tutti {
namespace {

constexpr uint32_t kOperations = 1'024;  // Of each rank.

int exit_code_of(Verdict verdict) {
  if (verdict == Verdict::no_such_job) return kExitUsage;
  return is_healthy(verdict) ? 0 : kExitFailure;
}

}  // namespace

int explain_command(const ExplainOptions& options) {
  // The trace first: what it tells is then in the past of the clocks in the status.
  const Result<v1::TraceReply> trace =
      admin_trace(options.address, options.job, kOperations, kCallTimeoutMs);
  if (!trace.ok() && trace.status().code() != Code::not_found) return report_status(trace.status());
  const Result<v1::StatusReply> status = admin_status(options.address, false, kCallTimeoutMs);
  if (!status.ok()) return report_status(status.status());
  const Diagnosis diagnosis =
      diagnose(options.job, *status, trace.ok() ? *trace : v1::TraceReply());
  const std::string out =
      options.json ? diagnosis_json(options.job, diagnosis) + "\n" : diagnosis_text(diagnosis);
  std::fputs(out.c_str(), stdout);
  return exit_code_of(diagnosis.verdict);
}

}  // namespace tutti
