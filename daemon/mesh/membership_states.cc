// The part of Membership that outlives the coordinator: states of jobs, and epochs that start once
// they are kept.
#include <algorithm>
#include <utility>

#include "daemon/mesh/membership.h"
#include "daemon/mesh/membership_values.h"
#include "daemon/mesh/mesh.h"
#include "daemon/mesh/roster_message.h"

namespace tutti {
namespace {

constexpr size_t kNameShown = 128;  // Of a job's name that may be anything.

bool is_valid(const v1::JobState& state) {
  const v1::Roster& roster = state.roster();
  const bool known_end = state.end() <= static_cast<uint32_t>(EpochEnd::death);
  if (!check_job(state.job(), 0, 1).ok() || state.epoch() == 0 || !known_end) return false;
  if (!state.has_roster()) return true;
  return roster.epoch() != 0 && roster.job() == state.job() && from_message(roster).ok() &&
         std::ranges::all_of(roster.ranks(), [](const auto& rank) { return is_short(rank); });
}

// For a job without ranks. `key` is one of key_of(): only a subject may contain line ends.
v1::JobState state_of_key(const std::string& key, const LastEpoch& last) {
  const size_t first = key.find('\n');
  const size_t second = key.rfind('\n');
  v1::JobState state;
  state.mutable_owner()->set_uid(static_cast<uint32_t>(std::stoul(key.substr(0, first))));
  state.mutable_owner()->set_subject(key.substr(first + 1, second - first - 1));
  state.set_job(key.substr(second + 1));
  state.set_epoch(last.number);
  state.set_end(static_cast<uint32_t>(last.end));
  return state;
}

}  // namespace

v1::JobState Membership::state_of(const Job& job, const std::string& name) {
  v1::JobState state;
  state.set_job(name);
  *state.mutable_owner() = job.owner;
  state.set_epoch(job.last.number);
  state.set_end(static_cast<uint32_t>(job.last.end));
  if (!job.running) return state;
  v1::Roster& roster = *state.mutable_roster();
  roster.set_job(name);
  roster.set_epoch(job.running->epoch);
  roster.set_secret(job.running->secret);
  roster.set_strategy(job.strategy);
  for (const Member& member : job.running->members) *roster.add_ranks() = member.who;
  return state;
}

void Membership::note_change(Job& job, const std::string& name) {
  job.is_noted = job.running.has_value();
  changed_[key_of(job.owner, name)] = state_of(job, name);
}

void Membership::remember(Job& job, const std::string& name) {
  note_change(job, name);
  const std::string forgotten = last_epochs_.keep(key_of(job.owner, name), job.last);
  if (!forgotten.empty()) changed_[forgotten] = state_of_key(forgotten, {});
}

std::vector<v1::JobState> Membership::take_changed() {
  std::vector<v1::JobState> states;
  for (auto& [key, state] : std::exchange(changed_, {})) states.push_back(std::move(state));
  return states;
}

v1::JobStates Membership::states() const {
  v1::JobStates states;
  last_epochs_.for_each([&](const std::string& key, const LastEpoch& last) {
    *states.add_jobs() = state_of_key(key, last);
  });
  for (const auto& [name, job] : jobs_)
    if (job.last.number != 0) *states.add_jobs() = state_of(job, name);
  return states;
}

Status Membership::restore(const v1::JobState& state, TimePoint now) {
  if (!is_valid(state))
    return invalid_argument("what is remembered of " + quoted(state.job().substr(0, kNameShown)) +
                            " makes no sense");
  const LastEpoch last{state.epoch(), static_cast<EpochEnd>(state.end())};
  if (!state.has_roster() || jobs_.contains(state.job())) {
    last_epochs_.keep(key_of(state.owner(), state.job()), last);
    return {};
  }
  Job& job = jobs_[state.job()];
  job.owner = state.owner();
  job.last = last;
  job.strategy = state.roster().strategy();
  job.is_noted = true;
  job.running = RunningEpoch{
      .epoch = state.roster().epoch(), .secret = state.roster().secret(), .members = {}};
  for (const v1::RosterRank& who : state.roster().ranks())
    job.running->members.push_back(
        {.worker = 0, .who = who, .awaited = now + options_.grace, .was_here = false});
  return {};
}

// Ranks may have given up, or come, while the state was being saved.
Membership::Messages Membership::saved(const v1::JobState& state) {
  Messages out;
  const auto found = jobs_.find(state.job());
  if (found == jobs_.end() || !found->second.proposed) return out;
  Job& job = found->second;
  if (job.proposed->epoch() != state.epoch() || !is_owner(job.owner, state.owner())) return out;
  job.proposed.reset();
  if (is_complete(job) && !job.running) {
    const v1::Roster roster = next_roster(job, state.job());
    if (roster.SerializeAsString() != state.roster().SerializeAsString()) {
      begin_epoch(job, state.job(), out);
    } else {
      start_epoch(job, roster, out);
      job.is_noted = true;
    }
  } else {
    number_is_used(job, state.epoch());
    note_change(job, state.job());
  }
  advance(state.job(), out);
  return out;
}

}  // namespace tutti
