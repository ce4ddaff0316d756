#include "daemon/control/coordinator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/base/job_check.h"
#include "daemon/base/status_message.h"
#include "daemon/base/strategy.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "daemon/control/channel.h"
#include "daemon/membership/values.h"
#include "proto/segment.h"

namespace tutti {
namespace {

// "host b (10.0.0.2:7601)", for the log.
std::string describe(const v1::AgentMessage& agent) {
  return printable("host " + agent.host() + " (" + agent.address() + ")");
}

bool can_be_kept(const v1::RefusedJoin& refused) {
  return check_job(refused.job(), 0, 1).ok() && refused.host().size() <= kHostBytesMax &&
         refused.owner().subject().size() <= kHostBytesMax;
}

}  // namespace

Membership Coordinator::new_membership() {
  return Membership([this](const v1::Pass& pass) { return check_pass_locked(pass); },
                    options_.grace);
}

Status Coordinator::check(const v1::Pass& pass) const {
  const std::lock_guard lock(mutex_);
  return check_pass_locked(pass);
}

Status Coordinator::check_pass_locked(const v1::Pass& pass) const {
  if (!credentials_.certified_hosts) return check_pass(pass, credentials_);
  const std::vector<std::string> keys = keys_of_locked(pass.host());
  if (keys.empty())
    return unavailable(std::string(kNoAgentOf) + pass.host() +
                       " is registered at the coordinator; with tls = require a host takes part "
                       "once its tuttid has shown a certificate that names it: see the log there, "
                       "and docs/tls.md");
  if (check_certified_pass(pass, keys).ok()) return {};
  return unauthenticated("the agent of host " + pass.host() + " did not sign this pass for job \"" +
                         pass.job() +
                         "\"; with tls = require it signs with a key of its own, no token");
}

std::vector<std::string> Coordinator::keys_of_locked(const std::string& host) const {
  std::vector<std::string> keys;
  if (host == options_.host) keys.push_back(own_pass_key_);
  for (auto key = keys_.lower_bound({host, 0}); key != keys_.end() && key->first.first == host;
       ++key)
    keys.push_back(key->second);
  return keys;
}

void Coordinator::forget_key_locked(uint64_t agent) {
  const auto found = agents_.find(agent);
  if (found != agents_.end() && found->second.message)
    keys_.erase({found->second.message->host(), agent});
}

void Coordinator::lead(const std::string& own_address, StateStore& store) {
  const std::lock_guard lock(mutex_);
  leader_ = own_address;
  store_ = &store;
  memory_ = {};
  membership_ = new_membership();
  for (const v1::JobState& state : store.load())
    if (const Status restored = membership_.restore(state, Clock::now()); !restored.ok())
      spdlog::warn("{}", restored.message());
  on_deadline_changed_();
}

void Coordinator::follow(const std::string& address, const std::string& why) {
  const std::lock_guard lock(mutex_);
  leader_ = address;
  why_none_ = why;
  store_ = nullptr;
  membership_ = new_membership();
  for (const auto& [worker, stream] : workers_) stream.close();
  workers_.clear();
  for (const auto& [id, agent] : agents_) agent.close();
  agents_.clear();
  keys_.clear();
  memory_ = {};
}

std::string Coordinator::leader() const {
  const std::lock_guard lock(mutex_);
  return leader_;
}

std::string Coordinator::describe_leader() const {
  const std::lock_guard lock(mutex_);
  if (!leader_.empty()) return "the coordinator is " + leader_;
  return why_none_.empty() ? "none has been elected yet" : why_none_;
}

void Coordinator::saved(const v1::JobState& state) {
  const std::lock_guard lock(mutex_);
  if (store_ != nullptr) apply_locked(membership_.saved(state));
}

bool Coordinator::leads() const {
  const std::lock_guard lock(mutex_);
  return store_ != nullptr;
}

Membership::Worker Coordinator::attach(Stream stream) {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return 0;
  workers_.emplace(++last_id_, std::move(stream));
  return last_id_;
}

void Coordinator::receive(Membership::Worker worker, const v1::WorkerMessage& message) {
  constexpr size_t kSecretBytes = 16;
  {
    const std::lock_guard lock(mutex_);
    if (!workers_.contains(worker)) return;
    if (message.has_join()) {
      const Effects effects =
          membership_.join(worker, message.join(), random_hex(kSecretBytes), Clock::now());
      remember_locked(message.join(), effects);
      apply_locked(effects);
    }
    if (message.has_gone()) apply_locked(membership_.rank_gone(worker, message.gone()));
    if (message.has_resume()) resume_locked(worker, message.resume());
  }
  if (message.has_join()) on_deadline_changed_();
}

// The others whom a join's effects refuse wait: their passes count. What is too long to keep, or no
// name, is not kept.
void Coordinator::remember_locked(const v1::JoinRank& join, const Effects& effects) {
  bool joined = true;
  for (v1::RefusedJoin refused : effects.refused) {
    const bool is_own = refused.rank() == join.rank() && refused.host() == join.host();
    joined = joined && !is_own;
    if (refusals_.count("mesh", code_of(refused.status().code()), refused.host()))
      spdlog::warn("refused rank {} of job \"{}\" on host {}: {}", refused.rank(),
                   printable(refused.job()), printable(refused.host()),
                   printable(refused.status().message()));
    if (is_own && !check_pass_locked(join.pass()).ok())
      refused.set_rank(CoordinatorMemory::kUnknownRank);
    if (can_be_kept(refused)) memory_.join_refused(std::move(refused), Clock::now());
  }
  if (joined) memory_.rank_joined(join);
}

void Coordinator::agent_refused(const std::string& caller, const Status& why) {
  if (refusals_.count("mesh", why.code(), caller))
    spdlog::warn("refused an agent at {}: {}", printable(caller), printable(why.message()));
}

void Coordinator::worker_refused(const std::string& caller, const v1::Pass& pass,
                                 const Status& why) {
  if (refusals_.count("mesh", why.code(), caller))
    spdlog::warn("refused a worker at {}: {}", printable(caller), printable(why.message()));
  v1::RefusedJoin refused;
  refused.set_job(pass.job());
  refused.set_rank(CoordinatorMemory::kUnknownRank);
  refused.set_host(pass.host());
  refused.mutable_owner()->set_uid(pass.uid());
  refused.mutable_owner()->set_subject(pass.subject());
  write_status(why, *refused.mutable_status());
  if (!can_be_kept(refused)) return;
  const std::lock_guard lock(mutex_);
  memory_.join_refused(std::move(refused), Clock::now());
}

void Coordinator::report_refusals(v1::AgentReport& report) const {
  refusals_.report(report);
  const std::lock_guard lock(mutex_);
  memory_.report_refused_joins(Clock::now(), report);
}

// Nobody vouches for the worker now: it reconnects, and then shows its pass again.
void Coordinator::resume_locked(Membership::Worker worker, const v1::Resume& resume) {
  if (check_pass_locked(resume.pass()).code() == Code::unavailable)
    return workers_.at(worker).close();
  apply_locked(membership_.resume(worker, resume));
}

void Coordinator::detach(Membership::Worker worker) {
  {
    const std::lock_guard lock(mutex_);
    if (workers_.erase(worker) == 0) return;
    apply_locked(membership_.worker_gone(worker, Clock::now()));
  }
  on_deadline_changed_();
}

void Coordinator::expire() {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr || has_stopped_sending_) return;
  apply_locked(membership_.expire(Clock::now(), store_->obstacle()));
}

