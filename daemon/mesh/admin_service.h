// The Admin gRPC service: what people and tools ask of a node, and through it of the mesh.
#pragma once

#include <latch>
#include <string>

#include "daemon/mesh/coordinator.h"
#include "daemon/mesh/mesh.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

// Handlers block on gRPC's own thread pool: calls are rare, and each waits for other agents.
class AdminService final : public v1::Admin::Service {
 public:
  struct Addresses {
    std::string address;      // Of this agent.
    std::string coordinator;  // The same if this agent coordinates.
    bool coordinates() const { return address == coordinator; }
  };
  // If `token` is not empty, every call must show it.
  AdminService(AgentControl& agent, Coordinator& coordinator, std::string token)
      : agent_(agent), coordinator_(coordinator), token_(std::move(token)) {}
  // Called once, when the port is known; earlier calls wait for it.
  void set_addresses(Addresses addresses);

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusReply* reply) override;
  grpc::Status SetStrategy(grpc::ServerContext* context, const v1::SetStrategyRequest* request,
                           v1::AdminReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::AdminReply* reply) override;
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                    v1::AdminReply* reply) override;

 private:
  const Addresses& addresses() const;
  grpc::Status check(const grpc::ServerContext& context) const;
  void prepare_forward(grpc::ClientContext& context, Millis timeout) const;
  grpc::Status not_the_coordinator() const;
  v1::AgentReport own_report();
  void ask_all_agents(v1::StatusReply& reply);
  // Replies with the coordinator's answer, or with this agent's own report and the error.
  void forward_to_coordinator(v1::StatusReply& reply);

  AgentControl& agent_;
  Coordinator& coordinator_;
  const std::string token_;
  Addresses addresses_;
  std::latch addresses_known_{1};
};

}  // namespace tutti
