// The coordinator of all jobs: applies what arrives on many gRPC streams to one Membership and
// sends its messages; also lists the registered agents. Every agent has one; it coordinates while
// it leads. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/credentials.h"
#include "daemon/control/coordinator_memory.h"
#include "daemon/control/passes.h"
#include "daemon/control/refusals.h"
#include "daemon/membership/membership.h"
#include "daemon/membership/state_store.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Coordinator {
 public:
  // What is done with a worker's stream. Neither may block or call the Coordinator.
  struct Stream {
    std::function<void(const v1::CoordinatorMessage&)> send;
    std::function<void()> close;  // detach() follows.
  };
  struct Options {
    std::string host;  // This agent's, whose own keys sign the passes of its host.
    Millis grace{0};   // For workers whose streams broke to come back.
  };

  // `on_deadline_changed` is called when next_deadline() may have become earlier.
  Coordinator(const Credentials& credentials, Options options,
              std::function<void()> on_deadline_changed)
      : on_deadline_changed_(std::move(on_deadline_changed)),
        options_(std::move(options)),
        credentials_(credentials),
        own_pass_key_(credentials.certified_hosts ? public_pass_key(credentials.own_key) : ""),
        membership_(new_membership()) {}

  // Coordinates from now on, at `own_address`, and goes on with what the store has saved. It saves
  // its own states there, until follow().
  void lead(const std::string& own_address, StateStore& store);
  // Another agent coordinates; or, with an empty address, none does, as `why` says. Not on one of
  // gRPC's threads: streams are closed.
  void follow(const std::string& address, const std::string& why = {});
  // The store has saved a state later, of which save() returned false.
  void saved(const v1::JobState& state);
  // What an agent or a worker was refused with, before it could say anything: counts it, logs it
  // once a minute for each caller, and remembers for which job it was. `caller` has no port.
  void agent_refused(const std::string& caller, const Status& why);
  void worker_refused(const std::string& caller, const v1::Pass& pass, const Status& why);
  // Adds what it has refused to the report of this agent.
  void report_refusals(v1::AgentReport& report) const;
  // What a worker shows before it says anything: see check_pass_locked().
  Status check(const v1::Pass& pass) const;
  bool leads() const;
  std::string leader() const;           // Where who coordinates is reached; "": not known.
  std::string describe_leader() const;  // "the coordinator is 10.0.0.7:7601", or why there is none.

  // 0: it does not lead (any more), and the stream must be refused.
  Membership::Worker attach(Stream stream);
  void receive(Membership::Worker worker, const v1::WorkerMessage& message);
  // The worker's stream is not used afterwards.
  void detach(Membership::Worker worker);

  void expire();
  TimePoint next_deadline() const;
  // From now on no worker is sent anything, and nothing is saved: those detached at shutdown are
  // not dead.
  void stop_sending();

  // INVALID_ARGUMENT: not a strategy. NOT_FOUND: no rank is in the job, or it is not `owner`'s,
  // unless that is null.
  Status set_strategy(const std::string& job, const std::string& text, const v1::Owner* owner);

  // The same, for the stream of an agent: 0 means that it must be refused. What `close` may do is
  // said above; detach_agent() follows.
  uint64_t attach_agent(std::function<void()> close);
  void enlist(uint64_t agent, const v1::AgentMessage& message);
  // `stopped`: it said goodbye; else it is lost, unless it is enlisted over another stream.
  void detach_agent(uint64_t agent, bool stopped);
  std::vector<v1::AgentMessage> agents() const;  // Those that are enlisted, by host.
  // Those that are gone, for a while, with what is known of their running workers.
  std::vector<v1::AgentReport> gone_agents() const;

 private:
  struct Agent {
    std::function<void()> close;
    std::optional<v1::AgentMessage> message;  // None: it has not said yet who it is.
  };

  Membership new_membership();
  // For certified hosts a pass counts while an agent of its host is registered, whose certificate
  // names the host, and if that one signed it. UNAVAILABLE: there is no such agent now.
  Status check_pass_locked(const v1::Pass& pass) const;
  // The public keys of those that sign for the host now.
  std::vector<std::string> keys_of_locked(const std::string& host) const;
  void forget_key_locked(uint64_t agent);
  bool is_enlisted_locked(const std::string& host) const;
  void remember_locked(const v1::JoinRank& join, const Effects& effects);
  void resume_locked(Membership::Worker worker, const v1::Resume& resume);
  // Keeps the states before anything is sent.
  void apply_locked(const Effects& effects);
  void send_locked(const std::vector<Effects::Message>& messages);

  const std::function<void()> on_deadline_changed_;
  const Options options_;
  const Credentials credentials_;
  const std::string own_pass_key_;
  Refusals refusals_;
  mutable std::mutex mutex_;  // Guards all below.
  Membership membership_;
  std::map<Membership::Worker, Stream> workers_;
  std::map<uint64_t, Agent> agents_;
  std::map<std::pair<std::string, uint64_t>, std::string> keys_;  // By host and agent.
  CoordinatorMemory memory_;
  uint64_t last_id_ = 0;
  StateStore* store_ = nullptr;  // Null: it does not lead.
  std::string leader_;
  std::string why_none_;
  bool has_stopped_sending_ = false;
};

}  // namespace tutti