TimePoint Coordinator::next_deadline() const {
  const std::lock_guard lock(mutex_);
  return store_ != nullptr ? membership_.next_deadline() : TimePoint::max();
}

void Coordinator::stop_sending() {
  const std::lock_guard lock(mutex_);
  has_stopped_sending_ = true;
}

Status Coordinator::set_strategy(const std::string& job, const std::string& text,
                                 const v1::Owner* owner) {
  const Result<Strategies> strategies = parse_strategies(text);
  if (!strategies.ok()) return strategies.status();
  const std::lock_guard lock(mutex_);
  const Result<Effects> effects = membership_.set_strategy(job, to_string(*strategies), owner);
  if (effects.ok()) apply_locked(*effects);
  return effects.status();
}

void Coordinator::apply_locked(const Effects& effects) {
  if (has_stopped_sending_) return;
  std::vector<v1::JobState> states;
  for (const auto& [key, state] : effects.save) states.push_back(state);
  const bool are_saved = !states.empty() && store_->save(states);
  send_locked(effects.send);
  if (!are_saved) return;
  for (const v1::JobState& state : states) apply_locked(membership_.saved(state));
}

void Coordinator::send_locked(const std::vector<Effects::Message>& messages) {
  for (const Effects::Message& message : messages) {
    const auto worker = workers_.find(message.to);
    if (worker != workers_.end()) worker->second.send(message.body);
  }
}

