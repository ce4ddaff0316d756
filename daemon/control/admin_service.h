// The Admin gRPC service: the control plane's door to AdminCalls.
#pragma once

#include "daemon/control/admin_calls.h"
#include "daemon/control/tls.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

// Handlers block on gRPC's own thread pool: calls are rare, and each waits for other agents.
class AdminService final : public v1::Admin::Service {
 public:
  AdminService(AdminCalls& calls, const Credentials& credentials, const ServerTls& tls)
      : calls_(calls), credentials_(credentials), tls_(tls) {}

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusReply* reply) override;
  grpc::Status Trace(grpc::ServerContext* context, const v1::TraceRequest* request,
                     v1::TraceReply* reply) override;
  grpc::Status SetStrategy(grpc::ServerContext* context, const v1::SetStrategyRequest* request,
                           v1::AdminReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::AdminReply* reply) override;
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request,
                    v1::AdminReply* reply) override;

 private:
  v1::AdminAnswer call(const grpc::ServerContext& context, const v1::AdminRequest& request);

  AdminCalls& calls_;
  const Credentials& credentials_;
  const ServerTls& tls_;
};

}  // namespace tutti
