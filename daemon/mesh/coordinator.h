// The roster book at work: many streams on gRPC's threads, one book. Also knows the enlisted
// agents. Every call is thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/mesh/roster_book.h"

namespace tutti {

class Coordinator {
 public:
  // Must not block and must not call back.
  using Send = std::function<void(const v1::CoordinatorMessage&)>;

  // `rearm` is called whenever next_deadline() may have come nearer.
  Coordinator(std::string token, std::function<void()> rearm)
      : rearm_(std::move(rearm)), book_(std::move(token)) {}

  RosterBook::Worker attach(Send send);
  void receive(RosterBook::Worker worker, const v1::WorkerMessage& message);
  // No Send of this worker is called afterwards.
  void detach(RosterBook::Worker worker);

  void expire();
  TimePoint next_deadline() const;
  // The coordinator ends: whoever is detached from now on is not taken for dead.
  void mute();

  // INVALID_ARGUMENT for a text that is no strategy, NOT_FOUND for a job nobody is in.
  Status set_strategy(const std::string& job, const std::string& text);

  void enlist(uint64_t agent, const v1::AgentMessage& message);
  void delist(uint64_t agent);
  uint64_t next_agent();
  std::vector<v1::AgentMessage> agents() const;  // By host.

 private:
  void deliver(const RosterBook::Answers& answers);  // Under mutex_.

  const std::function<void()> rearm_;
  mutable std::mutex mutex_;  // Guards all below.
  RosterBook book_;
  std::map<RosterBook::Worker, Send> workers_;
  std::map<uint64_t, v1::AgentMessage> agents_;
  uint64_t last_id_ = 0;
  bool muted_ = false;
};

}  // namespace tutti
