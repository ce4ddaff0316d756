// The agent's side of the control plane between nodes: the server of joins, rosters, aborts, and of
// the Admin service that people and tools call. With daemon/transport/ the only room that uses
// gRPC.
//
// The coordinator's rules are a pure state machine, and who may call what is one table: see
// daemon/membership/. Other doors of this room: coordinator_client.h for workers, admin_client.h
// for tools, passes.h, tls_files.h, address.h, status_json.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/credentials.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/control/address.h"
#include "daemon/control/tls_files.h"
#include "daemon/membership/rules.h"
#include "proto/mesh.pb.h"

namespace tutti {

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
  // Ends this host's workers of the request's job and, if it is set, owner. The reply has this
  // host where there were any.
  virtual v1::StopJobReply stop_job(const v1::StopJobRequest& request) = 0;
};

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
  // With etcd the agents elect the coordinator, and its states are saved there.
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
// What of that the options' texts alone forbid, wherever names lead.
Status check_control_texts(const ControlOptions& options);
// What of that can be said before anything is opened, as names lead now.
Status check_control(const ControlOptions& options, const Names& names = {});
// Whether the files that are needed to speak to etcd can be used now.
Status check_etcd_files(const ControlOptions& options);
Result<std::unique_ptr<ControlServer>> serve_control(const ControlOptions& options,
                                                     AgentControl& agent, const Names& names = {});

}  // namespace tutti
