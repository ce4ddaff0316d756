// `tutti explain`: what is wrong with a job.
#include <algorithm>
#include <cstdio>
#include <set>

#include "daemon/cli/cli.h"
#include "daemon/cli/private_agents.h"
#include "daemon/control/admin_client.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

constexpr uint32_t kExplainedOperations = 1'024;  // Of each rank.

int exit_code_of(Verdict verdict) {
  if (verdict == Verdict::no_such_job) return kExitUsage;
  return is_healthy(verdict) ? 0 : kExitFailure;
}

Result<Diagnosis> diagnosis_of(const std::string& address, const std::string& job) {
  // The trace first: what it tells is then in the past of the clocks in the status.
  const Result<v1::TraceReply> trace =
      admin_trace(address, job, kExplainedOperations, kCallTimeoutMs);
  if (!trace.ok() && trace.status().code() != Code::not_found) return trace.status();
  const Result<v1::StatusReply> status = admin_status(address, false, kCallTimeoutMs);
  if (!status.ok()) return status.status();
  return diagnose(job, *status, trace.ok() ? *trace : v1::TraceReply());
}

void print(const std::string& job, const Diagnosis& diagnosis, bool json) {
  const std::string out = json ? diagnosis_json(job, diagnosis) + "\n" : diagnosis_text(diagnosis);
  std::fputs(out.c_str(), stdout);
}

// The job at the first of the agents that knows it.
int explain_job(const std::vector<std::string>& addresses, const ExplainOptions& options) {
  Result<Diagnosis> found = Diagnosis();
  for (const std::string& address : addresses) {
    found = diagnosis_of(address, options.job);
    if (found.ok() && found->verdict != Verdict::no_such_job) break;
  }
  if (!found.ok()) return report_status(found.status());
  print(options.job, *found, options.json);
  return exit_code_of(found->verdict);
}

std::set<std::string> job_names_of(const v1::StatusReply& status) {
  std::set<std::string> jobs;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::WorkerReport& worker : agent.workers()) jobs.insert(worker.job());
  return jobs;
}

// All jobs of one agent.
int explain_agent(const std::string& address, bool json, size_t& jobs) {
  const Result<v1::StatusReply> status = admin_status(address, false, kCallTimeoutMs);
  if (!status.ok()) return report_status(status.status());
  int code = 0;
  for (const std::string& job : job_names_of(*status)) {
    const Result<Diagnosis> found = diagnosis_of(address, job);
    if (!found.ok()) return report_status(found.status());
    if (!json) std::printf("%s%s:\n", jobs == 0 ? "" : "\n", job.c_str());
    print(job, *found, json);
    code = std::max(code, exit_code_of(found->verdict));
    ++jobs;
  }
  return code;
}

}  // namespace

int explain_command(const ExplainOptions& options) {
  const std::vector<std::string> addresses = agents_to_ask(options.address);
  if (!options.job.empty()) return explain_job(addresses, options);
  int code = 0;
  size_t jobs = 0;
  for (const std::string& address : addresses)
    code = std::max(code, explain_agent(address, options.json, jobs));
  if (jobs == 0 && code == 0 && !options.json) std::puts("there is no job");
  return code;
}

}  // namespace tutti
