#include "daemon/control/coordinator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/base/strategy.h"
#include "daemon/base/token.h"
#include "daemon/control/channel.h"

namespace tutti {

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
    if (message.has_join())
      apply_locked(
          membership_.join(worker, message.join(), random_hex(kSecretBytes), Clock::now()));
    if (message.has_gone()) apply_locked(membership_.rank_gone(worker, message.gone()));
    if (message.has_resume()) resume_locked(worker, message.resume());
  }
  if (message.has_join()) on_deadline_changed_();
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
}

void Coordinator::detach_agent(uint64_t agent) {
  const std::lock_guard lock(mutex_);
  forget_key_locked(agent);
  agents_.erase(agent);
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
