#include "daemon/mesh/coordinator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "daemon/mesh/epoch_file.h"
#include "daemon/schedule/schedule.h"

namespace tutti {
namespace {

// 128 random bits in hex.
std::string random_secret() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> digits;
    std::snprintf(digits.data(), digits.size(), "%08x", static_cast<unsigned>(source()));
    text += digits.data();
  }
  return text;
}

}  // namespace

void Coordinator::lead(const std::string& own_address) {
  const std::lock_guard lock(mutex_);
  leader_ = own_address;
  leads_ = true;
  membership_ = Membership(credentials_, {.grace = options_.grace});
  read_states_locked();
  on_deadline_changed_();
}

void Coordinator::follow(const std::string& address) {
  const std::lock_guard lock(mutex_);
  leader_ = address;
  leads_ = false;
}

std::string Coordinator::leader() const {
  const std::lock_guard lock(mutex_);
  return leader_;
}

void Coordinator::read_states_locked() {
  if (options_.state_file.empty()) return;
  const Result<v1::JobStates> states = read_epoch_file(options_.state_file);
  if (!states.ok()) return spdlog::warn("{}", states.status().message());
  for (const v1::JobState& state : states->jobs())
    if (const Status restored = membership_.restore(state, Clock::now()); !restored.ok())
      spdlog::warn("{}: {}", options_.state_file, restored.message());
}

void Coordinator::keep_states_locked() {
  if (membership_.take_changed().empty() || options_.state_file.empty() || muted_) return;
  const Status kept = write_epoch_file(options_.state_file, membership_.states());
  if (!kept.ok() && !file_fails_)
    spdlog::error("epochs are not remembered across a restart: {}", kept.message());
  file_fails_ = !kept.ok();
}

bool Coordinator::leads() const {
  const std::lock_guard lock(mutex_);
  return leads_;
}

Membership::Worker Coordinator::attach(Stream stream) {
  const std::lock_guard lock(mutex_);
  if (!leads_) return 0;
  workers_.emplace(++last_id_, std::move(stream));
  return last_id_;
}

void Coordinator::receive(Membership::Worker worker, const v1::WorkerMessage& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!workers_.contains(worker)) return;
    if (message.has_join())
      deliver_locked(membership_.join(worker, message.join(), random_secret(), Clock::now()));
    if (message.has_gone()) deliver_locked(membership_.rank_gone(worker, message.gone()));
    if (message.has_resume()) deliver_locked(membership_.resume(worker, message.resume()));
  }
  if (message.has_join()) on_deadline_changed_();
}

void Coordinator::detach(Membership::Worker worker) {
  {
    const std::lock_guard lock(mutex_);
    workers_.erase(worker);
    deliver_locked(membership_.worker_gone(worker, Clock::now()));
  }
  on_deadline_changed_();
}

void Coordinator::expire() {
  const std::lock_guard lock(mutex_);
  deliver_locked(membership_.expire(Clock::now()));
}

TimePoint Coordinator::next_deadline() const {
  const std::lock_guard lock(mutex_);
  return membership_.next_deadline();
}

void Coordinator::mute() {
  const std::lock_guard lock(mutex_);
  muted_ = true;
}

Status Coordinator::set_strategy(const std::string& job, const std::string& text,
                                 const v1::Owner* owner) {
  const Result<Strategies> strategies = parse_strategies(text);
  if (!strategies.ok()) return strategies.status();
  const std::lock_guard lock(mutex_);
  const Result<Membership::Messages> messages =
      membership_.set_strategy(job, to_string(*strategies), owner);
  if (messages.ok()) deliver_locked(*messages);
  return messages.status();
}

void Coordinator::deliver_locked(const Membership::Messages& messages) {
  keep_states_locked();
  if (muted_) return;
  for (const Membership::Message& message : messages) {
    const auto worker = workers_.find(message.to);
    if (worker != workers_.end()) worker->second.send(message.body);
  }
}

void Coordinator::enlist(uint64_t agent, const v1::AgentMessage& message) {
  const std::lock_guard lock(mutex_);
  agents_[agent] = message;
}

void Coordinator::delist(uint64_t agent) {
  const std::lock_guard lock(mutex_);
  agents_.erase(agent);
}

uint64_t Coordinator::next_agent() {
  const std::lock_guard lock(mutex_);
  return ++last_id_;
}

std::vector<v1::AgentMessage> Coordinator::agents() const {
  std::vector<v1::AgentMessage> agents;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, agent] : agents_) agents.push_back(agent);
  }
  std::ranges::sort(agents, {}, [](const auto& agent) { return agent.host(); });
  return agents;
}

}  // namespace tutti
