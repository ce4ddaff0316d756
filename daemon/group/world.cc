#include "daemon/group/world.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

// How long after a deadline the leader may take to say so before it counts as lost.
constexpr Millis kLeaderGrace{2'000};
// Failures kept for local ranks that have not come so far.
constexpr size_t kFailedMost = 65'536;

int find_host(const std::vector<Host>& hosts, const std::string& name) {
  const auto found = std::ranges::find(hosts, name, &Host::name);
  require(found != hosts.end(), "a worker is in the roster it was given");
  return static_cast<int>(found - hosts.begin());
}

std::vector<int> all_ranks(const Roster& roster) {
  std::vector<int> ranks(roster.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

uint32_t left_ms(uint32_t timeout_ms, uint32_t waited_ms) {
  return timeout_ms > waited_ms ? timeout_ms - waited_ms : 0;
}

// A number for a group that all its members compute alike (FNV-1a); never 0, which is the whole
// job.
uint32_t group_number(const std::vector<int>& members, uint32_t nth) {
  uint32_t hash = 2166136261u;
  const auto add = [&](uint32_t word) { hash = (hash ^ word) * 16777619u; };
  for (const int rank : members) add(static_cast<uint32_t>(rank));
  add(~nth);
  return hash == 0 ? 1 : hash;
}

}  // namespace

PlainWorld::PlainWorld(const WorldParts& parts, Roster roster, const std::string& host,
                       const WorldOptions& options)
    : parts_(parts),
      roster_(std::move(roster)),
      hosts_(hosts_of(roster_)),
      self_(find_host(hosts_, host)),
      options_(options),
      rates_(hosts_.size()),
      matcher_(roster_),
      fuser_({options_.fuse_bytes_max, options_.slice_bytes, options_.fuse_ops_max}),
      outbox_(parts_.loop, hosts_.size(), std::chrono::microseconds(options_.coalesce_us),
              options_.slice_bytes,  // A frame takes one for sure.
              [this](int host, const v1::ControlBatch& batch) {
                links_->send_control(host, control_frame(roster_.epoch, batch));
              }) {
  groups_.emplace(0, Communicator(all_ranks(roster_), hosts_, self_));
  if (const Result<Strategies> set = parse_strategies(roster_.strategy); set.ok())
    job_strategies_ = *set;
  find_machine();
  if (leads()) make_adviser();
  links_ = std::make_unique<Links>(parts_.loop, parts_.transport, roster_, hosts_, self_, *this);
}

PlainWorld::~PlainWorld() {
  *alive_ = false;
  if (cause_.ok()) cause_ = aborted("the epoch has ended");
  parts_.engine.abort(roster_.epoch, cause_);
  for (const auto& [key, pending] : pending_) parts_.loop.cancel(pending.timer);
  parts_.loop.cancel(matcher_timer_);
}

// ---- The member ----

void PlainWorld::submit(int job_rank, uint32_t number, Call call) {
  const auto found = groups_.find(number);
  const std::optional<int> rank =
      found == groups_.end() ? std::nullopt : found->second.rank_of(job_rank);
  if (!rank) return answer(call, not_found("this rank has no group " + std::to_string(number)));
  enter({number, *rank}, std::move(call));
}

void PlainWorld::enter(const Caller& caller, Call call) {
  if (!cause_.ok()) return answer(call, cause_);
  const int rank = caller.second;
  Communicator& group = groups_.at(caller.first);
  const Key key{caller.first, call.number};
  group.take_seq(rank, call.number);
  const auto failed = failed_.find(key);
  if (failed != failed_.end()) {
    const Status status = failed->second;
    if (group.passed_by_all(key.second, gone_)) failed_.erase(failed);
    announce(key, group, rank, call, 0);  // The leader counts who has passed.
    return answer(call, status);
  }
  Pending& pending = pending_[key];
  const uint32_t timeout_ms = call.timeout_ms != 0 ? call.timeout_ms : options_.op_timeout_ms;
  watch_deadline(key, pending, timeout_ms, call.waited_ms);
  const Call& kept = pending.calls.emplace(rank, std::move(call)).first->second;
  Call bare;
  bare.signature = kept.signature;
  bare.invalid = kept.invalid;
  bare.waited_ms = kept.waited_ms;
  announce(key, group, rank, bare, timeout_ms);
}

void PlainWorld::announce(const Key& key, const Communicator& group, int rank, const Call& call,
                          uint32_t timeout_ms) {
  tell_rates();
  const uint32_t before_us = key.second == 0 ? 0 : op_clock_.take_us({key.first, key.second - 1});
  if (leads()) {
    adviser_->took(key.first, key.second - 1, before_us);
    const TimePoint deadline = Clock::now() + Millis(left_ms(timeout_ms, call.waited_ms));
    return judge({key.first, key.second, group.members(), rank, call.signature, call.invalid,
                  deadline, timeout_ms},
                 self_);
  }
  v1::Control control;
  control.set_group(key.first);
  control.set_op_seq(key.second);
  if (key.first != 0)
    control.mutable_members()->Assign(group.members().begin(), group.members().end());
  v1::Arrive& arrive = *control.mutable_arrive();
  arrive.set_rank(static_cast<uint32_t>(rank));
  arrive.set_timeout_ms(left_ms(timeout_ms, call.waited_ms));
  arrive.set_before_us(before_us);
  write_signature(call.signature, *arrive.mutable_signature());
  if (!call.invalid.ok()) write_status(call.invalid, *arrive.mutable_invalid());
  outbox_.add(0, control, hurry_of(key, call.signature));
}

// A small operation cannot start before an older one of its group has: until that one's verdict it
// may wait for others to travel with.
Hurry PlainWorld::hurry_of(const Key& key, const Signature& signature) const {
  if (bytes_of(signature) > options_.fuse_bytes_max) return Hurry::this_turn;
  for (auto older = pending_.lower_bound({key.first, 0});
       older != pending_.end() && older->first < key; ++older)
    if (!older->second.started) return Hurry::budget;
  return Hurry::this_turn;
}

void PlainWorld::watch_deadline(const Key& key, Pending& pending, uint32_t timeout_ms,
                                uint32_t waited_ms) {
  const TimePoint deadline = Clock::now() + Millis(left_ms(timeout_ms, waited_ms));
  if (deadline >= pending.deadline) return;
  pending.deadline = deadline;
  pending.timeout_ms = timeout_ms;
  parts_.loop.cancel(pending.timer);
  pending.timer = parts_.loop.at(deadline, [this, key] { past_deadline(key); });
}

// Before the start the leader decides; it gets a moment to say so. While data moves, this host
// does.
void PlainWorld::past_deadline(const Key& key) {
  Pending& pending = pending_.at(key);
  pending.timer = 0;
  const Signature& signature = pending.signature();
  const std::string what = std::string(name_of(signature.collective)) + " #" +
                           std::to_string(key.second) + " timed out after " +
                           std::to_string(pending.timeout_ms) + " ms";
  if (pending.started) {
    const Engine::Waiting waiting =
        parts_.engine.waiting({roster_.epoch, key.first, pending.runs_as});
    const Communicator& group = groups_.at(key.first);
    const int culprit = waiting.rank < 0 ? -1 : group.members()[waiting.rank];
    const std::string name = culprit < 0 ? "" : roster_.ranks[culprit].host;
    return abort(deadline_exceeded(what + " on host " + hosts_[self_].name + ", waiting for " +
                                       waiting.what + (name.empty() ? "" : " (host " + name + ")"),
                                   {culprit, name}));
  }
  if (Clock::now() < pending.deadline + kLeaderGrace) {
    pending.timer =
        parts_.loop.at(pending.deadline + kLeaderGrace, [this, key] { past_deadline(key); });
    return;
  }
  abort(deadline_exceeded(
      what + ": the worker of host " + hosts_[0].name + ", which leads the job, does not answer",
      {0, hosts_[0].name}));
}

void PlainWorld::obey_fail(const Key& key, const Status& status) {
  const auto group = groups_.find(key.first);  // May have no local rank that made it yet.
  const bool passed = group != groups_.end() && group->second.passed_by_all(key.second, gone_);
  if (!passed) failed_.emplace(key, status);
  complete(key, status);
  outbox_.flush_this_turn();  // What waited for this verdict.
  if (failed_.size() > kFailedMost)
    abort(resource_exhausted("a rank of host " + hosts_[self_].name + " is " +
                             std::to_string(kFailedMost) + " failed operations behind the others"));
}

void PlainWorld::complete(const Key& key, const Status& status) {
  auto ended = pending_.extract(key);
  if (ended.empty()) return;
  parts_.loop.cancel(ended.mapped().timer);
  for (const auto& [rank, call] : ended.mapped().calls) answer(call, status);
}

void PlainWorld::answer(const Call& call, const Status& status) {
  if (status.ok()) {
    ++stats_.operations;
    stats_.bytes += bytes_of(call.signature);
  } else {
    ++stats_.failures;
  }
  call.done(status);
}

Result<uint32_t> PlainWorld::subgroup(int rank, const std::vector<uint32_t>& ranks) {
  std::vector<int> members;
  for (const uint32_t member : ranks) {
    if (member >= roster_.ranks.size())
      return invalid_argument("sub-group: there is no rank " + std::to_string(member) + " of " +
                              std::to_string(roster_.ranks.size()));
    if (std::ranges::find(members, static_cast<int>(member)) != members.end())
      return invalid_argument("sub-group: rank " + std::to_string(member) + " is listed twice");
    members.push_back(static_cast<int>(member));
  }
  if (std::ranges::find(members, rank) == members.end())
    return invalid_argument("sub-group: rank " + std::to_string(rank) +
                            " makes a group it is not in");
  if (groups_.size() >= kGroupsMost)
    return resource_exhausted("sub-group: this epoch has " + std::to_string(kGroupsMost) +
                              " groups already; make them once and keep them");
  const uint32_t number = group_number(members, subgroup_counts_[members][rank]++);
  const auto [made, fresh] = groups_.try_emplace(number, members, hosts_, self_);
  if (!fresh && made->second.members() != members)
    return resource_exhausted("sub-group: two groups have one number; list the ranks otherwise");
  return number;
}

void PlainWorld::leave(int rank, const Status& cause) {
  note_gone(rank, cause);
  if (leads()) return lead_gone(rank, cause);
  v1::Control control;
  control.mutable_gone()->set_rank(static_cast<uint32_t>(rank));
  write_status(cause, *control.mutable_gone()->mutable_cause());
  outbox_.add(0, control, Hurry::now);
}

void PlainWorld::note_gone(int rank, const Status& cause) {
  const bool news = gone_.insert(rank).second;
  if (news) departures_.push_back(rank);
  if (news && !cause.ok())
    spdlog::warn("job {} epoch {}: {}", roster_.job, roster_.epoch, cause.message());
}

void PlainWorld::abort(const Status& cause) {
  if (!cause_.ok()) return;
  v1::Control control;
  write_status(cause, *control.mutable_abort());
  leads() ? to_others(control) : outbox_.add(0, control, Hurry::now);
  end_epoch(cause);
}

// All that is under way fails with the cause, and all that comes.
void PlainWorld::end_epoch(const Status& cause) {
  if (!cause_.ok()) return;
  cause_ = cause;
  spdlog::warn("job {} epoch {} is over: {}", roster_.job, roster_.epoch, cause.to_string());
  parts_.engine.abort(roster_.epoch, cause);
  while (!pending_.empty()) complete(Key(pending_.begin()->first), cause);
  failed_.clear();
  if (parts_.on_over) parts_.on_over(cause);
}

WorldStats PlainWorld::stats() const {
  WorldStats stats = stats_;
  stats.sent_bytes = links_->sent_bytes();
  stats.sent_frames = links_->sent_frames();
  return stats;
}

}  // namespace tutti
