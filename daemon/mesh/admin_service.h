// The Admin service: what people and tools ask of a node, and through it of the mesh.
#pragma once

#include <latch>
#include <string>

#include "daemon/mesh/coordinator.h"
#include "daemon/mesh/mesh.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

// Blocking handlers on gRPC's own thread pool: calls are rare, and each waits for others.
class AdminService final : public v1::Admin::Service {
 public:
  struct Place {
    std::string address;      // Of this agent.
    std::string coordinator;  // The same where this agent coordinates.
    bool coordinates() const { return address == coordinator; }
  };
  AdminService(AgentControl& agent, Coordinator& coordinator)
      : agent_(agent), coordinator_(coordinator) {}
  // Once, when the port is known; calls that come before wait for it.
  void open(Place place);

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusReply* reply) override;
  grpc::Status SetStrategy(grpc::ServerContext* context, const v1::SetStrategyRequest* request,
                           v1::AdminReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::AdminReply* reply) override;
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                    v1::AdminReply* reply) override;

 private:
  const Place& place() const;
  v1::AgentReport own_report();
  void gather(v1::StatusReply& reply);
  // What the coordinator says, or this agent's own report and why there is no more.
  void ask_coordinator(v1::StatusReply& reply);

  AgentControl& agent_;
  Coordinator& coordinator_;
  Place place_;
  std::latch opened_{1};
};

}  // namespace tutti
