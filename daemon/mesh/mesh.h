// The control plane between nodes: joining jobs, rosters, aborts, and the Admin service that people
// and tools call. With daemon/transport/ the only room that uses gRPC.
//
// The coordinator's rules are a pure state machine (membership.h). Who may call what is one table
// (rules.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/credentials.h"
#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

// ---- Both sides ----

// Returns INVALID_ARGUMENT unless the job's name has 1 to 128 bytes and no control characters, the
// world size is from 1 to 65535, and the rank is below it.
Status check_job(const std::string& job, uint32_t rank, uint32_t world_size);

// Signs all other fields with `key`: HMAC-SHA256 (RFC 2104).
void sign_pass(v1::Pass& pass, const std::string& key);
// As the agent that has these credentials. For certified hosts with a pair of keys (Ed25519, RFC
// 8032), so that anyone who checks its passes cannot sign any.
void sign_pass(v1::Pass& pass, const Credentials& credentials);
// The public one of the pair that is made from an agent's own key.
std::string public_pass_key(const std::string& own_key);
// UNAUTHENTICATED: it was not signed with any of `keys`.
Status check_pass(const v1::Pass& pass, const std::vector<std::string>& keys);
// The same for the public keys of pairs.
Status check_certified_pass(const v1::Pass& pass, const std::vector<std::string>& public_keys);
// The same for what these credentials accept, of certified hosts this agent's own signature alone.
Status check_signature(const v1::Pass& pass, const Credentials& credentials);
// The same; who trusts the network asks for no signature.
Status check_pass(const v1::Pass& pass, const Credentials& credentials);

// Who calls, as far as it is proven.
struct Caller {
  enum class Kind { anybody, user, agent, admin };
  Kind kind = Kind::anybody;
  uint32_t uid = 0;     // Of a user, or of an admin on this host.
  std::string subject;  // Of a user.
  std::string name;     // For the log: "user 1000", "10.0.0.7 with an agent's token".
};

// The certificates of one side of the control plane, read again when they change. Null: no TLS.
class CertificateStore;
using Tls = std::shared_ptr<CertificateStore>;
// An agent's: tls.crt, tls.key and ca.crt in `directory`. NOT_FOUND, FAILED_PRECONDITION: one of
// them is missing or not valid, see certificate_store.h.
Result<Tls> open_agent_tls(const std::string& directory);
// A worker's or a tool's: ca.crt, and the others if they are there and may be read.
Result<Tls> open_client_tls(const std::string& directory);

// What an agent's certificate says, for people.
struct CertificateSummary {
  std::string names;    // "DNS b, IP 10.0.0.1, CN b".
  bool fits = false;    // Whether an agent that shows it may call itself by the name asked for.
  int64_t renewal = 0;  // Seconds since 1970: by when it should be renewed,
  int64_t expires = 0;  // and when it expires.
};
// Reads and checks as open_agent_tls() does, with its errors.
Result<CertificateSummary> look_at_certificates(const std::string& directory,
                                                const std::string& host);

// ---- The worker's side ----

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

// ---- The agent's side ----

// The agent as the control plane calls it. Must be thread-safe: it is called on gRPC's threads. May
// block briefly.
class AgentControl {
 public:
  virtual ~AgentControl() = default;
  virtual v1::AgentReport report() = 0;
  // What this host's recorders hold of the request's job and, if it is set, owner.
  virtual v1::TraceReply trace(const v1::TraceRequest& request) = 0;
  virtual Status drain(bool undo) = 0;
  virtual Status stop(bool jobs) = 0;  // `jobs`: and its jobs.
};

// Checks the settings of these names before anything listens. INVALID_ARGUMENT: one is no address,
// or not one at which this machine is reached by a host elsewhere, where the coordinator or a
// member of etcd is one; or the coordinator is a name of this machine and of others. UNAVAILABLE:
// this machine has not that address, or a name has none (yet).
Status check_addresses(const std::string& listen, const std::string& data_address,
                       const std::string& coordinator, const std::string& etcd);

