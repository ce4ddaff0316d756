// The worker's end of its socket with the agent. Agents come and go; the newest connection counts.
#pragma once

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/session/session.h"
#include "proto/session.pb.h"

namespace tutti {

class AgentChannel {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_adopt(const v1::AgentToWorker::Adopt& adopt, Fd socket) = 0;
    virtual v1::WorkerReport on_report() = 0;
    virtual void on_stop() = 0;
  };

  AgentChannel(Loop& loop, Fd listener, Events& events);
  ~AgentChannel();
  Status start();
  // No agent can send any more; what it had sent is answered first. After this the worker may end,
  // and an agent that tries to use it learns at once that it must start another.
  void close_for_good();

 private:
  void accept_agent();
  void read_packets();
  void handle(Packet packet);
  void drop_agent();

  Loop& loop_;
  Fd listener_;
  Fd agent_;
  Events& events_;
};

}  // namespace tutti
