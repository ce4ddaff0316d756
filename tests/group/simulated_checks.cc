// The checks of a simulated job against its script and its history.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tests/group/simulated_job.h"

namespace tutti::simulated {
namespace {

constexpr Us kGrace = 500'000;  // After its deadline, every call must have ended.

std::string name(const EpochOp& op) {
  return std::to_string(op.group) + "#" + std::to_string(op.number);
}

// The status without the collective's name, which is that of the called rank's own call.
std::string essence(const Status& status) {
  std::string text = status.to_string();
  const size_t during = text.find(" during "), number = text.find(" #", during);
  if (during != std::string::npos && number != std::string::npos)
    text.erase(during, number - during);
  return text;
}

}  // namespace

const HostPlan& host_plan(const Signature& signature, const Strategy& among,
                          const Communicator& group) {
  const Collective collective = signature.collective;
  const int hosts = static_cast<int>(group.hosts().size());
  const int home = group.host_of(static_cast<int>(signature.root));
  const int root = static_cast<int>(std::ranges::find(group.hosts(), home) - group.hosts().begin());
  static std::map<std::tuple<Collective, int, Strategy, int>, HostPlan> plans;
  HostPlan& made = plans[{collective, root, among, hosts}];
  if (!made.moves.empty()) return made;
  made.plan = {collective, root, {{StrategyKind::centralized, 0}, among}, {}};
  for (int host = 0; host < hosts; ++host) made.plan.hosts.push_back({host});
  made.chunks = chunk_count(made.plan);
  for (int host = 0; host < hosts; ++host) {
    std::map<std::pair<bool, int>, int> counts;  // Whether sent, peer.
    std::vector<HostPlan::Move>& moves = made.moves.emplace_back();
    for (const Step& step : steps_of(made.plan, host)) {
      const bool sending = step.kind == StepKind::send || step.kind == StepKind::notify;
      const bool finish = step.kind == StepKind::finish;
      moves.push_back({step, finish ? 0 : counts[{sending, step.peer}]++});
    }
  }
  return made;
}

const Ranks& Job::members(uint32_t group) const {
  return script_.groups[group == 0 ? 0 : group - 100];
}

// A rank's contribution to a chunk: random, so that every sum is unique.
uint64_t Job::contribution(const EpochOp& op, int rank, int chunk, int slice) const {
  return Random(op.group * 1'000'003 + op.number * 10'007 + static_cast<uint64_t>(rank) * 101 +
                static_cast<uint64_t>(chunk) * 7 + static_cast<uint64_t>(slice))
      .next();
}

void Job::check_values(int index, const EpochOp& op,
                       const std::vector<std::vector<uint64_t>>& values) {
  Truth& truth = truths_[op];
  truth.completed.insert(index);
  const Communicator& group = *host(index).follower->find(op.group);
  if (truth.calls.size() != members(op.group).size())
    return wrong(name(op) + " completed, but not all ranks had called it");
  for (const auto& [rank, called] : truth.calls)
    if (called.signature != truth.calls.begin()->second.signature || !called.invalid.ok())
      return wrong(name(op) + " completed, but the ranks disagree");
  const HostPlan& plan =
      host_plan(truth.calls.begin()->second.signature, truth.strategies->global, group);
  for (int slice = 0; slice < Engine::kSlices; ++slice)
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!wants(plan.plan, group.self_in_topology(), chunk)) continue;
      uint64_t expected = 0;
      for (size_t place = 0; place < group.topology().size(); ++place)
        if (contributes(plan.plan, static_cast<int>(place), chunk))
          for (const int rank : group.topology()[place])
            expected += contribution(op, rank, chunk, slice);
      if (values[static_cast<size_t>(slice)][static_cast<size_t>(chunk)] != expected)
        return wrong(name(op) + " has a wrong value");
    }
}

// ---- What ranks learn ----

void Job::judge(int index, const EpochOp& op, Called& called, const Status& status) {
  const SimHost& here = host(index);
  called.end = status;
  ++(status.ok() ? counts_.ok : counts_.failed);
  say(index,
      "rank " + std::to_string(called.rank) + " learns of " + name(op) + ": " + status.to_string());
  if (status.ok() && !truths_[op].completed.contains(index))
    wrong("rank " + std::to_string(called.rank) + " gets OK for what was not done: " + name(op));
  if (now_ > called.deadline + kGrace && !here.was_stopped)
    wrong("rank " + std::to_string(called.rank) + " waited for " + name(op) + " too long");
  if (status != here.follower->cause()) {
    Truth& truth = truths_[op];
    if (truth.verdict && essence(*truth.verdict) != essence(status))
      wrong("two verdicts about " + name(op) + ": " + truth.verdict->to_string() + ", and " +
            status.to_string());
    if (!truth.verdict) check_verdict(op, truth, status);
    truth.verdict = status;
  }
  RankState& rank = ranks_[static_cast<size_t>(called.rank)];
  if (rank.waits != op) return;
  rank.waits.reset();
  schedule_call(called.rank, now_);
}

namespace {

// The rank that had not called the operation: who is blamed, or who went because of that one.
int absent_of(const Status& status) {
  constexpr std::string_view kBecause = "; because of it rank ";
  const size_t found = status.message().find(kBecause);
  if (found == std::string::npos) return status.culprit().rank;
  return std::atoi(status.message().c_str() + found + kBecause.size());
}

// Whether the message names two ranks whose calls differ, or says that one is not known.
template <class Calls>
bool names_two_that_differ(const Calls& calls, const std::string& message) {
  std::vector<Signature> named;
  for (const auto& [rank, called] : calls)
    if (message.find("rank " + std::to_string(called.rank) + " (") != std::string::npos)
      named.push_back(called.signature);
  return message.find("another host asks") != std::string::npos ||
         std::ranges::any_of(named, [&](const Signature& one) { return one != named.front(); });
}

}  // namespace

