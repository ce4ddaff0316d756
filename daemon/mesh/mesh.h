// Worker and agent to the other nodes: joining, rosters, aborts, and the control plane people and
// tools talk to. The only room, with daemon/transport/, that knows gRPC.
//
// The coordinator's rules are a pure class (roster_book.h): events and the time in, answers out.
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

// INVALID_ARGUMENT unless these can name a rank of a job: a printable name of 1 to 128 bytes, a
// world of 1 to 65535 ranks, a rank inside it.
Status check_job(const std::string& job, uint32_t rank, uint32_t world_size);
// Takes as long for a near miss as for a far one.
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

// A worker's stream to the job's coordinator. It reconnects by itself (every second) and then tells
// what became of its newest epoch, so that a coordinator may be restarted under running jobs; joins
// that were waiting there fail UNAVAILABLE. A join asked while nobody answers is kept until
// somebody does. A join is answered at the latest a moment after its time is up: UNAVAILABLE where
// the coordinator was not reached, DEADLINE_EXCEEDED where it did not answer. Epochs' numbers only
// rise. Nothing is called after the destructor; do not destroy it inside an event.
class CoordinatorClient {
 public:
  class Events {  // On the loop's thread.
   public:
    virtual ~Events() = default;
    virtual void on_roster(const Roster& roster) = 0;
    virtual void on_refused(uint32_t rank, Status why) = 0;  // A join() came to nothing.
    virtual void on_aborted(uint32_t epoch, Status cause) = 0;
    virtual void on_strategy(const std::string& strategy) = 0;
  };
  virtual ~CoordinatorClient() = default;
  virtual void join(const JoinRequest& request) = 0;
  // A rank of this worker is gone; `cause` OK: it left on purpose. Epoch 0: it was still joining,
  // and its join is withdrawn; `cause` is not looked at.
  virtual void gone(uint32_t epoch, uint32_t rank, Status cause) = 0;
};

struct CoordinatorClientOptions {
  std::string coordinator;   // host:port
  std::string job;           //
  std::string host;          // This host's name.
  std::string data_address;  // Where this worker's data links are dialled.
};
std::unique_ptr<CoordinatorClient> connect_coordinator(Loop& loop,
                                                       const CoordinatorClientOptions& options,
                                                       CoordinatorClient::Events& events);

// ---- The agent's side ----

// What the control plane asks of the agent. Called on gRPC's threads; must be thread-safe, may
// block briefly.
class AgentControl {
 public:
  virtual ~AgentControl() = default;
  virtual v1::AgentReport report() = 0;
  virtual Status drain(bool undo) = 0;
  virtual Status stop(bool jobs) = 0;
};

struct ControlOptions {
  std::string listen;       // host:port; port 0: any.
  std::string coordinator;  // Empty: this agent coordinates.
  std::string host;
  std::string token;  // If set, joins must show it.
};

// Serves Mesh, Admin, health and reflection, and enlists at the coordinator. The destructor stops
// all of it.
class ControlServer {
 public:
  virtual ~ControlServer() = default;
  virtual std::string address() const = 0;      // host:port, as others dial it.
  virtual std::string coordinator() const = 0;  // The one in use; address() where this agent is it.
};
Result<std::unique_ptr<ControlServer>> serve_control(const ControlOptions& options,
                                                     AgentControl& agent);

// ---- People's and tools' side: blocking calls to any agent. UNAVAILABLE says how to start one.
// ----
// TUTTI_ADDRESS, else the default of `listen`.
std::string default_address();
Result<v1::StatusReply> admin_status(const std::string& address, bool local_only, int timeout_ms);
Status admin_set_strategy(const std::string& address, const std::string& job,
                          const std::string& strategy, int timeout_ms);
Status admin_drain(const std::string& address, bool undo, int timeout_ms);
Status admin_stop(const std::string& address, bool jobs, int timeout_ms);

}  // namespace tutti
