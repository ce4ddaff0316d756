// A worker's side of the control plane: its connection to the job's coordinator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/base/status.h"
#include "daemon/control/tls_files.h"
#include "proto/session.pb.h"

namespace tutti {

struct JoinRequest {
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t pid = 0;
  uint32_t timeout_ms = 0;
  v1::Pass pass;
};

// A worker's connection to the job's coordinator. It reconnects by itself (every second) and then
// reports the state of its newest epoch, so that a coordinator may be restarted under running jobs.
// While the coordinator is unreachable, joins are kept, and sent once it is, also those that were
// pending there. Every join is answered, at the latest a moment after its timeout:
// with UNAVAILABLE if the coordinator was not reached, DEADLINE_EXCEEDED if it did not answer.
// Epoch numbers only increase. Loop thread only. No event is called after the destructor, which
// must not run inside an event.
class CoordinatorClient {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_roster(const Roster& roster) = 0;
    virtual void on_refused(uint32_t rank, Status why) = 0;  // A join() failed.
    virtual void on_aborted(uint32_t epoch, Status cause) = 0;
    virtual void on_strategy(const std::string& strategy) = 0;
  };
  virtual ~CoordinatorClient() = default;
  virtual void join(const JoinRequest& request) = 0;
  // Reports that a rank of this worker is gone; with `cause` OK it left on purpose. With epoch 0 it
  // was still joining: its join is withdrawn and `cause` is ignored.
  virtual void report_gone(uint32_t epoch, uint32_t rank, Status cause) = 0;
  // Another agent coordinates, and learns what this worker has. An empty address changes nothing
  // but what joins that wait are given at their deadline: the obstacle.
  virtual void set_coordinator(const std::string& address, const std::string& obstacle) = 0;
};

struct CoordinatorClientOptions {
  std::string coordinator;  // host:port; empty: set_coordinator() follows.
  std::string job;
  std::string host;          // This host's name.
  std::string data_address;  // Peers dial this worker's data links here.
  Tls tls = nullptr;
};
std::unique_ptr<CoordinatorClient> connect_coordinator(Loop& loop,
                                                       const CoordinatorClientOptions& options,
                                                       CoordinatorClient::Events& events);

}  // namespace tutti
