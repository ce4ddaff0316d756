// The control plane between nodes: joining jobs, rosters, aborts, and the Admin service that people
// and tools call. With daemon/transport/ the only room that uses gRPC.
//
// The coordinator's rules are a pure state machine (membership.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

// ---- Both sides ----

// Returns INVALID_ARGUMENT unless the job's name has 1 to 128 bytes and no control characters, the
// world size is from 1 to 65535, and the rank is below it.
Status check_job(const std::string& job, uint32_t rank, uint32_t world_size);
// Compares in constant time.
bool same_token(const std::string& expected, const std::string& shown);

// ---- The worker's side ----

struct JoinRequest {
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t pid = 0;
  uint32_t timeout_ms = 0;
  std::string token;
};

// A worker's connection to the job's coordinator. It reconnects by itself (every second) and then
// reports the state of its newest epoch, so that a coordinator may be restarted under running jobs;
// joins that were pending there fail with UNAVAILABLE. While the coordinator is unreachable, joins
// are kept and sent once it is. Every join is answered, at the latest a moment after its timeout:
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
};

struct CoordinatorClientOptions {
  std::string coordinator;  // host:port
  std::string job;
  std::string host;          // This host's name.
  std::string data_address;  // Peers dial this worker's data links here.
};
std::unique_ptr<CoordinatorClient> connect_coordinator(Loop& loop,
                                                       const CoordinatorClientOptions& options,
                                                       CoordinatorClient::Events& events);

// ---- The agent's side ----

// The agent as the control plane calls it. Must be thread-safe: it is called on gRPC's threads. May
// block briefly.
class AgentControl {
 public:
  virtual ~AgentControl() = default;
  virtual v1::AgentReport report() = 0;
  virtual Status drain(bool undo) = 0;
  virtual Status stop(bool jobs) = 0;  // `jobs`: and its jobs.
};

struct ControlOptions {
  std::string listen;       // host:port; port 0: any.
  std::string coordinator;  // Empty: this agent coordinates.
  std::string host;
  std::string token;  // If not empty, joins, agents and calls of Admin must show it.
};

// Serves Mesh, Admin, health and reflection, and registers this agent at the coordinator. The
// destructor stops all of it.
class ControlServer {
 public:
  virtual ~ControlServer() = default;
  virtual std::string address() const = 0;      // host:port, as others dial it.
  virtual std::string coordinator() const = 0;  // address() if this agent coordinates.
};
Result<std::unique_ptr<ControlServer>> serve_control(const ControlOptions& options,
                                                     AgentControl& agent);

// ---- Callers of the Admin service ----

// All calls block, and return UNAVAILABLE if no agent answers at `address`. Status (unless
// `local_only`) and strategies concern the whole mesh, whichever agent is asked; drain and stop
// concern that agent. They show token_of_environment(); UNAUTHENTICATED: it is not the agent's.

// Returns TUTTI_ADDRESS if set, otherwise the default of `listen`.
std::string default_address();
Result<v1::StatusReply> admin_status(const std::string& address, bool local_only, int timeout_ms);
Status admin_set_strategy(const std::string& address, const std::string& job,
                          const std::string& strategy, int timeout_ms);
Status admin_drain(const std::string& address, bool undo, int timeout_ms);
Status admin_stop(const std::string& address, bool jobs, int timeout_ms);

}  // namespace tutti
