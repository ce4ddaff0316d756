// The listening end of gRPC links: the Data service of proto/mesh.proto.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "daemon/transport/grpc_link.h"

namespace tutti {

// To be registered with a server; outlives it.
std::unique_ptr<grpc::Service> make_data_service(std::shared_ptr<GrpcHub> hub, Acceptor acceptor);

}  // namespace tutti
