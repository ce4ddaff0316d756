// The Mesh service: gRPC streams to and from the coordinator.
#pragma once

#include <string>

#include "daemon/mesh/coordinator.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

class MeshService final : public v1::Mesh::CallbackService {
 public:
  // `elsewhere`: empty where this agent coordinates, else who does; streams are then refused.
  MeshService(Coordinator& coordinator, std::string elsewhere)
      : coordinator_(coordinator), elsewhere_(std::move(elsewhere)) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentAnswer>* Enlist(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator& coordinator_;
  const std::string elsewhere_;
};

}  // namespace tutti
