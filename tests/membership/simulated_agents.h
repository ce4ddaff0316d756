// The agents of a mesh in simulated time: each with the real Election and Membership, over a store
// that loses requests and answers, or does late what it was asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/membership/election.h"
#include "daemon/membership/membership.h"
#include "tests/membership/memory_states.h"
#include "tests/membership/simulated_keys.h"
#include "tests/membership/simulated_network.h"
#include "tests/membership/simulated_script.h"

namespace tutti::simulated {

// Faults that a test injects to see that they are found.
struct Tampering : MessageTampering {
  std::function<void(Keys::Request&)> request;
  bool starts_before_saved = false;
  bool forgets_states = false;  // An agent that is elected begins with none.
};

class Agents {
 public:
  static constexpr Millis kTtl{4'000};

  // What the agent of a host says to the worker there.
  using OnCoordinator = std::function<void(int host, int coordinator)>;
  // Called before a roster is sent.
  using OnRoster = std::function<void(int agent, const v1::Roster&)>;

  Agents(Timeline& timeline, Network& network, const Script& script, const Tampering& tampering,
         OnCoordinator on_coordinator, OnRoster on_roster);
  void start_all();
  const Process& process(int index) const { return agents_[static_cast<size_t>(index)]; }
  // Who coordinates as the agent knows it; -1: nobody.
  int coordinator_of(int index) const { return agents_[static_cast<size_t>(index)].coordinator; }
  bool leads(int index) const { return agents_[static_cast<size_t>(index)].membership != nullptr; }
  bool attends(int index, WorkerStream id) const {
    return agents_[static_cast<size_t>(index)].streams.contains(id);
  }
  const std::set<WorkerStream>& streams_of(int index) const {
    return agents_[static_cast<size_t>(index)].streams;
  }
  int terms() const { return terms_; }

  void suspend(int index, Ms until);
  void kill(int index, bool in_order);
  void start(int index);
  void silence_store(bool silent);

  // The agents' ends of streams.
  bool accept(int index, WorkerStream id);
  void receive(int index, WorkerStream id, const v1::WorkerMessage& message);
  void detach(int index, WorkerStream id);

 private:
  struct Agent : Process {
    std::optional<Election> election;
    std::unique_ptr<Membership> membership;  // While it coordinates, as far as it knows.
    std::set<WorkerStream> streams;
    int coordinator = -1;
    Election::Lead newest{};  // How it was elected last.
    int64_t term = 0;
    Ms hears_until = 0;  // What its election says arrives in order.
    bool in_round = false;
    bool wakes = false;
    uint64_t round = 0;    // Numbers the rounds that are due.
    uint64_t request = 0;  // Numbers its requests.
    Ms expires = 0;        // When it looks at deadlines next; 0: it does not.
  };

  Agent& agent(int index) { return agents_[static_cast<size_t>(index)]; }
  static std::string name(int index) { return "agent " + std::to_string(index); }
  static std::string address(int index) { return "10.0.0." + std::to_string(index) + ":7601"; }

  void plan_round(int index, Ms when);
  void begin_round(int index);
  void handle(int index, const Election::Step& step);
  void ask(int index, Keys::Request request, TimePoint by);
  void ask_in_vain(int index, const Keys::Request& request, uint64_t number, Ms limit);
  Keys::Answer answer(const Keys::Request& request);
  void answered(int index, uint64_t number, const Keys::Answer& answer);
  void expire_leases();
  void wake_all();
  void hear(int index, const Election::Event& event);
  void lead(int index);
  void lead_with(int index, const std::vector<v1::JobState>& states);
  void follow(int index, int coordinator);
  void apply(int index, const Effects& effects);
  bool save(int index, const std::vector<v1::JobState>& states);
  void arm(int index);
  void expire(int index);
  void check_leaders();
  void check_store();

  Timeline& timeline_;
  Network& network_;
  const Script& script_;
  const Tampering& tampering_;
  const OnCoordinator on_coordinator_;
  const OnRoster on_roster_;
  KeyValues keys_{kTtl};
  MemoryStates file_;  // Of the coordinator where there is no store.
  bool silent_ = false;
  std::vector<Agent> agents_;
  std::string coordinator_key_;
  uint32_t highest_kept_ = 0;
  uint64_t secrets_ = 0;
  int terms_ = 0;
};

}  // namespace tutti::simulated
