// The coordinator of all jobs: applies what arrives on many gRPC streams to one Membership and
// sends its messages; also lists the registered agents. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/mesh/membership.h"

namespace tutti {

class Coordinator {
 public:
  // Must not block and must not call the Coordinator.
  using Send = std::function<void(const v1::CoordinatorMessage&)>;

  // `on_deadline_changed` is called when next_deadline() may have become earlier.
  Coordinator(const Credentials& credentials, std::function<void()> on_deadline_changed)
      : on_deadline_changed_(std::move(on_deadline_changed)), membership_(credentials) {}

  Membership::Worker attach(Send send);
  void receive(Membership::Worker worker, const v1::WorkerMessage& message);
  // The worker's `send` is not called afterwards.
  void detach(Membership::Worker worker);

  void expire();
  TimePoint next_deadline() const;
  // Stops sending, so that workers detached at shutdown are not reported as dead.
  void mute();

  // INVALID_ARGUMENT: not a strategy. NOT_FOUND: no rank is in the job, or it is not `owner`'s,
  // unless that is null.
  Status set_strategy(const std::string& job, const std::string& text, const v1::Owner* owner);

  void enlist(uint64_t agent, const v1::AgentMessage& message);
  void delist(uint64_t agent);
  uint64_t next_agent();
  std::vector<v1::AgentMessage> agents() const;  // By host.

 private:
  void deliver_locked(const Membership::Messages& messages);

  const std::function<void()> on_deadline_changed_;
  mutable std::mutex mutex_;  // Guards all below.
  Membership membership_;
  std::map<Membership::Worker, Send> workers_;
  std::map<uint64_t, v1::AgentMessage> agents_;
  uint64_t last_id_ = 0;
  bool muted_ = false;
};

}  // namespace tutti
