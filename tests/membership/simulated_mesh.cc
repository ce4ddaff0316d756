#include "tests/membership/simulated_mesh.h"

namespace tutti::simulated {
namespace {

constexpr Ms kStep = 1'000;
constexpr Ms kStays = 5'000;  // What has come together must stay so.

}  // namespace

Mesh::Mesh(const Script& script, uint64_t seed, const Tampering& tampering, bool traces)
    : script_(script),
      timeline_(seed ^ 0x5eed, traces),
      network_(timeline_, tampering),
      workers_(timeline_, network_, script),
      agents_(
          timeline_, network_, script, tampering,
          [this](int host, int coordinator) { workers_.set_coordinator(host, coordinator); },
          [this](int agent, const v1::Roster& roster) { check_roster(agent, roster); }) {
  network_.set_ends(ends());
}

Network::Ends Mesh::ends() {
  Network::Ends ends;
  ends.accept = [this](int agent, WorkerStream id) { return agents_.accept(agent, id); };
  ends.at_agent = [this](int agent, WorkerStream id, const v1::WorkerMessage& message) {
    agents_.receive(agent, id, message);
  };
  ends.detached = [this](int agent, WorkerStream id) { agents_.detach(agent, id); };
  ends.opened = [this](int worker) { workers_.on_open(worker); };
  ends.at_worker = [this](int worker, const v1::CoordinatorMessage& message) {
    workers_.on_message(worker, message);
  };
  ends.broken = [this](int worker) { workers_.on_broken(worker); };
  ends.agent = [this](int index) -> const Process& { return agents_.process(index); };
  ends.worker = [this](int index) -> const Process& { return workers_.process(index); };
  return ends;
}

std::string Mesh::run() {
  workers_.start_all();
  agents_.start_all();
  for (const Script::Fault& fault : script_.faults) schedule(fault);
  const Ms latest = script_.heals + kTimeToHeal + 2 * kLastTimeout;
  Ms together_since = 0;
  while (timeline_.broken_promise().empty() && timeline_.now() < latest) {
    timeline_.run(timeline_.now() < script_.heals ? script_.heals : timeline_.now() + kStep);
    const bool were_together = together_since != 0;
    if (!workers_.are_together()) together_since = 0;
    if (were_together && together_since == 0)
      timeline_.wrong("what was together is not any more: " + workers_.describe());
    if (workers_.are_together() && together_since == 0) together_since = timeline_.now();
    if (together_since != 0 && timeline_.now() >= together_since + kStays) break;
  }
  if (together_since == 0)
    timeline_.wrong("the ranks do not come together: " + workers_.describe());
  return timeline_.broken_promise();
}

void Mesh::schedule(const Script::Fault& fault) {
  timeline_.at(fault.at, nullptr, [this, &fault] { happen(fault); });
  timeline_.at(fault.at + fault.takes, nullptr, [this, &fault] { end(fault); });
}

void Mesh::happen(const Script::Fault& fault) {
  using Kind = Script::Kind;
  timeline_.say("fault " + std::to_string(static_cast<int>(fault.kind)),
                "host " + std::to_string(fault.host));
  switch (fault.kind) {
    case Kind::agent_suspended:
      return agents_.suspend(fault.host, fault.at + fault.takes);
    case Kind::agent_dead:
      return agents_.kill(fault.host, false);
    case Kind::agent_ended:
      return agents_.kill(fault.host, true);
    case Kind::worker_suspended:
      return workers_.suspend(fault.host, fault.at + fault.takes);
    case Kind::worker_dead:
      return workers_.kill(fault.host);
    case Kind::stream_cut:
      return workers_.cut_stream(fault.host);
    case Kind::store_silent:
      ++silences_;
      return agents_.silence_store(true);
  }
}

void Mesh::end(const Script::Fault& fault) {
  using Kind = Script::Kind;
  const bool agent_was_gone = fault.kind == Kind::agent_dead || fault.kind == Kind::agent_ended;
  if (agent_was_gone && !agents_.process(fault.host).alive) agents_.start(fault.host);
  if (fault.kind == Kind::worker_dead && !workers_.process(fault.host).alive) {
    workers_.start(fault.host);
    if (const int known = agents_.coordinator_of(fault.host); known >= 0)
      workers_.set_coordinator(fault.host, known);
  }
  if (fault.kind == Kind::store_silent && --silences_ == 0) agents_.silence_store(false);
}

void Mesh::check_roster(int agent, const v1::Roster& roster) {
  const auto [known, is_new] = sent_.try_emplace(roster.epoch(), roster.SerializeAsString());
  if (known->second != roster.SerializeAsString())
    timeline_.wrong("two rosters of epoch " + std::to_string(roster.epoch()) + " are sent");
  for (const WorkerStream id : agents_.streams_of(agent)) {
    const uint32_t other = workers_.epoch_of(network_.worker_of(id));
    const bool runs = other != 0 && !workers_.has_failed(other);
    if (network_.is_quiet(id) && runs && other != roster.epoch())
      timeline_.wrong("epoch " + std::to_string(roster.epoch()) + " starts while worker " +
                      std::to_string(network_.worker_of(id)) + " is in epoch " +
                      std::to_string(other));
  }
}

}  // namespace tutti::simulated
