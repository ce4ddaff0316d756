// `tutti drain` and `tutti stop`: what ends jobs, or agents.
#include <chrono>
#include <cstdio>

#include "daemon/base/text.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/end_signal.h"
#include "daemon/cli/status_report.h"
#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kAskEveryMs = 1'000;

// Waits until the node has no job; says which it waits for whenever they change.
Status await_no_job(const std::string& address, std::optional<std::chrono::microseconds> timeout) {
  const EndSignal end;
  const Clock::time_point begin = Clock::now();
  for (std::string said;;) {
    const Result<v1::StatusReply> reply = admin_status(address, true, kCallTimeoutMs);
    if (!reply.ok()) return reply.status();
    if (reply->agents_size() == 1 && reply->agents(0).state() == "serving")
      return failed_precondition("host " + reply->agents(0).host() +
                                 " takes jobs again: its draining was ended meanwhile, by tutti "
                                 "drain --undo or a restart; drain it again");
    const std::string jobs = jobs_text(*reply);
    if (jobs.empty()) return {};
    if (jobs != said) std::fprintf(stderr, "waits for %s\n", jobs.c_str());
    said = jobs;
    if (timeout && Clock::now() - begin >= *timeout)
      return deadline_exceeded("this node still has " + jobs +
                               "; it goes on draining; end jobs with: tutti stop JOB");
    if (end.wait(kAskEveryMs) == EndSignal::Came::signal)
      return deadline_exceeded("not waiting any more for " + jobs +
                               "; the node goes on draining; end that with: tutti drain --undo");
  }
}

int stop_job(const StopOptions& options) {
  const Result<v1::StopJobReply> reply =
      admin_stop_job(options.address, options.job, kCallTimeoutMs);
  if (!reply.ok()) return report_status(suggest_job(reply.status(), options.address, options.job));
  std::string hosts;
  for (const std::string& host : reply->hosts()) hosts += (hosts.empty() ? "" : ", ") + host;
  std::printf("ended job %s on %s\n", options.job.c_str(), hosts.c_str());
  for (const v1::AgentReport& missing : reply->missing())
    std::fprintf(stderr, "tutti: host %s does not answer, and may still have workers of it: %s\n",
                 missing.host().c_str(), missing.state().c_str());
  return reply->missing().empty() ? 0 : kExitFailure;
}

}  // namespace

int drain_command(const DrainOptions& options) {
  std::optional<std::chrono::microseconds> timeout;
  if (options.timeout) {
    const Result<std::chrono::microseconds> read = parse_duration(*options.timeout);
    if (!read.ok()) return report_status(invalid_argument("--timeout " + read.status().message()));
    timeout = *read;
  }
  if (options.undo && options.wait)
    return report_status(invalid_argument("--undo has nothing to wait for; leave out --wait"));
  if (timeout && !options.wait)
    return report_status(invalid_argument("--timeout is for --wait; add that"));
  Status status = admin_drain(options.address, options.undo, kCallTimeoutMs);
  if (status.ok() && options.wait) status = await_no_job(options.address, timeout);
  return report_status(status);
}

int stop_command(const StopOptions& options) {
  if (options.job.empty())
    return report_status(admin_stop(options.address, options.jobs, kCallTimeoutMs));
  if (!options.jobs) return stop_job(options);
  return report_status(invalid_argument("--jobs ends an agent and all of its jobs; leave it out"));
}

}  // namespace tutti
