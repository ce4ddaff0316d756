#include "tests/membership/simulated_workers.h"

#include <algorithm>
#include <utility>

#include "daemon/membership/roster_message.h"
#include "proto/segment.h"

namespace tutti::simulated {
namespace {

constexpr Ms kRedial = 400;
constexpr Ms kAnswerGrace = 300;

}  // namespace

Workers::Workers(Timeline& timeline, Network& network, const Script& script)
    : timeline_(timeline), network_(network), script_(script), workers_(script.ranks.size()) {}

void Workers::start_all() {
  for (int index = 0; index < static_cast<int>(workers_.size()); ++index) start(index);
}

void Workers::start(int index) {
  Worker& self = worker(index);
  self.alive = true;
  self.turns.assign(static_cast<size_t>(script_.ranks[static_cast<size_t>(index)]), 0);
  for (size_t slot = 0; slot < self.turns.size(); ++slot) plan_join(index, slot, 1'000);
}

std::string Workers::address(int index) const {
  return std::to_string(index) + "." + std::to_string(worker(index).life) + ":9";
}

void Workers::suspend(int index, Ms until) {
  Worker& self = worker(index);
  if (!self.alive) return;
  self.suspended_until = std::max(self.suspended_until, until);
  if (self.suspended_until - timeline_.now() > Network::kNoticed)
    network_.break_all_of_worker(index, false, Network::kNoticed);
}

void Workers::kill(int index) {
  Worker& self = worker(index);
  if (!self.alive) return;
  if (self.newest) spread_failure(self.newest->roster, index);
  network_.break_all_of_worker(index, true, 50);
  const int life = self.life;
  const int coordinator = self.coordinator;
  self = Worker();
  self.life = life + 1;
  self.coordinator = coordinator;
  self.alive = false;
}

void Workers::cut_stream(int index) {
  if (worker(index).dialled != 0) network_.cut(worker(index).dialled);
}

// ---- The stream ----

void Workers::set_coordinator(int index, int coordinator) {
  Worker& self = worker(index);
  if (coordinator < 0 || coordinator == self.coordinator) return;
  self.coordinator = coordinator;
  for (auto& [rank, pending] : self.joins) pending.sent = false;
  if (!self.alive || (!self.has_connected && self.joins.empty())) return;
  if (self.dialled != 0) network_.drop(self.dialled);
  connect(index);
}

void Workers::connect(int index) {
  Worker& self = worker(index);
  self.has_connected = true;
  self.is_open = false;
  ++self.dials;
  self.dialled = network_.dial(index, self.coordinator);
}

void Workers::on_open(int index) {
  Worker& self = worker(index);
  self.is_open = true;
  if (self.newest) resume(index);
  for (auto& [rank, pending] : self.joins) send_join(index, pending);
}

void Workers::on_broken(int index) {
  Worker& self = worker(index);
  self.is_open = false;
  self.dialled = 0;
  for (auto& [rank, pending] : self.joins) pending.sent = false;
  timeline_.after(kRedial, &self, [this, index, dials = self.dials] {
    if (worker(index).dials == dials) connect(index);
  });
}

void Workers::resume(int index) {
  const Worker& self = worker(index);
  v1::WorkerMessage message;
  v1::Resume& resume = *message.mutable_resume();
  resume.set_job("demo");
  resume.set_host(std::to_string(index));
  resume.set_epoch(self.newest->roster.epoch());
  resume.mutable_pass()->set_job("demo");
  resume.mutable_pass()->set_host(resume.host());
  *resume.mutable_roster() = self.newest->roster;
  for (const auto& [rank, slot] : self.newest->ranks) resume.add_ranks(rank);
  if (!self.newest->broken.ok()) write_status(self.newest->broken, *resume.mutable_broken());
  network_.to_agent(self.dialled, std::move(message));
}

void Workers::send_join(int index, PendingJoin& pending) {
  const Worker& self = worker(index);
  v1::WorkerMessage message;
  *message.mutable_join() = pending.join;
  message.mutable_join()->set_timeout_ms(
      static_cast<uint32_t>(std::max<Ms>(pending.deadline - timeline_.now(), 1)));
  message.mutable_join()->set_last_epoch(self.last_epoch);
  pending.sent = true;
  network_.to_agent(self.dialled, std::move(message));
}

void Workers::send_gone(int index, uint32_t epoch, uint32_t rank, const Status& cause) {
  if (!worker(index).is_open) return;
  v1::WorkerMessage message;
  message.mutable_gone()->set_job("demo");
  message.mutable_gone()->set_epoch(epoch);
  message.mutable_gone()->set_rank(rank);
  write_status(cause, *message.mutable_gone()->mutable_cause());
  network_.to_agent(worker(index).dialled, std::move(message));
}

void Workers::on_message(int index, const v1::CoordinatorMessage& message) {
  if (message.has_roster()) on_roster(index, message.roster());
  if (message.has_refused()) on_refused(index, message.refused());
  if (message.has_aborted()) on_aborted(index, message.aborted().epoch());
}

void Workers::on_roster(int index, const v1::Roster& roster) {
  Worker& self = worker(index);
  if (!from_message(roster).ok()) return timeline_.wrong("a roster makes no sense");
  std::map<uint32_t, size_t> ranks;
  for (const auto& [rank, pending] : self.joins)
    if (is_in(index, roster, pending)) ranks[rank] = pending.slot;
  if (roster.epoch() <= self.last_epoch) {
    for (const auto& [rank, slot] : ranks) {
      send_gone(index, roster.epoch(), rank, unavailable("an old number"));
      end_join(index, rank, unavailable("an old number"));
    }
    return;
  }
  timeline_.say(name(index), "runs in epoch " + std::to_string(roster.epoch()));
  ++counts_.rosters;
  self.last_epoch = roster.epoch();
  const bool stays = may_stay(roster);
  self.newest = Newest{.roster = roster, .ranks = ranks, .broken = {}, .stays = stays};
  for (const auto& [rank, slot] : ranks) {
    self.joins.erase(rank);
    ++self.turns[slot];
    if (stays) continue;
    const bool dies = timeline_.random.chance(script_.percent_deaths);
    plan(index, slot, script_.runs_most, [this, index, rank = rank, epoch = roster.epoch(), dies] {
      leave(index, epoch, rank, dies);
    });
  }
  report_missing(index);
}

// Its ranks of which nobody waits any more are dead to the others.
void Workers::report_missing(int index) {
  Newest& newest = *worker(index).newest;
  for (const v1::RosterRank& who : newest.roster.ranks()) {
    if (who.host() != std::to_string(index) || newest.ranks.contains(who.rank())) continue;
    newest.broken = unavailable("rank " + std::to_string(who.rank()) + " has given up");
    send_gone(index, newest.roster.epoch(), who.rank(), newest.broken);
    spread_failure(newest.roster, -1);
  }
}

bool Workers::is_in(int index, const v1::Roster& roster, const PendingJoin& pending) const {
  const auto rank = static_cast<int>(pending.join.rank());
  return pending.sent && static_cast<int>(pending.join.world_size()) == roster.ranks_size() &&
         rank < roster.ranks_size() && roster.ranks(rank).pid() == pending.join.pid() &&
         roster.ranks(rank).host() == std::to_string(index);
}

void Workers::on_refused(int index, const v1::JoinRefused& refused) {
  const auto& joins = worker(index).joins;
  const auto found = joins.find(refused.rank());
  if (found == joins.end() || found->second.join.number() != refused.number()) return;
  const Status why = read_status(refused.status());
  if (why.ok() || why.message().empty()) timeline_.wrong("a join is refused without a reason");
  end_join(index, refused.rank(), why);
}

void Workers::on_aborted(int index, uint32_t epoch) {
  Worker& self = worker(index);
  if (!self.newest || self.newest->roster.epoch() != epoch) return;
  timeline_.say(name(index), "epoch " + std::to_string(epoch) + " is aborted");
  ++counts_.aborted;
  for (const auto& [rank, slot] : self.newest->ranks) plan_join(index, slot, 1'500);
  self.newest.reset();
}

// ---- Joins that wait ----

void Workers::watch_deadline(int index, uint32_t rank) {
  const PendingJoin& pending = worker(index).joins.at(rank);
  for (const bool answer_is_due : {false, true})
    timeline_.at(pending.deadline + (answer_is_due ? kAnswerGrace : 0), &worker(index),
                 [this, index, rank, number = pending.join.number(), answer_is_due] {
                   on_deadline(index, rank, number, answer_is_due);
                 });
}

void Workers::on_deadline(int index, uint32_t rank, uint32_t number, bool answer_is_due) {
  const auto& joins = worker(index).joins;
  const auto found = joins.find(rank);
  if (found == joins.end() || found->second.join.number() != number) return;
  if (found->second.sent && !answer_is_due) return;
  if (!found->second.sent)
    return end_join(index, rank, unavailable("the coordinator is not reached"));
  if (timeline_.now() > script_.heals + kTimeToHeal)
    timeline_.wrong("a join of " + name(index) + " is not answered, though nothing fails");
  send_gone(index, 0, rank, {});
  end_join(index, rank, deadline_exceeded("the coordinator did not answer"));
}

void Workers::end_join(int index, uint32_t rank, const Status& why) {
  Worker& self = worker(index);
  const PendingJoin pending = self.joins.at(rank);
  self.joins.erase(rank);
  ++counts_.refused;
  timeline_.say(name(index), "rank " + std::to_string(rank) + " cannot join: " + why.to_string());
  plan_join(index, pending.slot, 1'500);
}

// ---- Trainers ----

void Workers::plan(int index, size_t slot, Ms most, std::function<void()> what) {
  Worker& self = worker(index);
  const uint32_t turn = ++self.turns[slot];
  timeline_.after(timeline_.random.between(1, static_cast<int>(most)), &self,
                  [this, index, slot, turn, what = std::move(what)] {
                    if (worker(index).turns[slot] == turn) what();
                  });
}

void Workers::plan_join(int index, size_t slot, Ms most) {
  plan(index, slot, most, [this, index, slot] { join(index, slot); });
}

const Script::World& Workers::world() const {
  const auto next =
      std::ranges::upper_bound(script_.worlds, timeline_.now(), {}, &Script::World::from);
  return *std::prev(next);
}

std::optional<uint32_t> Workers::rank_of(int index, size_t slot, uint32_t& world_size) const {
  std::optional<uint32_t> rank;
  world_size = 0;
  for (const int host : world().hosts) {
    if (host == index) rank = world_size + static_cast<uint32_t>(slot);
    world_size += static_cast<uint32_t>(script_.ranks[static_cast<size_t>(host)]);
  }
  return rank;
}

bool Workers::may_stay(const v1::Roster& roster) const {
  uint32_t world_size = 0;
  (void)rank_of(0, 0, world_size);
  return roster.ranks_size() == static_cast<int>(world_size) &&
         std::ranges::all_of(roster.ranks(), [this](const v1::RosterRank& who) {
           return who.pid() >= first_healthy_pid_ &&
                  std::ranges::count(world().hosts, std::stoi(who.host())) != 0;
         });
}

void Workers::join(int index, size_t slot) {
  Worker& self = worker(index);
  uint32_t world_size = 0;
  const std::optional<uint32_t> rank = rank_of(index, slot, world_size);
  if (!rank || self.joins.contains(*rank)) return plan_join(index, slot, 1'000);
  const bool heals = timeline_.now() >= script_.heals;
  const Ms timeout =
      heals ? kLastTimeout : timeline_.random.between(200, static_cast<int>(script_.timeout_most));
  if (heals) first_healthy_pid_ = std::min(first_healthy_pid_, last_pid_ + 1);
  PendingJoin& pending = self.joins[*rank];
  pending.slot = slot;
  pending.deadline = timeline_.now() + timeout;
  v1::JoinRank& join = pending.join;
  join.set_job("demo");
  join.set_rank(*rank);
  join.set_world_size(world_size);
  join.set_pid(++last_pid_);
  join.set_host(std::to_string(index));
  join.set_address(address(index));
  join.set_version(kProtocolVersion);
  join.set_number(++self.join_count);
  join.mutable_pass()->set_job("demo");
  join.mutable_pass()->set_host(join.host());
  watch_deadline(index, *rank);
  if (!self.has_connected && self.coordinator >= 0) connect(index);
  if (self.is_open) send_join(index, pending);
}

void Workers::leave(int index, uint32_t epoch, uint32_t rank, bool dies) {
  Worker& self = worker(index);
  if (!self.newest || self.newest->roster.epoch() != epoch) return;
  const auto found = self.newest->ranks.find(rank);
  if (found == self.newest->ranks.end()) return;
  const size_t slot = found->second;
  self.newest->ranks.erase(found);
  const Status cause = dies ? unavailable("rank " + std::to_string(rank) + " died") : Status();
  if (self.newest->broken.ok()) self.newest->broken = cause;
  timeline_.say(name(index), "rank " + std::to_string(rank) + (dies ? " dies" : " leaves"));
  send_gone(index, epoch, rank, cause);
  if (dies) spread_failure(self.newest->roster, -1);
  plan_join(index, slot, 1'500);
}

void Workers::spread_failure(const v1::Roster& roster, int except) {
  failed_.insert(roster.epoch());
  for (int index = 0; index < static_cast<int>(workers_.size()); ++index) {
    if (index == except) continue;
    for (const v1::RosterRank& who : roster.ranks())
      if (who.host() == std::to_string(index))
        timeline_.after(timeline_.random.between(5, 3'000), &worker(index),
                        [this, index, epoch = roster.epoch(), rank = who.rank()] {
                          leave(index, epoch, rank, false);
                        });
  }
}

// ---- For checks ----

uint32_t Workers::epoch_of(int index) const {
  const Worker& self = worker(index);
  return self.newest && !self.newest->ranks.empty() ? self.newest->roster.epoch() : 0;
}

bool Workers::are_together() const {
  std::optional<uint32_t> epoch;
  for (int index = 0; index < static_cast<int>(workers_.size()); ++index) {
    const Worker& self = worker(index);
    const bool takes_part = std::ranges::count(world().hosts, index) != 0;
    if (!takes_part && epoch_of(index) != 0) return false;
    if (!takes_part) continue;
    if (epoch_of(index) == 0 || !self.newest->stays) return false;
    if (self.newest->ranks.size() != self.turns.size()) return false;
    if (epoch.value_or(epoch_of(index)) != epoch_of(index)) return false;
    epoch = epoch_of(index);
  }
  return true;
}

std::string Workers::describe() const {
  std::string text;
  for (int index = 0; index < static_cast<int>(workers_.size()); ++index)
    text += (index == 0 ? "" : ", ") + name(index) + " in epoch " +
            std::to_string(epoch_of(index)) + " with " +
            std::to_string(worker(index).joins.size()) + " joins";
  return text;
}

}  // namespace tutti::simulated