void Job::check_verdict(const EpochOp& op, const Truth& truth, const Status& status) {
  if (status.ok()) return;  // See check_values().
  const bool refused = std::ranges::any_of(
      truth.calls, [&](const auto& entry) { return entry.second.invalid == status; });
  if (refused) return;
  if (status.code() == Code::failed_precondition) {
    const bool differs =
        !truth.calls.empty() && std::ranges::any_of(truth.calls, [&](const auto& entry) {
          return entry.second.signature != truth.calls.begin()->second.signature;
        });
    if (!names_two_that_differ(truth.calls, status.message()))
      wrong(name(op) + ": names nobody who differs: " + status.to_string());
    if (status.culprit() != Culprit())
      wrong(name(op) + ": blames one of those that disagree: " + status.to_string());
    if (!differs) wrong(name(op) + ": nobody disagrees: " + status.to_string());
  } else if (status.code() == Code::unavailable) {
    const int who = status.culprit().rank;
    const int absent = absent_of(status);
    const auto is_gone = [this](int rank) {
      return rank >= 0 && ranks_[static_cast<size_t>(rank)].gone;
    };
    const bool called = std::ranges::any_of(
        truth.calls, [&](const auto& entry) { return entry.second.rank == absent; });
    if (!is_gone(who) || !is_gone(absent) || called)
      wrong(name(op) + ": who is blamed is not absent: " + status.to_string());
  } else if (status.code() == Code::deadline_exceeded) {
    check_lateness(op, truth, status);
  } else {
    wrong(name(op) + ": an error that nothing brought about: " + status.to_string());
  }
  if (script_.only_disagrees && status.code() == Code::deadline_exceeded)
    wrong(name(op) + " was late where nothing was: " + status.to_string());
}

// The blamed rank must not have called before the first deadline, or its worker was stopped.
void Job::check_lateness(const EpochOp& op, const Truth& truth, const Status& status) {
  Us first = Script::kNever;
  for (const auto& [rank, called] : truth.calls) first = std::min(first, called.deadline);
  if (now_ < first) wrong(name(op) + " failed before its deadline: " + status.to_string());
  const int who = status.culprit().rank;
  if (who < 0 && !status.culprit().host.empty()) return check_end(status);  // A worker.
  if (who < 0) {
    if (script_.changes.empty()) wrong(name(op) + ": nobody is blamed: " + status.to_string());
    return;
  }
  const auto called = std::ranges::find_if(
      truth.calls, [&](const auto& entry) { return entry.second.rank == who; });
  const bool absent = called == truth.calls.end() || called->second.at >= first;
  const bool stopped = host(home_[static_cast<size_t>(who)]).was_stopped;
  if (!absent && !stopped) wrong(name(op) + ": who is blamed had called: " + status.to_string());
}

// The epoch may end only if a worker was stopped or lost, or data was too slow.
void Job::check_end(const Status& cause) {
  const bool slow = cause.message().find(", waiting for ") != std::string::npos;
  if (script_.only_disagrees) return wrong("the epoch ended: " + cause.to_string());
  if (slow) return;
  const auto blamed = std::ranges::find(homes_, cause.culprit().host, &Host::name);
  if (blamed == homes_.end()) return wrong("no host is blamed: " + cause.to_string());
  const SimHost& whose = host(static_cast<int>(blamed - homes_.begin()));
  const bool away = whose.was_stopped && now_ >= whose.last_stop;
  if (!away) wrong("a worker is blamed that was never away: " + cause.to_string());
}

// ---- At the end ----

void Job::check_rest() {
  if (now_ >= kLatestEnd) return wrong("it does not end");
  for (const auto& [op, truth] : truths_) {
    const bool all_agree =
        truth.calls.size() == members(op.group).size() &&
        std::ranges::all_of(truth.calls, [&, &first = truth.calls.begin()->second](const auto& e) {
          return e.second.signature == first.signature && e.second.invalid.ok();
        });
    for (const auto& [rank, called] : truth.calls) {
      const SimHost& where = host(home_[static_cast<size_t>(called.rank)]);
      const bool away = where.dead || where.stopped_until == Script::kNever;
      if (!called.end && !away)
        wrong("rank " + std::to_string(called.rank) + " never learnt of " + name(op));
      if (script_.only_disagrees && all_agree && !called.end->ok())
        wrong(name(op) + " failed, though all agree: " + called.end->to_string());
    }
  }
  for (int index = 0; index < static_cast<int>(hosts_.size()); ++index) check_rest(index);
}

void Job::check_rest(int index) {
  const SimHost& here = host(index);
  if (here.dead || here.stopped_until == Script::kNever) return;
  const bool whole = counts_.epochs_ended == 0;
  if (whole && here.leader && here.leader->pending() != 0) wrong("the leader keeps something");
  const bool settled = !here.follower->cause().ok() || (whole && script_.only_disagrees);
  if (settled && here.follower->pending() != 0) wrong("a follower keeps something");
  if (whole && script_.only_disagrees && (here.engine->size() != 0 || here.early->size() != 0))
    wrong("an engine keeps something");
}

}  // namespace tutti::simulated