uint64_t Coordinator::attach_agent(std::function<void()> close) {
  const std::lock_guard lock(mutex_);
  if (store_ == nullptr) return 0;
  agents_[++last_id_].close = std::move(close);
  return last_id_;
}

void Coordinator::enlist(uint64_t agent, const v1::AgentMessage& message) {
  const std::lock_guard lock(mutex_);
  const auto found = agents_.find(agent);
  if (found == agents_.end()) return;
  forget_key_locked(agent);
  found->second.message = message;
  if (!message.pass_key().empty()) keys_[{message.host(), agent}] = message.pass_key();
  if (message.version() != kProtocolVersion)
    spdlog::warn(
        "{} speaks protocol version {}, this coordinator version {}: joins from there are refused; "
        "install the same release on every host",
        describe(message), message.version(), kProtocolVersion);
  if (const auto lost = memory_.agent_back(message.host(), Clock::now()))
    spdlog::info("{} is back, after {} s", describe(message), lost->count() / 1'000);
}

void Coordinator::detach_agent(uint64_t agent, bool stopped) {
  const std::lock_guard lock(mutex_);
  forget_key_locked(agent);
  const auto found = agents_.find(agent);
  if (found == agents_.end()) return;
  const std::optional<v1::AgentMessage> message = std::move(found->second.message);
  agents_.erase(found);
  if (!message || has_stopped_sending_ || is_enlisted_locked(message->host())) return;
  memory_.agent_gone(*message, stopped, Clock::now());
  if (stopped)
    spdlog::info("{} has stopped", describe(*message));
  else
    spdlog::warn("{} is lost: its agent ended or cannot be reached", describe(*message));
}

bool Coordinator::is_enlisted_locked(const std::string& host) const {
  return std::ranges::any_of(agents_, [&](const auto& entry) {
    return entry.second.message && entry.second.message->host() == host;
  });
}

std::vector<v1::AgentReport> Coordinator::gone_agents() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::AgentReport> reports = memory_.gone_agents(Clock::now());
  for (v1::AgentReport& report : reports)
    for (v1::WorkerReport& worker : membership_.workers_on(report.host())) {
      worker.set_state("unknown: its agent is gone");
      *report.add_workers() = std::move(worker);
    }
  std::erase_if(reports, [](const v1::AgentReport& report) {
    const auto kept = static_cast<uint64_t>(CoordinatorMemory::kStoppedKept.count());
    return !report.lost() && report.lost_ms() > kept && report.workers_size() == 0;
  });
  return reports;
}

std::vector<v1::AgentMessage> Coordinator::agents() const {
  std::vector<v1::AgentMessage> agents;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, agent] : agents_)
      if (agent.message) agents.push_back(*agent.message);
  }
  std::ranges::sort(agents, {}, [](const auto& agent) { return agent.host(); });
  return agents;
}

}  // namespace tutti
