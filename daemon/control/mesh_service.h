// The Mesh gRPC service: streams of workers and agents to the coordinator.
#pragma once

#include <string>

#include "daemon/control/coordinator.h"
#include "daemon/control/tls.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

class MeshService final : public v1::Mesh::CallbackService {
 public:
  // While another agent coordinates, streams are refused.
  MeshService(Coordinator& coordinator, const Credentials& credentials, const ServerTls& tls)
      : coordinator_(coordinator), credentials_(credentials), tls_(tls) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentAnswer>* Enlist(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator& coordinator_;
  const Credentials& credentials_;
  const ServerTls& tls_;
};

}  // namespace tutti
