#include "tests/membership/simulated_agents.h"

#include <algorithm>
#include <utility>

namespace tutti::simulated {
namespace {

constexpr Ms kCallTimeout = 800;
constexpr const char* kPrefix = "/tutti";

}  // namespace

Agents::Agents(Timeline& timeline, Network& network, const Script& script,
               const Tampering& tampering, OnCoordinator on_coordinator, OnRoster on_roster)
    : timeline_(timeline),
      network_(network),
      script_(script),
      tampering_(tampering),
      on_coordinator_(std::move(on_coordinator)),
      on_roster_(std::move(on_roster)),
      agents_(script.ranks.size()) {}

void Agents::start_all() {
  for (int index = 0; index < static_cast<int>(agents_.size()); ++index) start(index);
  if (script_.elects) expire_leases();
}

void Agents::start(int index) {
  Agent& self = agent(index);
  self.alive = true;
  if (script_.elects) {
    self.election.emplace(Election::Options{.prefix = kPrefix,
                                            .host = std::to_string(index),
                                            .address = address(index),
                                            .ttl = kTtl},
                          "the store");
    return plan_round(index, timeline_.now() + timeline_.random.below(300));
  }
  if (index == 0)
    return lead_with(0, tampering_.forgets_states ? std::vector<v1::JobState>() : file_.load());
  self.coordinator = 0;
  on_coordinator_(index, 0);
}

void Agents::suspend(int index, Ms until) {
  Agent& self = agent(index);
  if (!self.alive) return;
  self.suspended_until = std::max(self.suspended_until, until);
  if (self.suspended_until - timeline_.now() > Network::kNoticed)
    network_.break_all_of_agent(index, false, Network::kNoticed);
}

void Agents::kill(int index, bool in_order) {
  Agent& self = agent(index);
  if (!self.alive) return;
  network_.break_all_of_agent(index, true, 50);
  if (in_order && self.election && self.election->lease() != 0) {
    timeline_.after(10, nullptr, [this, lease = self.election->lease()] {
      if (silent_) return;
      keys_.revoke(lease);
      wake_all();
    });
  }
  const int life = self.life;
  self = Agent();
  self.life = life + 1;
  self.alive = false;
}

void Agents::silence_store(bool silent) {
  silent_ = silent;
  if (!silent) keys_.renew_all(timeline_.time());
}

// ---- Elections ----

void Agents::plan_round(int index, Ms when) {
  Agent& self = agent(index);
  timeline_.at(when, &self, [this, index, round = ++self.round] {
    if (agent(index).round == round) begin_round(index);
  });
}

void Agents::begin_round(int index) {
  Agent& self = agent(index);
  if (self.in_round) {
    self.wakes = true;
    return;
  }
  self.in_round = true;
  handle(index, self.election->begin(timeline_.time()));
}

void Agents::handle(int index, const Election::Step& step) {
  Agent& self = agent(index);
  for (const Election::Event& event : step.events) {
    if (const auto* lead = std::get_if<Election::Lead>(&event)) self.newest = *lead;
    self.hears_until = std::max(self.hears_until, timeline_.now() + timeline_.random.below(20));
    timeline_.at(self.hears_until, &self, [this, index, event] { hear(index, event); });
  }
  if (step.request) return ask(index, *step.request, step.at);
  self.in_round = false;
  const Ms due = std::max(timeline_.now() + 1, Timeline::ms(step.at));
  plan_round(index, std::exchange(self.wakes, false) ? timeline_.now() + 1 : due);
}

void Agents::ask(int index, Keys::Request request, TimePoint by) {
  Agent& self = agent(index);
  if (tampering_.request) tampering_.request(request);
  const uint64_t number = ++self.request;
  const Ms limit = by == TimePoint::max() ? timeline_.now() + kCallTimeout
                                          : std::clamp(Timeline::ms(by), timeline_.now() + 1,
                                                       timeline_.now() + kCallTimeout);
  const bool heals = timeline_.now() >= script_.heals;
  const bool fails = !heals && timeline_.random.chance(script_.percent_lost + script_.percent_late);
  if (fails || silent_) return ask_in_vain(index, request, number, limit);
  timeline_.after(timeline_.random.between(1, 15), nullptr, [=, this] {
    if (silent_) return ask_in_vain(index, request, number, limit);
    const Keys::Answer answer = this->answer(request);
    if (agent(index).request != number) return;
    timeline_.after(timeline_.random.between(1, 15), &agent(index),
                    [=, this] { answered(index, number, answer); });
  });
  timeline_.at(limit, &self, [=, this] {
    answered(index, number, {.status = {Code::deadline_exceeded, "no answer"}, .entries = {}});
  });
}

// It is lost, or its answer is, or it is done late.
void Agents::ask_in_vain(int index, const Keys::Request& request, uint64_t number, Ms limit) {
  const int all = script_.percent_lost + script_.percent_late;
  if (all != 0 && timeline_.random.below(all) >= script_.percent_lost / 2) {
    const bool late = timeline_.random.below(all) >= script_.percent_lost;
    timeline_.after(late ? timeline_.random.between(1'000, 8'000) : 10, nullptr, [=, this] {
      if (!silent_ && timeline_.now() < script_.heals) (void)answer(request);
    });
  }
  timeline_.at(limit, &agent(index), [=, this] {
    answered(index, number, {.status = unavailable("the store does not answer"), .entries = {}});
  });
}

void Agents::answered(int index, uint64_t number, const Keys::Answer& answer) {
  Agent& self = agent(index);
  if (self.request != number) return;
  ++self.request;
  handle(index, self.election->answered(answer, timeline_.time()));
}

Keys::Answer Agents::answer(const Keys::Request& request) {
  const Keys::Answer answer = keys_.apply(request, timeline_.time());
  if (std::holds_alternative<Keys::Transaction>(request) && answer.status.ok()) check_store();
  if (keys_.value_of(std::string(kPrefix) + "/coordinator") != coordinator_key_) {
    wake_all();
    check_leaders();
  }
  return answer;
}

// Those that watch look for themselves.
void Agents::wake_all() {
  coordinator_key_ = keys_.value_of(std::string(kPrefix) + "/coordinator");
  for (int index = 0; index < static_cast<int>(agents_.size()); ++index)
    if (agent(index).alive && timeline_.random.chance(80))
      timeline_.after(timeline_.random.between(1, 50), &agent(index), [this, index] {
        if (agent(index).in_round || agent(index).election) begin_round(index);
      });
}

void Agents::expire_leases() {
  if (!silent_ && keys_.expire(timeline_.time())) wake_all();
  timeline_.after(200, nullptr, [this] { expire_leases(); });
}

// ---- Coordinators, as daemon/control/coordinator.cc has them ----

void Agents::hear(int index, const Election::Event& event) {
  Agent& self = agent(index);
  if (std::holds_alternative<Election::Lead>(event)) return lead(index);
  if (const auto* other = std::get_if<Election::Follow>(&event)) {
    for (int host = 0; host < static_cast<int>(agents_.size()); ++host)
      if (address(host) == other->address) return follow(index, host);
  }
  if (std::holds_alternative<Election::StandBy>(event)) return follow(index, -1);
  if (const auto* saved = std::get_if<Election::Saved>(&event))
    if (self.membership) apply(index, self.membership->saved(saved->state));
}

void Agents::lead(int index) {
  Agent& self = agent(index);
  self.term = self.newest.term;
  lead_with(index, tampering_.forgets_states ? std::vector<v1::JobState>() : self.newest.states);
}

void Agents::lead_with(int index, const std::vector<v1::JobState>& states) {
  Agent& self = agent(index);
  ++terms_;
  timeline_.say(name(index), "coordinates");
  self.coordinator = index;
  self.membership =
      std::make_unique<Membership>([](const v1::Pass&) { return Status(); }, Millis(script_.grace));
  for (const v1::JobState& state : states)
    if (!self.membership->restore(state, timeline_.time()).ok())
      timeline_.wrong("a state makes no sense: " + state.ShortDebugString());
  on_coordinator_(index, index);
  arm(index);
}

void Agents::follow(int index, int coordinator) {
  Agent& self = agent(index);
  if (self.membership) timeline_.say(name(index), "does not coordinate any more");
  self.membership.reset();
  self.coordinator = coordinator;
  for (const WorkerStream id : std::exchange(self.streams, {})) network_.close_at_agent(id);
  on_coordinator_(index, coordinator);
}

bool Agents::accept(int index, WorkerStream id) {
  if (!leads(index)) return false;
  agent(index).streams.insert(id);
  return true;
}

void Agents::receive(int index, WorkerStream id, const v1::WorkerMessage& message) {
  Agent& self = agent(index);
  if (!self.membership || !self.streams.contains(id)) return;
  if (message.has_join())
    apply(index, self.membership->join(id, message.join(), "secret " + std::to_string(++secrets_),
                                       timeline_.time()));
  if (message.has_gone()) apply(index, self.membership->rank_gone(id, message.gone()));
  if (message.has_resume()) apply(index, self.membership->resume(id, message.resume()));
}

void Agents::detach(int index, WorkerStream id) {
  Agent& self = agent(index);
  if (self.streams.erase(id) == 0 || !self.membership) return;
  apply(index, self.membership->worker_gone(id, timeline_.time()));
}

void Agents::apply(int index, const Effects& effects) {
  Agent& self = agent(index);
  std::vector<v1::JobState> states;
  for (const auto& [key, state] : effects.save) states.push_back(state);
  const bool are_saved = !states.empty() && save(index, states);
  for (const Effects::Message& message : effects.send) {
    if (!self.streams.contains(message.to)) continue;
    if (message.body.has_roster()) on_roster_(index, message.body.roster());
    network_.to_worker(message.to, message.body);
  }
  if (are_saved || tampering_.starts_before_saved)
    for (const v1::JobState& state : states) apply(index, self.membership->saved(state));
  arm(index);
}

bool Agents::save(int index, const std::vector<v1::JobState>& states) {
  Agent& self = agent(index);
  if (!script_.elects) return file_.save(states);
  self.election->save(self.term, states);
  timeline_.after(1, &self, [this, index] { begin_round(index); });
  return false;
}

void Agents::arm(int index) {
  Agent& self = agent(index);
  const TimePoint deadline = self.membership->next_deadline();
  if (deadline == TimePoint::max()) return;
  const Ms when = std::max(Timeline::ms(deadline), timeline_.now() + 1);
  if (self.expires > timeline_.now() && self.expires <= when) return;
  self.expires = when;
  timeline_.at(when, &self, [this, index, when] {
    if (agent(index).expires == when) expire(index);
  });
}

void Agents::expire(int index) {
  Agent& self = agent(index);
  self.expires = 0;
  if (self.membership) apply(index, self.membership->expire(timeline_.time(), ""));
}

// The agent that made the key does not know it yet; nobody else who runs may take itself for the
// coordinator.
void Agents::check_leaders() {
  if (coordinator_key_.empty()) return;
  for (int index = 0; index < static_cast<int>(agents_.size()); ++index) {
    const Agent& other = agent(index);
    const bool runs = other.alive && other.suspended_until < timeline_.now();
    if (runs && other.election && other.election->leads())
      timeline_.wrong(name(index) + " still coordinates, and another was elected");
  }
}

void Agents::check_store() {
  for (const auto& [key, entry] : keys_.entries()) {
    if (key.find("/jobs/") == std::string::npos) continue;
    v1::JobState state;
    if (!state.ParseFromString(entry.value)) return timeline_.wrong("the store has no state");
    if (state.epoch() < highest_kept_)
      timeline_.wrong("the store goes back from epoch " + std::to_string(highest_kept_) + " to " +
                      std::to_string(state.epoch()));
    highest_kept_ = state.epoch();
  }
}

}  // namespace tutti::simulated
