// What people and tools ask of a node, and through it of the mesh: the one implementation behind
// the Admin service and the agent's Unix socket. Thread-safe; calls block while other agents are
// asked.
#pragma once

#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/control/control.h"
#include "daemon/control/coordinator.h"
#include "daemon/control/kept_stubs.h"
#include "daemon/control/tls_files.h"
#include "daemon/membership/rules.h"
#include "proto/mesh.pb.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace tutti {

class AdminCalls {
 public:
  // `describe` adds to this agent's report what the control plane knows of its peers.
  AdminCalls(AgentControl& agent, Coordinator& coordinator, const Credentials& credentials, Tls tls,
             std::function<void(v1::AgentReport&)> describe)
      : agent_(agent),
        coordinator_(coordinator),
        credentials_(credentials),
        tls_(std::move(tls)),
        describe_(std::move(describe)),
        stubs_(tls_) {}
  // Called once, when the port and the coordinator are known; earlier calls wait for it.
  void set_address(std::string address);
  const std::string& address() const;

  // Checks the rule of the request and does it. Logs who did what, unless it only looked.
  // `forwarded`: an agent passed the request on.
  v1::AdminAnswer call(v1::AdminRequest request, const Caller& caller, bool forwarded);

 private:
  struct Query;
  using Queries = std::vector<std::unique_ptr<Query>>;

  Status act(const v1::AdminRequest& request, const Caller& caller, bool forwarded,
             v1::AdminAnswer& answer);
  Status status(v1::AdminRequest request, const Caller& caller, bool forwarded,
                v1::StatusReply& reply);
  Status trace(v1::AdminRequest request, const Caller& caller, bool forwarded,
               v1::TraceReply& reply);
  Status set_strategy(v1::AdminRequest request, const Caller& caller, bool forwarded);
  Status stop_job(v1::AdminRequest request, const Caller& caller, bool forwarded,
                  v1::StopJobReply& reply);
  Status stop_job_everywhere(v1::AdminRequest request, v1::StopJobReply& reply);
  Queries ask_each(const std::vector<v1::AgentMessage>& agents, const v1::AdminRequest& request,
                   const std::function<void()>& meanwhile) const;
  void ask_once(const std::vector<Query*>& queries, const v1::AdminRequest& request,
                const std::function<void()>& meanwhile) const;
  grpc::Status ask_leader(const std::string& leader, const v1::AdminRequest& request,
                          v1::AdminAnswer& answer) const;
  v1::AgentReport unreachable_leader(const std::string& leader, const grpc::Status& why) const;
  void prepare_forward(grpc::ClientContext& context, Millis timeout) const;
  Status not_the_coordinator() const;
  Status nobody_coordinates() const;
  v1::AgentReport own_report();
  // Adds the report of this agent alone, and what its ranks have called where that is asked for.
  void report_own(const v1::StatusRequest& request, v1::StatusReply& reply);
  void ask_all_agents(v1::AdminRequest request, v1::StatusReply& reply);
  // `gone`: without what the answer is about, afterwards.
  void add_answer(Query& query, bool with_calls, std::vector<v1::AgentReport>& gone,
                  v1::StatusReply& reply) const;
  void trace_all_agents(v1::AdminRequest request, v1::TraceReply& reply);
  // Replies with the coordinator's answer, or with this agent's own report and the error; where
  // nobody coordinates, with the report alone, in which the state of etcd says why.
  void forward_to_coordinator(const v1::AdminRequest& request, v1::StatusReply& reply);
  // Replies with the coordinator's answer, or with this agent's own traces and the error.
  void forward_to_coordinator(const v1::AdminRequest& request, v1::TraceReply& reply);

  bool may_log_refusal();

  AgentControl& agent_;
  Coordinator& coordinator_;
  const Credentials& credentials_;
  const Tls tls_;
  const std::function<void(v1::AgentReport&)> describe_;
  mutable KeptStubs stubs_;
  std::string address_;  // Of this agent.
  mutable std::latch address_known_{1};
  std::mutex refusals_mutex_;  // Guards what follows.
  TimePoint refusals_since_{};
  int refusals_ = 0;
};

}  // namespace tutti