// Whether a server that listens on `host` is reached by every address of this machine.
bool is_wildcard(const std::string& host);

struct EtcdSettings {
  std::string members;  // host:port, separated by commas; empty: no etcd.
  std::string prefix;   // Of this mesh's keys.
  Millis ttl{10'000};   // Of an agent's lease.
  std::string user;     // Empty: none.
  std::string password_file;
  std::string tls_dir;  // Empty: no TLS.
};

struct ControlOptions {
  std::string listen;       // host:port; port 0: any.
  std::string coordinator;  // Empty: this agent coordinates.
  std::string host;
  Credentials credentials;
  Tls tls = nullptr;             // With it, callers and the coordinator must speak TLS as well.
  std::string tls_admin;         // The name in the certificates of administrators.
  std::string tls_published;     // A directory: what is public of the certificates is kept there.
  int hello_timeout_ms = 5'000;  // For a connection to say what it wants.
  Millis coordinator_grace{0};   // For workers whose streams broke to come back to the coordinator.
  std::string state_file;        // In which a coordinator remembers epochs; empty: nowhere.
  // With etcd the agents elect the coordinator, and its states are kept there.
  EtcdSettings etcd;
  // Then: who was elected, or that there is nobody (an empty address) and why. On a thread of the
  // control plane.
  std::function<void(const std::string& address, const std::string& obstacle)> on_coordinator;
};

// Serves Mesh, Admin, health and reflection, and registers this agent at the coordinator. The
// destructor stops all of it. FAILED_PRECONDITION: the coordinator is another host, and neither a
// token for agents nor trust_network says why it and this agent should believe each other; or
// trust_network is set in spite of TLS.
class ControlServer {
 public:
  virtual ~ControlServer() = default;
  virtual std::string address() const = 0;  // host:port, as others dial it.
  // address() if this agent coordinates now; any thread.
  virtual std::string coordinator() const = 0;
  // OK: this agent is registered at the coordinator, or is it. Otherwise why it is not. Any thread.
  virtual Status registered() const = 0;
  // What health checks say: NOT_SERVING while this is false, or while the agent is not registered.
  virtual void set_serving(bool serving) = 0;
  // Answers a request that came over the agent's Unix socket. Any thread; blocks for seconds where
  // other agents must be asked.
  virtual v1::AdminAnswer admin(const v1::AdminRequest& request, const Caller& caller) = 0;
};
Result<std::unique_ptr<ControlServer>> serve_control(const ControlOptions& options,
                                                     AgentControl& agent);

// ---- Callers of the Admin service ----

// All calls block, and return UNAVAILABLE if no agent answers at `address`. Status (unless
// `local_only`), traces and strategies concern the whole mesh, whichever agent is asked; drain and
// stop concern that agent. `address` is an agent's Unix socket, "unix:PATH", where the caller's
// user decides what is allowed, or its control plane, host:port, where token_of_environment() does,
// or the certificate in TUTTI_TLS_DIR if TUTTI_TLS is "require". UNAUTHENTICATED,
// PERMISSION_DENIED: it is not allowed; the message says to whom it is.

// Returns TUTTI_ADDRESS if set, otherwise the Unix socket in TUTTI_SOCKET or the default of
// `socket`.
std::string default_address();
Result<v1::StatusReply> admin_status(const std::string& address, bool local_only, int timeout_ms);
// `job`: "" for all jobs. `last`: operations of each rank; 0: all that are kept.
Result<v1::TraceReply> admin_trace(const std::string& address, const std::string& job,
                                   uint32_t last, int timeout_ms);
Status admin_set_strategy(const std::string& address, const std::string& job,
                          const std::string& strategy, int timeout_ms);
Status admin_drain(const std::string& address, bool undo, int timeout_ms);
Status admin_stop(const std::string& address, bool jobs, int timeout_ms);

// One JSON object on one line:
// {"agents":[{"host":...,"workers":[{"job":...,"ranks":[...],"paths":[...],"gone":[...]}],
// "gpus":[...],"users":[...]}]}.
std::string status_json(const v1::StatusReply& reply);

}  // namespace tutti
