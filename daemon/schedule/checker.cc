#include "daemon/schedule/checker.h"

#include "daemon/schedule/prover.h"

namespace tutti {
namespace {

enum class Progress { done, waits };

// Runs every host's steps in order, each host as far as it goes, until all are done. `take` runs
// one step: done, waits, or a fault of the schedule.
template <class Take>
Status run_all(const Schedule& schedule, Take take) {
  std::vector<size_t> next(schedule.size(), 0);
  for (bool any = true; any;) {
    any = false;
    for (size_t host = 0; host < schedule.size(); ++host) {
      for (; next[host] < schedule[host].size(); ++next[host]) {
        const Result<Progress> progress = take(static_cast<int>(host), schedule[host][next[host]]);
        if (!progress.ok()) return progress.status();
        if (*progress == Progress::waits) break;
        any = true;
      }
    }
  }
  for (size_t host = 0; host < schedule.size(); ++host)
    if (next[host] < schedule[host].size())
      return internal_error("deadlock: host " + std::to_string(host) + " waits for ever at entry " +
                            std::to_string(next[host]));
  return {};
}

Result<Progress> done_if(Status status) {
  if (!status.ok()) return status;
  return Progress::done;
}

Status outside(int host, std::string_view what) {
  return internal_error("host " + std::to_string(host) + ": " + std::string(what));
}

Result<Progress> take_step(const Plan& plan, Prover& prover, int host, const Step& step) {
  if (step.chunk < 0 || step.chunk >= chunk_count(plan)) return outside(host, "no such chunk");
  if (step.kind == StepKind::finish) return done_if(prover.finish(host, step.chunk));
  if (step.kind == StepKind::take || step.kind == StepKind::add)
    return done_if(prover.contribute(host, step));
  if (step.kind == StepKind::pack) return done_if(prover.pack(host, step));
  if (step.peer < 0 || step.peer >= static_cast<int>(plan.hosts.size()) || step.peer == host)
    return outside(host, "no such peer");
  if (step.kind == StepKind::send) return done_if(prover.send(host, step));
  if (step.kind == StepKind::notify) return done_if(prover.notify(host, step.peer));
  if (!prover.has_message(step.peer, host)) return Progress::waits;
  if (step.kind == StepKind::await) return done_if(prover.await(host, step.peer));
  return done_if(prover.receive(host, step));
}

Status differs(std::string_view what, int64_t promised, int64_t found) {
  return internal_error("cost: " + std::to_string(found) + " " + std::string(what) +
                        ", where cost_of() states " + std::to_string(promised));
}

Status check_load(const Cost& promised, const Cost& found) {
  if (promised.sent_chunks_max != found.sent_chunks_max)
    return differs("chunks sent", promised.sent_chunks_max, found.sent_chunks_max);
  if (promised.received_chunks_max != found.received_chunks_max)
    return differs("chunks received", promised.received_chunks_max, found.received_chunks_max);
  if (promised.sent_chunks_sum != found.sent_chunks_sum)
    return differs("chunks sent by all", promised.sent_chunks_sum, found.sent_chunks_sum);
  return {};
}

}  // namespace

Schedule schedule_of(const Plan& plan) {
  Schedule schedule;
  for (size_t host = 0; host < plan.hosts.size(); ++host)
    schedule.push_back(steps_of(plan, static_cast<int>(host)));
  return schedule;
}

Status check(const Plan& plan, const Schedule& schedule) {
  if (schedule.size() != plan.hosts.size())
    return internal_error("a schedule has one list of steps a host");
  Prover prover(plan);
  Status status = run_all(
      schedule, [&](int host, const Step& step) { return take_step(plan, prover, host, step); });
  if (status.ok()) status = prover.conclude();
  if (!status.ok()) return status;
  const Cost promised = cost_of(plan), found = prover.cost();
  if (promised.rounds != found.rounds) return differs("rounds", promised.rounds, found.rounds);
  if (promised.empty_rounds != found.empty_rounds)
    return differs("empty rounds", promised.empty_rounds, found.empty_rounds);
  return check_load(promised, found);
}

}  // namespace tutti
