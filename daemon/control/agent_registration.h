// Keeps an agent in the coordinator's list, over a stream that reconnects by itself.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/control/reachability.h"
#include "daemon/control/reconnecting_stream.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

// Made and destroyed on the loop's thread, or while it does not run.
class AgentRegistration {
 public:
  // `on_change` is called on the loop's thread, with OK when the agent is in the list, else with
  // why it is not, after each attempt. It must not destroy this.
  AgentRegistration(Loop& loop, const std::string& coordinator, v1::AgentMessage self,
                    const std::string& token, const Tls& tls,
                    std::function<void(const Status&)> on_change);

  // Tells the coordinator that this agent stops: it is not lost. Blocks for at most a moment.
  // Nothing is used but the destructor afterwards.
  void finish();
  // Any thread.
  const Reachability& reachability() const { return reachability_; }

 private:
  void on_open();
  void on_broken(const Status& why);

  const v1::AgentMessage self_;
  const std::string coordinator_;
  const Tls tls_;
  const std::function<void(const Status&)> on_change_;
  Reachability reachability_;
  std::unique_ptr<v1::Mesh::Stub> stub_;  // Of the newest stream; its channel keeps certificates.
  ReconnectingStream<v1::AgentMessage, v1::AgentAnswer> stream_;  // Last: it uses the others.
};

}  // namespace tutti
