// The worker's side of its socket to the agent. An agent may be restarted; the newest connection is
// used.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/session/session.h"
#include "proto/session.pb.h"

namespace tutti {

class AgentChannel {
 public:
  // The flight recorder of an epoch; the descriptor is borrowed.
  struct Recorder {
    uint32_t epoch = 0;
    int descriptor = -1;
  };
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_hand_over(const v1::AgentToWorker::HandOver& handed, Fd socket) = 0;
    virtual v1::WorkerReport on_report() = 0;
    // What an agent should have, by epoch, ascending. Each is sent once to each agent.
    virtual std::vector<Recorder> recorders() const = 0;
    virtual void on_stop(const std::string& by) = 0;  // Empty: it is not said who asked for it.
    virtual void on_failed_gpus(const v1::AgentToWorker::FailedGpus& failed) = 0;
    virtual void on_coordinator(const v1::AgentToWorker::Coordinator& coordinator) = 0;
  };

  AgentChannel(Loop& loop, Fd listener, Events& events);
  ~AgentChannel();
  Status start();
  // Sends the agent, where there is one, a report that it did not ask for.
  void send_report();
  // Handles what the agent has already sent, then accepts nothing more. An agent that sends later
  // gets an error at once, so that it starts another worker.
  void close();

 private:
  void accept_agent();
  void read_packets();
  void handle(Packet packet);
  void drop_agent();

  Loop& loop_;
  Fd listener_;
  Fd agent_;
  Events& events_;
  std::set<uint32_t> sent_;  // Epochs whose recorders this agent has.
};

}  // namespace tutti
