// `tutti explain`: what is wrong with jobs and nodes. `tutti jobs`: which there are and were.
#include <algorithm>
#include <cstdio>
#include <set>

#include "daemon/cli/cli.h"
#include "daemon/cli/jobs_report.h"
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
  const Result<v1::StatusReply> status = admin_history(address, kCallTimeoutMs);
  if (!status.ok()) return status.status();
  return diagnose(job, *status, trace.ok() ? *trace : v1::TraceReply());
}

void print(const std::string& job, const Diagnosis& diagnosis, bool json) {
  const std::string out = json ? diagnosis_json(job, diagnosis) + "\n" : diagnosis_text(diagnosis);
  std::fputs(out.c_str(), stdout);
}

void suggest(const std::vector<std::string>& addresses, const std::string& job) {
  for (const std::string& address : addresses) {
    const Status status = suggest_job(not_found(""), address, job);
    if (status.message().empty()) continue;
    std::fprintf(stderr, "tutti: %s\n", status.message().substr(2).c_str());
    return;
  }
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
  if (found->verdict == Verdict::no_such_job) suggest(addresses, options.job);
  return exit_code_of(found->verdict);
}

struct MeshReport {
  v1::StatusReply status;
  MeshDiagnosis diagnosis;
};

std::set<std::string> running_jobs_of(const v1::StatusReply& status) {
  std::set<std::string> jobs;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::WorkerReport& worker : agent.workers()) jobs.insert(worker.job());
  return jobs;
}

// Each job is judged by as many calls as explain JOB has.
Result<MeshReport> report_of_mesh(const std::string& address) {
  Result<v1::StatusReply> status = admin_status(address, false, kCallTimeoutMs);
  if (!status.ok()) return status.status();
  v1::TraceReply all;
  for (const std::string& job : running_jobs_of(*status)) {
    const Result<v1::TraceReply> trace =
        admin_trace(address, job, kExplainedOperations, kCallTimeoutMs);
    if (!trace.ok() && trace.status().code() != Code::not_found) return trace.status();
    if (trace.ok()) all.MergeFrom(*trace);
  }
  status = admin_history(address, kCallTimeoutMs);
  if (!status.ok()) return status.status();
  MeshReport report{.status = *std::move(status)};
  report.diagnosis = diagnose_mesh(report.status, all);
  return report;
}

// All jobs and nodes of the mesh of one agent.
int explain_mesh(const std::string& address, bool json) {
  const Result<MeshReport> report = report_of_mesh(address);
  if (!report.ok()) return report_status(report.status());
  const MeshDiagnosis& mesh = report->diagnosis;
  std::fputs((json ? mesh_diagnosis_json(mesh) + "\n" : mesh_diagnosis_text(mesh)).c_str(), stdout);
  return grade_of(mesh) == Grade::ok ? 0 : kExitFailure;
}

}  // namespace

int explain_command(const ExplainOptions& options) {
  const std::vector<std::string> addresses = agents_to_ask(options.address);
  if (!options.job.empty()) return explain_job(addresses, options);
  int code = 0;
  for (const std::string& address : addresses)
    code = std::max(code, explain_mesh(address, options.json));
  return code;
}

int jobs_command(const JobsOptions& options) {
  int code = 0;
  for (const std::string& address : agents_to_ask(options.address)) {
    const Result<MeshReport> report = report_of_mesh(address);
    if (!report.ok()) {
      code = report_status(report.status());
      continue;
    }
    const std::vector<JobRow> jobs = jobs_of(report->status, report->diagnosis, options.all);
    std::fputs((options.json ? jobs_json(jobs) + "\n" : jobs_text(jobs)).c_str(), stdout);
  }
  return code;
}

}  // namespace tutti
